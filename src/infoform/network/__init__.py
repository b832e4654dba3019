"""What is known of the user's model and data: its batches, its layers, and what a layer saw in a pass."""
