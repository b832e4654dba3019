"""From a model and data to curvature: passes over the data, and the sums that they fill."""
