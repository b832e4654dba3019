"""What an answer costs and how good it is: predictions, tuning and scores, two versions and a peer side by side."""
