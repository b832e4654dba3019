"""Networks that experiments train or measure."""
