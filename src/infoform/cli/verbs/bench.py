"""`infoform bench`: the benchmarks of a clone, which are no part of the installed package."""

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from infoform.cli.mistakes import Mistake
from infoform.cli.options import Output
from infoform.cli.record import recorded
from infoform.records.programs import BenchResult

PROGRAM = Path("benchmarks") / "speed" / "__main__.py"


def bench(
    context: typer.Context,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            help="For the benchmark itself, after --; see `infoform bench -- --help`.", metavar="[-- ARGUMENTS]"
        ),
    ] = None,
    *,
    quick: Annotated[bool, typer.Option("--quick", help="Tiny networks in place of all, in a minute.")] = False,
    output: Output,
) -> None:
    """Measure speed and memory beside other libraries, in a clone.

    Libraries that are not installed are left out, and it says so. The whole takes hours, and goes on where it stopped:

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
