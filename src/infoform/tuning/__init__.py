"""The hyperparameters of a posterior: by evidence, or by a search on validation data."""
