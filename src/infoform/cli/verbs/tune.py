"""`infoform tune`: the prior precision of a run, by a search on validation data or by the evidence."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infoform.cli.config_file import used_options, write_config
from infoform.cli.mistakes import Mistake, say
from infoform.cli.options import DataOptions, ModelOptions, Output, PredictOptions, Run, option
from infoform.cli.plain_yaml import read_yaml
from infoform.cli.record import Record, recorded
from infoform.common.same_work import Identity, refusal
from infoform.common.whole_files import write_bytes
from infoform.records.fit import Precision
from infoform.records.tune import TriedPair, TuneResult

if TYPE_CHECKING:
    from infoform.cli.run_folder import OpenRun, RunFolder

SHOWN = 12  # trials in the table
FREE = ("run", "device", "batch-size", "model", "weights", "model-arg", "objective")  # scores do not depend on these


@dataclass(frozen=True)
class SearchOptions:
    """How the prior precision is searched for."""

    objective: Annotated[
        str,
        option("Search", "NAME", "Score to minimise: nll, ece or brier.", names="infoform.tuning.search:OBJECTIVES"),
    ] = "nll"
    method: Annotated[
        str,
        option(
            "Search",
            "NAME",
            "Which values to try: grid, random, halving or optuna.",
            names="infoform.tuning.search:METHODS",
        ),
    ] = "grid"
    trials: Annotated[int, option("Search", "N", "How many values to try.")] = 27
    exact_trials: Annotated[
        int | None,
        option(
            "Search",
            "N",
            "Predict all validation data at up to N values of τ, the others by combination. Default: 2 or 3.",
        ),
    ] = None
    low: Annotated[float, option("Search", "TAU", "Smallest prior precision to try.")] = 1e-7
    high: Annotated[float, option("Search", "TAU", "Largest prior precision to try.")] = 1e6
    num_data: Annotated[
        str | None,
        option(
            "Search", "LOW,HIGH", "Also search for N, between these numbers, as the paper does; without --data: N,N."
        ),
    ] = None
    temperature: Annotated[
        bool | None,
        option(
            "Search",
            None,
            "Search a temperature of the logits together with τ. Default: where outputs are logits.",
            "--temperature/--no-temperature",
        ),
    ] = None
    standard_errors: Annotated[
        float,
        option("Search", "X", "Take the smallest τ whose score is within X standard errors of the best; 0: the best."),
    ] = 1.0
    restart: Annotated[bool, option("Search", None, "Forget the trials of an earlier search.", "--restart")] = False


@dataclass(frozen=True)
class EvidenceOptions:
    """How the prior precision is chosen without validation data."""

    per_layer: Annotated[
        bool, option("Evidence", None, "Without --data: choose one value for each layer.", "--per-layer")
    ] = False
    noise: Annotated[
        str,
        option("Evidence", "HOW", "Without --data, where a regression's noise comes from: residuals or evidence."),
    ] = "residuals"


def tune(
    context: typer.Context,
    run: Run,
    *,
    data: Annotated[
        str | None,
        option(
            "Data", "DATA", "Validation data, in the form of the fit's. Without it: by the evidence.", "--data", "-d"
        ),
    ] = None,
    model: ModelOptions,
    options: DataOptions,
    search: SearchOptions,
    evidence: EvidenceOptions,
    prediction: PredictOptions,
    output: Output,
) -> None:
    """Choose the prior precision: how far the weights may stray.

    It is searched for on validation data. Use the --kind that you will predict with. A search that was interrupted
    continues where it stopped when you run the same command again.

        infoform tune runs/a --data val.csv
        infoform tune runs/a --data val.csv --kind mc --samples 30
        infoform tune runs/a --data val.csv --low 1 --high 10000 --trials 9
        infoform tune runs/a --data val.csv --method optuna --num-data 100,1e5

    Without data, it is chosen by the evidence. That is quick, and good for regression. For classifiers the uncertainty
    often comes out too small, and with --prior isotropic the predictions are useless:

        infoform tune runs/a

    Next: infoform evaluate RUN --data TEST
    """
    from infoform.cli.run_folder import OpenRun, RunFolder
    from infoform.cli.sources import check_options
    from infoform.tuning.kept_outputs import LastingTrials

    def forget_outputs() -> None:
        if data is not None:
            RunFolder(run).trials_outputs.unlink(missing_ok=True)

    with recorded(context, output, folder=run if run.is_dir() else None, alone=True, after=forget_outputs) as record:
        opened = OpenRun.load(run, model, options)
        before = opened.laplace.prior_precision
        if data is None:
            count = _range(search.num_data)
            if count is not None and count[0] != count[1]:
                raise Mistake(
                    "--num-data without --data must be one number twice, as in 1000,1000: a range of N is searched on "
                    f"validation data alone, got '{search.num_data}'."
                )
            opened.laplace.tune(per_layer=evidence.per_layer, noise=evidence.noise, num_data=count)
        else:
            if evidence.per_layer:
                raise Mistake("--per-layer is for tuning by evidence; leave out --data, or --per-layer.")
            if evidence.noise != EvidenceOptions.noise:
                raise Mistake("--noise is for tuning by evidence; leave out --data, or --noise.")
            if search.temperature and not opened.laplace.likelihood.has_logits:
                name = opened.laplace.likelihood.name
                raise Mistake(f"--temperature is for logits, and the outputs of {name} are none; leave it out.")
            if not search.restart:
                _check_trials(context, opened.folder, opened.laplace._kind)
            check_options(options, [data])
            loader = opened.read(data, labelled=True).loader
            with _set_aside(opened.folder, search.restart):
                write_config(context, opened.folder.trials_options)  # at once: trials are kept from now on
                opened.laplace.tune(
                    loader,
                    objective=search.objective,
                    method=search.method,
                    trials=search.trials,
                    exact_trials=search.exact_trials,
                    prior_precision=(search.low, search.high),
                    num_data=_range(search.num_data),
                    temperature=search.temperature,
                    standard_errors=search.standard_errors,
                    **vars(prediction),
                    path=LastingTrials(opened.folder.trials),
                    progress=record.progress,
                )
        opened.laplace.save(record.stage(opened.folder.posterior), curvature=opened.has_curvature)
        record.written.append(opened.folder.posterior)
        _report(opened, before, None if data is None else search.objective, record)


@contextmanager
def _set_aside(folder: "RunFolder", restart: bool) -> Iterator[None]:
    """Put files of an earlier search back if this one ends before its first trial; forget its trials with `restart`."""
    files = (folder.trials, folder.trials_options, folder.trials_outputs)
    earlier = {file: file.read_bytes() for file in files if file.exists()}
    if restart:
        folder.trials.unlink(missing_ok=True)
        folder.trials_outputs.unlink(missing_ok=True)
    try:
        yield
    except BaseException as error:
        if not folder.trials.exists() and not folder.trials_outputs.exists():
            folder.trials_options.unlink(missing_ok=True)
            for file, content in earlier.items():
                write_bytes(file, content)
        elif isinstance(error, KeyboardInterrupt):
            say("what was computed so far is kept; the same command goes on from there.", style="yellow")
        raise


def _check_trials(context: typer.Context, folder: "RunFolder", resolve: Callable[[str], str]) -> None:
    """See that trials to go on from are of the same data and options; `resolve` says which kind `auto` is."""
    if not (folder.trials.exists() or folder.trials_outputs.exists()) or not folder.trials_options.exists():
        return
    earlier, now = read_yaml(folder.trials_options.read_text(encoding="utf-8")), used_options(context)
    earlier, now = ({**options, "kind": resolve(options["kind"])} for options in (earlier, now))
    free = FREE if now["method"] in ("grid", "halving") else (*FREE, "trials")  # more of a grid are others
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
        seen_all = [trial for trial in shown if trial.examples is None]
        ranked = sorted(seen_all, key=lambda trial: trial.scores[objective])[:SHOWN]
        taken = next(trial for trial in shown if trial.prior_precision == laplace.prior_precision)
        ranked = ranked if taken in ranked else [*ranked[:-1], taken]
        table = Table("", "τ", "N", title=f"Best {len(ranked)} of {len(shown)} trials")
        names = [name for name in ("nll", "ece", "brier", "accuracy", "rmse") if name in ranked[0].scores]
        for name in names:
            table.add_column(name, justify="right")
        for trial in ranked:
            cells = (f"{trial.scores[name]:.4f}" for name in names)
            mark = "*" if trial is taken else ""
            table.add_row(mark, f"{trial.prior_precision:.4g}", f"{trial.num_data:.4g}", *cells)
        record.console.print(table)
    how = "by evidence" if objective is None else f"by validation {objective}"
    chosen = laplace.prior_precision
    told = f"{chosen:.4g}" if isinstance(chosen, float) else ", ".join(f"{k}: {v:.4g}" for k, v in chosen.items())
    record.console.print(f"prior precision τ = {told}, {how}.", highlight=False)
    searched = objective is not None and any(trial.temperature != 1 for trial in shown)
    if searched:
        record.console.print(f"temperature T = {laplace.temperature:.4g}.", highlight=False)
    if laplace.tuning_note:
        record.note(laplace.tuning_note)
    assert laplace.num_data is not None
    record.result = TuneResult(
        method="evidence" if objective is None else "search",
        objective=objective,
        prior_precision=chosen,
        prior_precision_before=before,
        num_data=laplace.num_data,
        noise=laplace.noise,
        trials=[
            TriedPair(trial.num_data, trial.prior_precision, trial.scores, trial.temperature if searched else None)
            for trial in shown
            if trial.examples is None  # scores of a part cannot stand beside those of all data
        ],
        temperature=laplace.temperature if searched else None,
        plain_temperature=laplace.plain_trial.temperature if searched and laplace.plain_trial is not None else None,
    )


def _range(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise Mistake(f"--num-data must be two numbers as in 100,100000, got '{text}'.") from None
    return low, high
