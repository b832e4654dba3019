"""The fixtures of folder.py, where pytest finds them."""

from folder import call, fail, fitted, home, succeed

__all__ = ["call", "fail", "fitted", "home", "succeed"]
