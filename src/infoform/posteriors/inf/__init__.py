"""INF, the sparse information form: structure, options, core of kept pairs, samples and Jacobians."""
