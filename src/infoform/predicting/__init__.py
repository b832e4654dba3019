"""From a posterior and inputs to predictions: in closed form, or by networks with sampled weights."""
