"""Pages of the documentation that are written from results: one writer for experiments and benchmarks."""
