"""`infoform bench`: run the benchmarks of a clone; the installed package does not have them."""

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from infoform.cli.mistakes import Mistake
from infoform.cli.options import Output, option
from infoform.cli.record import recorded
from infoform.records.programs import BenchResult

PROGRAM = Path("benchmarks") / "speed" / "__main__.py"


def bench(
    context: typer.Context,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            help="Arguments of the benchmark itself, after --; see `infoform bench -- --help`.",
            metavar="[-- ARGUMENTS]",
        ),
    ] = None,
    *,
    quick: Annotated[bool, option(None, None, "Measure tiny networks only, in a minute.", "--quick")] = False,
    output: Output,
) -> None:
    """Compare speed and memory with other libraries.

    This needs a clone of the repository. Libraries that are not installed are left out, with a note. The whole
    benchmark takes hours; started again, it continues where it stopped.

    Examples:

        infoform bench --quick
        infoform bench -- --missing
        infoform bench -- --networks mlp lenet --stages fits peaks
    """
    root = find_clone()
    with recorded(context, output) as record:
        command = [sys.executable, "-m", "benchmarks.speed", *(["--quick"] if quick else []), *(arguments or [])]
        code = subprocess.run(command, cwd=root, check=False).returncode
        if code != 0:
            raise Mistake(f"the benchmark ended with code {code}; its own message is above.")
        record.result = BenchResult(command[1:], str(root))


def find_clone(start: Path = Path(__file__)) -> Path:
    """Return the clone that this package runs from, or that the current folder is in."""
    for folder in (*start.resolve().parents, Path.cwd(), *Path.cwd().parents):
        if (folder / PROGRAM).is_file():
            return folder
    raise Mistake(
        "the benchmarks are no part of the installed package; clone the repository that it was installed from and run "
        "'infoform bench' or 'make bench' there."
    )
