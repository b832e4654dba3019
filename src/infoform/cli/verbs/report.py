"""`infoform report`: one HTML page about runs, for people; it works offline."""

from pathlib import Path
from typing import Annotated

import typer

from infoform.cli.mistakes import Mistake
from infoform.cli.options import Output, option
from infoform.cli.record import recorded, settle
from infoform.common.whole_files import write_text
from infoform.records.programs import ReportResult


def report(
    context: typer.Context,
    runs: Annotated[
        list[Path], typer.Argument(help="Folders of runs, or JSON files of `infoform reproduce`.", metavar="RUN...")
    ],
    *,
    out: Annotated[
        Path | None,
        option(
            "Output",
            "FILE",
            "Page to write, .html. Default: RUN/report.html, or report.html for several runs.",
            "--out",
            "-o",
        ),
    ] = None,
    title: Annotated[str | None, option("Output", "TEXT", "Title of the page.")] = None,
    output: Output,
) -> None:
    """Make one HTML page about a run, or about several side by side.

    The page says in plain words, charts and pictures what the other verbs measured: how far the network's confidence
    can be trusted, whether the network notices what it does not know, which examples it is sure of, and what the
    uncertainty costs. It is one file, and opens without an internet connection. Evaluate first, with unknown data if
    you have any:

        infoform evaluate runs/a --data test.csv --unknown other.csv
        infoform report runs/a

    Several runs side by side, and an experiment of the paper:

        infoform report runs/a runs/b --out compare.html
        infoform report results/uci-information.json --out information.html
    """
    target = out or (runs[0] / "report.html" if len(runs) == 1 and runs[0].is_dir() else Path("report.html"))
    if target.suffix not in (".html", ".htm"):
        raise Mistake(f"--out must end with .html, got '{target}'.")
    if not target.resolve().parent.is_dir():
        raise Mistake(f"there is no folder '{target.parent}' for --out; make it first.")
    with recorded(context, output) as record:
        try:
            from infoform.cli.catalogue import find_experiment
            from infoform.report import MARK, make_report

            _check_replaceable(target, MARK)
            for run in runs:
                settle(run)
            text = make_report(runs, title=title, find_experiment=find_experiment)
        except ModuleNotFoundError as error:
            raise Mistake(
                f"a report needs {error.name}, which is not installed: pip install 'infoform[report]'."
            ) from None
        write_text(target, text)
        record.written.append(target)
        record.result = ReportResult(str(target.resolve()), len(text.encode()), [str(run) for run in runs])


def _check_replaceable(target: Path, mark: str) -> None:
    """See that nothing but an earlier report is replaced."""
    if target.is_dir():
        raise Mistake(f"'{target}' is a folder; name a file with --out.")
    if target.exists() and mark not in target.read_text(encoding="utf-8", errors="replace")[:1000]:
        raise Mistake(f"'{target}' is there and no report of infoform's; remove it, or name another file with --out.")
