"""One error for every file that cannot be what it is read as: damaged, foreign, or of values that make no sense."""

from collections.abc import Iterator
from contextlib import contextmanager

UNFORESEEN = (  # what values of wrong types, names, shapes or sizes meet, wherever they are first used
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    RuntimeError,  # torch's, and RecursionError
    MemoryError,
)


class BadFileError(ValueError):
    """A file that is damaged, not infoform's, of another model, or whose values make no sense.

    Args:
        message: What is wrong with the file, and what to do.

    Example:
        ```python
        try:
            infoform.load("posterior.safetensors", torch.nn.Linear(4, 3))  # another network
        except infoform.BadFileError as error:
            print(error)  # what is wrong, and what to do
        ```
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)


@contextmanager
def refusing(what: str, remedy: str) -> Iterator[None]:
    """Turn whatever the values of a file lead to into a BadFileError.

    Args:
        what: The file ("'posterior.safetensors'"), for the sentence of an error.
        remedy: What the user can do.
    """
    try:
        yield
    except BadFileError:
        raise
    except ValueError as error:  # whose message is for users already
        raise BadFileError(str(error)) from error
    except UNFORESEEN as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200].rstrip(": ")
        raise BadFileError(f"{what} holds values that make no sense ({reason}); {remedy}.") from error
