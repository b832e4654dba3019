"""Searches for hyperparameters that experiments use."""
