"""Small regressions on the nine UCI sets."""
