"""The command `infoform`: one program, one verb a file in `verbs/`.

Nothing imported here imports torch: `infoform --help` and completion answer at once, a verb loads what it needs.
"""

import os
from inspect import cleandoc
from typing import Annotated

import typer

from infoform.cli.groups import with_groups
from infoform.cli.mistakes import Verbs
from infoform.cli.verbs import VERBS

app = typer.Typer(
    cls=Verbs,
    name="infoform",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _show_version(asked: bool) -> None:
    if asked:
        from infoform.version import __version__

        typer.echo(f"infoform {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """How sure is a trained network? A posterior over its weights, in sparse information form.

    From a network and a folder of data to calibrated predictions:

        infoform fit runs/a -m model.py:net -w net.pt -d train.csv --target y
        infoform tune runs/a --data val.csv
        infoform evaluate runs/a --data test.csv
        infoform predict runs/a --data new.csv --out predictions.csv

    To see it without data of your own, run `infoform demo`; it takes a minute. The --help of each verb has examples.
    """


def _reflowed(text: str | None) -> str:
    """Return a docstring with each paragraph on one line, which the terminal breaks; examples stay as they are."""
    parts = cleandoc(text or "").split("\n\n")
    return "\n\n".join(part if part.startswith(" ") else " ".join(part.split()) for part in parts)


for name, verb in VERBS.items():
    app.command(name, help=_reflowed(verb.__doc__))(with_groups(verb))


def main() -> None:
    """Run the program; the entry point of the installed command."""
    # threads that wait give way to others: on a busy machine a search of ten trials took 17 s in place of 41 s
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    app()
