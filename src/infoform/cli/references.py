"""`package.module:name` and `path/to/file.py:name`: Python objects named on a command line."""

import importlib
import importlib.util
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from infoform.cli.mistakes import Mistake


def find_object(reference: str, what: str) -> Any:
    """Return the object; `what` is the option that names it ("--model"), for the message of an error."""
    place, colon, name = reference.rpartition(":")
    if not colon or not place or not name:
        raise Mistake(f"{what} must be file.py:name or package.module:name, got '{reference}'; add ':' and a name.")
    is_file = place.endswith(".py")
    if is_file and not Path(place).is_file():
        raise Mistake(f"there is no file '{shown(place)}', which {what} names; check the path.")
    module = _load_file(Path(place), what) if is_file else _load_module(place, what)
    value: Any = module
    for part in name.split("."):
        if not hasattr(value, part):
            have = ", ".join(_public_names(module)[:8])
            raise Mistake(f"'{shown(place)}' has no '{name}', which {what} names; it has {have or 'nothing public'}.")
        value = getattr(value, part)
    return value


def absolute(reference: str) -> str:
    """Return the reference with an absolute path, which holds in any folder."""
    place, _, name = reference.rpartition(":")
    return f"{Path(place).resolve()}:{name}" if place.endswith(".py") else reference


def shown(path: str) -> str:
    """Return a path, or a reference to a file, as seen from the current folder."""
    return path.removeprefix(f"{Path.cwd()}{os.sep}")


def describe_failure(error: BaseException) -> str:
    """Return an error in the user's code as a phrase: what happened, and in which line of which file."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f", line {frames[-1].lineno} of {Path(frames[-1].filename).name}" if frames else ""
    if isinstance(error, SyntaxError):
        where = f", line {error.lineno} of {Path(error.filename or '').name}"
        return f"SyntaxError: {error.msg}{where}"
    first_line = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {first_line}".rstrip(": ") + where


def _load_file(path: Path, what: str) -> ModuleType:
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)  # so that it can import the files beside it
    name = path.stem if path.stem.isidentifier() else "infoform_user_module"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(name)
    sys.modules[name] = module  # dataclasses and pickles of its classes look for it there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise Mistake(
            f"'{shown(str(path))}', which {what} names, fails when imported: {describe_failure(error)}."
        ) from error
    finally:
        if before is not None:
            sys.modules[name] = before
    return module


def _load_module(name: str, what: str) -> ModuleType:
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise Mistake(
                f"there is no module '{error.name}', which {what} names; install it, or name a file."
            ) from error
        raise Mistake(f"the module '{name}', which {what} names, fails when imported: {error}.") from error
    except Exception as error:
        raise Mistake(
            f"the module '{name}', which {what} names, fails when imported: {describe_failure(error)}."
        ) from error


def _public_names(module: ModuleType) -> list[str]:
    """Return the names that the module itself defines, and not those that it imports."""
    return [
        name
        for name, value in vars(module).items()
        if getattr(value, "__module__", None) == module.__name__ and not name.startswith("_")
    ]
