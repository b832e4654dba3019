"""Text in a CSV file that spreadsheets would take for a formula: it gets an apostrophe before it.

A class or an image may be called `=HYPERLINK(...)`, and a spreadsheet that opens the table would run it.
"""

from typing import Any

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a formula begins with, in one spreadsheet or another


def safe_cell(value: Any) -> Any:
    """Return a value as it can stand in a CSV file: numbers as they are, and no text that is a formula.

    Args:
        value: A name, a number or text.

    Returns:
        The same, with an apostrophe before text that a spreadsheet would run.

    Example:
        >>> safe_cell("=1+1"), safe_cell("-3.5"), safe_cell("ash")
        ("'=1+1", '-3.5', 'ash')
    """
    if not isinstance(value, str) or not value.startswith(FORMULA):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value
