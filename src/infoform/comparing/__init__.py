"""Ways to be uncertain beside each other on a user's own test data, and which one to take."""

from infoform.comparing.compare import compare, compare_methods
from infoform.comparing.methods import METHODS, Method, Ready

__all__ = ["METHODS", "Method", "Ready", "compare", "compare_methods"]
