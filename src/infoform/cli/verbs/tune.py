"""`infoform tune`: the prior precision of a run, by a search on validation data or by the evidence."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from infoform.cli.config_file import used_options, write_config
from infoform.cli.mistakes import Mistake, say
from infoform.cli.options import DataOptions, ModelOptions, Output, PredictOptions, Run, names_in
from infoform.cli.record import Record, recorded
from infoform.common.same_work import Identity, refusal
from infoform.records.fit import Precision
from infoform.records.tune import TriedPair, TuneResult

if TYPE_CHECKING:
    from infoform.cli.run_folder import OpenRun, RunFolder

SHOWN = 12  # trials in the table
FREE = ("run", "device", "batch-size", "model", "weights", "model-arg", "objective")  # scores do not depend on these


def tune(
    context: typer.Context,
    run: Run,
    *,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            "-d",
            metavar="DATA",
            help="Validation data, of the same form as the fit's; without it, by evidence.",
            rich_help_panel="Data",
        ),
    ] = None,
    model: ModelOptions,
    options: DataOptions,
    objective: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="nll, ece or brier.",
            autocompletion=names_in("infoform.tuning.search:OBJECTIVES"),
            rich_help_panel="Search",
        ),
    ] = "nll",
    method: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="grid, random or optuna.",
            autocompletion=names_in("infoform.tuning.search:METHODS"),
            rich_help_panel="Search",
        ),
    ] = "grid",
    trials: Annotated[int, typer.Option(metavar="N", help="How many values are tried.", rich_help_panel="Search")] = 27,
    low: Annotated[float, typer.Option(metavar="TAU", help="Least prior precision.", rich_help_panel="Search")] = 1e-7,
    high: Annotated[float, typer.Option(metavar="TAU", help="Largest.", rich_help_panel="Search")] = 1e6,
    num_data: Annotated[
        str | None,
        typer.Option(metavar="LOW,HIGH", help="Search over N too, as the paper does.", rich_help_panel="Search"),
    ] = None,
    per_layer: Annotated[
        bool, typer.Option("--per-layer", help="By evidence: one value a layer.", rich_help_panel="Search")
    ] = False,
    noise: Annotated[
        str,
        typer.Option(
            metavar="HOW",
            help="By evidence: residuals, or evidence for the noise of a regression too.",
            rich_help_panel="Search",
        ),
    ] = "residuals",
    restart: Annotated[
        bool, typer.Option("--restart", help="Forget the trials of an earlier search.", rich_help_panel="Search")
    ] = False,
    prediction: PredictOptions,
    output: Output,
) -> None:
    """Choose the prior precision, on validation data.

    It says how far the weights may stray. Use the --kind that you will predict with. An interrupted search goes on
    where it stopped, by the same command.

        infoform tune runs/a --data val.csv
        infoform tune runs/a --data val.csv --kind mc --samples 30
        infoform tune runs/a --data val.csv --low 1 --high 10000 --trials 9
        infoform tune runs/a --data val.csv --method optuna --num-data 100,1e5

    Without data, by the evidence: quick, good for regression, often too wide for classifiers:

        infoform tune runs/a

    Next: infoform evaluate RUN --data TEST
    """
    from infoform.cli.run_folder import OpenRun

    with recorded(context, output, folder=run if run.is_dir() else None) as record:
        opened = OpenRun.load(run, model, options)
        before = opened.laplace.prior_precision
        if data is None:
            opened.laplace.tune(per_layer=per_layer, noise=noise)
        else:
            if per_layer:
                raise Mistake("--per-layer is for tuning by evidence; leave out --data, or --per-layer.")
            if noise != "residuals":
                raise Mistake("--noise is for tuning by evidence; leave out --data, or --noise.")
            if not restart:
                _check_trials(context, opened.folder)
            loader = opened.read(data, labelled=True).loader
            with _set_aside(opened.folder, restart):
                write_config(context, opened.folder.trials_options)  # at once: trials are kept from now on
                opened.laplace.tune(
                    loader,
                    objective=objective,
                    method=method,
                    trials=trials,
                    prior_precision=(low, high),
                    num_data=_range(num_data),
                    kind=prediction.kind,
                    samples=prediction.samples,
                    link=prediction.link,
                    seed=prediction.seed,
                    path=opened.folder.trials,
                    progress=record.progress,
                )
        opened.laplace.save(opened.folder.posterior, curvature=opened.has_curvature)
        record.written.append(opened.folder.posterior)
        _report(opened, before, None if data is None else objective, record)


@contextmanager
def _set_aside(folder: "RunFolder", restart: bool) -> Iterator[None]:
    """Put files of an earlier search back if this one ends before its first trial; forget its trials with `restart`."""
    files = (folder.trials, folder.trials_options)
    earlier = {file: file.read_bytes() for file in files if file.exists()}
    if restart:
        folder.trials.unlink(missing_ok=True)
    try:
        yield
    except BaseException as error:
        if not folder.trials.exists():
            folder.trials_options.unlink(missing_ok=True)
            for file, content in earlier.items():
                file.write_bytes(content)
        elif isinstance(error, KeyboardInterrupt):
            say("the trials so far are kept; the same command goes on from there.", style="yellow")
        raise


def _check_trials(context: typer.Context, folder: "RunFolder") -> None:
    """See that trials to go on from are of the same data and options."""
    if not folder.trials.exists() or not folder.trials_options.exists():
        return
    earlier, now = yaml.safe_load(folder.trials_options.read_text(encoding="utf-8")), used_options(context)
    free = FREE if now["method"] == "grid" else (*FREE, "trials")  # more of a grid are others
    differences = Identity(_flags(now)).differences(_flags(earlier), ignored=_flags(dict.fromkeys(free)))
    if differences:
        what = f"'{folder.trials}' holds the trials of another search"
        raise Mistake(refusal(what, differences, remedy="add --restart to forget them"))


def _flags(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options by their flags on the command line."""
    return {f"--{name}": value for name, value in options.items()}


def _report(run: "OpenRun", before: Precision, objective: str | None, record: Record) -> None:
    from rich.table import Table

    laplace = run.laplace
    shown = laplace.trials if objective is not None else []
    if objective is not None:
        ranked = sorted(shown, key=lambda trial: trial.scores[objective])[:SHOWN]
        table = Table("", "τ", "N", title=f"Best {len(ranked)} of {len(shown)} trials")
        names = [name for name in ("nll", "ece", "brier", "accuracy", "rmse") if name in ranked[0].scores]
        for name in names:
            table.add_column(name, justify="right")
        for trial in ranked:
            cells = (f"{trial.scores[name]:.4f}" for name in names)
            mark = "*" if trial is ranked[0] else ""
            table.add_row(mark, f"{trial.prior_precision:.4g}", f"{trial.num_data:.4g}", *cells)
        record.console.print(table)
    how = "by evidence" if objective is None else f"by validation {objective}"
    chosen = laplace.prior_precision
    told = f"{chosen:.4g}" if isinstance(chosen, float) else ", ".join(f"{k}: {v:.4g}" for k, v in chosen.items())
    record.console.print(f"prior precision τ = {told}, {how}.", highlight=False)
    assert laplace.num_data is not None
    record.result = TuneResult(
        method="evidence" if objective is None else "search",
        objective=objective,
        prior_precision=chosen,
        prior_precision_before=before,
        num_data=laplace.num_data,
        noise=laplace.noise,
        trials=[TriedPair(trial.num_data, trial.prior_precision, trial.scores) for trial in shown],
    )


def _range(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise Mistake(f"--num-data must be two numbers as in 100,100000, got '{text}'.") from None
    return low, high
