"""`infoform reproduce`: run an experiment of the paper, or continue one."""

from pathlib import Path
from typing import Annotated

import typer

from infoform.cli.mistakes import Mistake, say
from infoform.cli.options import Output, names_in, option
from infoform.cli.record import Record, recorded
from infoform.records.programs import ExperimentList


def reproduce(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            help="Name of the experiment; without it, all are listed.",
            metavar="[NAME]",
            autocompletion=names_in("infoform.experiments:EXPERIMENTS"),
        ),
    ] = None,
    *,
    quick: Annotated[bool, option(None, None, "Run a small version, in minutes.", "--quick")] = False,
    full: Annotated[
        bool, option(None, None, "Run all that the paper did, where the default is less.", "--full")
    ] = False,
    out: Annotated[Path, option(None, "FOLDER", "Folder for the result, a JSON file.")] = Path("results"),
    cache: Annotated[Path, option(None, "FOLDER", "Folder for what experiments share.")] = Path("out/cache"),
    page: Annotated[
        Path | None, option(None, "DOCS", "Run nothing; write the experiment's page from its result.")
    ] = None,
    output: Output,
) -> None:
    """Run an experiment of the paper.

    Run again after an interruption, the command continues where it stopped. Run several times at once, the commands
    share the work. Data are read from the folder in the environment variable INFOFORM_DATA.

    Examples:

        infoform reproduce
        infoform reproduce NAME --quick
        infoform reproduce NAME --out results
        infoform reproduce NAME --page docs
    """
    from infoform.cli.catalogue import experiment_names, experiment_pages, experiment_runner
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
            pages = experiment_pages()
            record.written.append(pages.write_page(name, result, page, notes=pages.read_notes(path)))
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
    from infoform.common.extras import describe_missing

    table = Table("experiment", "what it shows", title="Experiments of the paper")
    summaries = {}
    for name in experiment_names():
        try:
            experiment = find_experiment(name)
        except ModuleNotFoundError as error:
            summaries[name] = f"needs {describe_missing(error.name) or f'{error.name}, which is not installed'}"
        else:
            summaries[name] = f"{experiment.summary} Reproduces: {experiment.reproduces}."
        table.add_row(name, summaries[name])
    record.console.print(table)
    record.result = ExperimentList(summaries)
