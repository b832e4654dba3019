"""Bytes, times and spectra of large networks."""
