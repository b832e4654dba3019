"""How the command ends: after a user's mistake, with one sentence and a non-zero exit code, never with a traceback.

Exit code 1: the input was wrong; 2: the command line was wrong; 130: interrupted. `--debug` shows the traceback.
"""

import sys
import traceback
from collections.abc import Sequence
from typing import Any

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

from infoform.common.extras import describe_missing

INTERRUPTED = 130
TOLD = (ValueError, TypeError, RuntimeError, OSError, ImportError, MemoryError)  # their messages are for users


class Mistake(Exception):
    """A mistake of the user's; its message is the sentence."""


class Verbs(TyperGroup):
    """The program: its verbs, and one sentence for whatever goes wrong in them."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        arguments = list(sys.argv[1:] if args is None else args)
        try:
            code = super().main(arguments, "infoform", complete_var, False, windows_expand_args, **extra)
        except Exception as error:
            if "--debug" in arguments:
                traceback.print_exc()
            say(f"error: {sentence(error)}", style="red")
            code = getattr(error, "exit_code", 1)
        if code == INTERRUPTED:
            say("interrupted.", style="yellow")
        sys.exit(code if isinstance(code, int) else 0)


def sentence(error: Exception) -> str:
    """Return what an error says, on one line."""
    if isinstance(error, typer.TyperException):
        context = getattr(error, "ctx", None)
        path = "infoform" if context is None else context.command_path
        text = _one_line(error.format_message()).rstrip(".")
        return f"{text}{' See' if text.endswith('?') else '; see'} '{path} --help'."
    if isinstance(error, Mistake):
        return _one_line(str(error))
    if isinstance(error, ModuleNotFoundError) and "pip install" not in str(error):
        missing = describe_missing(error.name)
        if missing is not None:
            return f"this needs {missing}"
    if isinstance(error, TOLD) and str(error):
        # torch's errors go on for lines about where they came from; the first says what it is
        return _one_line(str(error).splitlines()[0] if isinstance(error, RuntimeError) else str(error))
    frame = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{frame.filename}, line {frame.lineno}"
    told = f"{type(error).__name__}: {_one_line(str(error))}".rstrip(": ")
    return f"unexpected {told} ({where}); run it again with --debug, and report it if the fault is infoform's."


def say(text: str, *, style: str = "") -> None:
    """Write one line for people, to the standard error."""
    Console(stderr=True, highlight=False).print(Text(text, style=style), soft_wrap=True)


def _one_line(text: str) -> str:
    return " ".join(text.split())
