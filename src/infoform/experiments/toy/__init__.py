"""One-dimensional toy regressions that can be drawn."""
