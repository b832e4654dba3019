"""What a posterior and its fit will cost, and how to spend a budget of bytes."""
