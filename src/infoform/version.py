"""The version of the package; also written into every saved file."""

__version__ = "0.1.0"
