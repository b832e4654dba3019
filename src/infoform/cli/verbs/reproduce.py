"""`infoform reproduce`: run an experiment of the paper, or go on with it."""

from pathlib import Path
from typing import Annotated

import typer

from infoform.cli.mistakes import Mistake, say
from infoform.cli.options import Output, names_in
from infoform.cli.record import Record, recorded
from infoform.records.programs import ExperimentList


def reproduce(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            help="Experiment; all are listed where it is left out.",
            metavar="[NAME]",
            autocompletion=names_in("infoform.experiments:EXPERIMENTS"),
        ),
    ] = None,
    *,
    quick: Annotated[bool, typer.Option("--quick", help="A small version, in minutes.")] = False,
    full: Annotated[bool, typer.Option("--full", help="All that the paper did, where the default is less.")] = False,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder of the result's JSON.")] = Path("results"),
    cache: Annotated[Path, typer.Option(metavar="FOLDER", help="What experiments share.")] = Path("out/cache"),
    page: Annotated[
        Path | None, typer.Option(metavar="DOCS", help="Write the page from the result, and run nothing.")
    ] = None,
    output: Output,
) -> None:
    """Run an experiment of the paper.

    Interrupted, it goes on from where it stopped; started several times at once, it is shared out. Data are read from
    the folder that the variable INFOFORM_DATA names.

    Examples:

        infoform reproduce
        infoform reproduce NAME --quick
        infoform reproduce NAME --out results
        infoform reproduce NAME --page docs
    """
    from infoform.cli.catalogue import experiment_names, experiment_runner
    from infoform.records.study_result import Result

    with recorded(context, output) as record:
        if name is None:
            _list(record)
            return
        names = experiment_names()
        if name not in names:
            raise Mistake(f"there is no experiment '{name}'; there are {', '.join(names) or 'none yet'}.")
        if out.exists() and not out.is_dir():
            raise Mistake(f"--out must be a folder, and '{out}' is a file; name another.")
        runner = experiment_runner()
        path = runner.result_path(name, out, quick=quick, full=full)
        if page is not None:
            if not path.is_file():
                raise Mistake(f"a page is written from '{path}', which is not there; run the experiment first.")
            result = Result.load(path)
            record.written.append(runner.write_page(name, result, page))
        else:
            try:
                result = runner.reproduce(name, quick=quick, full=full, out=out, cache=cache, progress=record.progress)
            except KeyboardInterrupt:
                say(f"the pieces so far are in '{path}'; the same command goes on from there.", style="yellow")
                raise
            record.written.append(path)
            record.console.print(
                f"{name}: {len(result.pieces)} of {result.total} pieces, {result.seconds:.0f} s in all."
            )
        record.result = result


def _list(record: Record) -> None:
    from rich.table import Table

    from infoform.cli.catalogue import experiment_names, find_experiment

    table = Table("experiment", "what it shows", title="Experiments of the paper")
    summaries = {}
    for name in experiment_names():
        try:
            experiment = find_experiment(name)
        except ModuleNotFoundError as error:
            summaries[name] = f"needs {error.name}, which is not installed"
        else:
            summaries[name] = f"{experiment.summary} Reproduces: {experiment.reproduces}."
        table.add_row(name, summaries[name])
    record.console.print(table)
    record.result = ExperimentList(summaries)
