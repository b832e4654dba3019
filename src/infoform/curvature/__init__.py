"""What a fit measures: the curvature of a layer as a value, how it is asked for, merged and decomposed."""
