"""`infoform evaluate`: how good a run's predictions are, beside those of the network alone."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infoform.cli.mistakes import Mistake
from infoform.cli.options import DataOptions, DataSpec, ModelOptions, Output, PredictOptions, Restart, Run, option
from infoform.cli.record import recorded
from infoform.records.evaluate import EvaluateResult, UnknownResult

if TYPE_CHECKING:
    from rich.console import Console


def evaluate(
    context: typer.Context,
    run: Run,
    data: DataSpec,
    *,
    unknown: Annotated[
        list[str] | None,
        option(
            "Data",
            "[NAME=]DATA",
            "Data unlike the training data: does the uncertainty notice? No labels needed; can be repeated.",
        ),
    ] = None,
    model: ModelOptions,
    options: DataOptions,
    prediction: PredictOptions,
    restart: Restart = False,
    output: Output,
) -> None:
    """Score the predictions on labelled data, beside the network's own.

    For classes: accuracy, NLL, Brier score and calibration error. For numbers: RMSE, log-likelihood, CRPS and coverage
    of intervals.

        infoform evaluate runs/a --data test.csv
        infoform evaluate runs/a --data test.csv --kind mc --samples 30

    With data of another kind, which need no labels, it also says how well novelty and the uncertainty tell them from
    DATA, and how many of either are called novel:

        infoform evaluate runs/b --data photos/test --unknown drawings
        infoform evaluate runs/b --data photos/test \\
            --unknown drawings=drawings/all --unknown noise=noise.npz
    """
    from infoform.cli.extremes import describe
    from infoform.cli.novel_examples import novel_examples, told_by_novelty
    from infoform.cli.partial import resumable
    from infoform.cli.run_folder import OpenRun
    from infoform.cli.scoring import score, tell_apart
    from infoform.cli.sources import check_options
    from infoform.cli.unknown_sets import named_sets, unknown_sets

    elsewhere = None if output.json in (None, "-") else Path(output.json)
    with recorded(context, output, folder=run if run.is_dir() else None, elsewhere=elsewhere) as record:
        opened = OpenRun.load(run, model, options)
        sets = named_sets(unknown or [])
        check_options(options, [data, *sets.values()])
        labelled = opened.read(data, labelled=True)
        strange = {name: opened.read(spec, labelled=False) for name, spec in sets.items()}
        likelihood = opened.laplace.likelihood
        how: dict[str, Any] = {**vars(prediction), "progress": record.progress}
        beside = elsewhere if record.read_only and elsewhere is not None else run / "evaluate.json"
        with resumable(context, beside, opened, record, restart=restart) as parts:
            predicted, targets = opened.laplace.predict_loader(labelled.loader, keep=parts.of("data"), **how)
            if targets is None:
                parts.forget()
                raise Mistake(f"scores need targets, and '{data}' gave none; give (input, target) batches.")
            chosen, note = describe(opened, labelled, predicted, targets)
            result = replace(
                score(
                    likelihood,
                    predicted,
                    targets,
                    noise=opened.laplace.noise,
                    temperature=opened.folder.plain_temperature(),
                ),
                chosen=chosen,
                kind=predicted.kind,
                reason=predicted.reason,
                novelty=novel_examples(predicted),
            )
            others, told = {}, []
            for name, one in strange.items():
                other, _ = opened.laplace.predict_loader(one.loader, keep=parts.of(f"unknown {name}"), **how)
                chosen, other_note = describe(opened, one, other, None)
                apart = tell_apart(likelihood, predicted, other)
                told.append(replace(apart, name=name, chosen=chosen, novelty=told_by_novelty(predicted, other)))
                others[name], note = other, note or other_note
            if told:
                result = replace(
                    result,
                    unknown=told[0],
                    more_unknown=told[1:] or None,
                    unknown_sets=unknown_sets(predicted, others),
                )
        record.result = result
        if note is not None:
            record.note(note)
        _show(result, record.console)


def _show(result: EvaluateResult, console: "Console") -> None:
    """Print the scores, and how well unknown examples are told from known ones."""
    from rich.table import Table

    columns = {"network alone": result.plain_scores}
    if result.temperature_scores is not None:
        columns[f"temperature alone\n(T = {result.plain_temperature:.3g})"] = result.temperature_scores
    columns["with posterior"] = result.scores
    table = Table("", *columns, title=f"{result.examples:,} examples")
    for column in table.columns[1:]:
        column.justify = "right"
    for name in result.scores:
        if name != "log_likelihood":  # the nll with another sign
            table.add_row(name.replace("_", " "), *(f"{scores[name]:.4f}" for scores in columns.values()))
    console.print(table)
    sure = None if result.confidences is None else result.confidences.sure
    if sure is not None and sure.right is not None:
        said = f"Of {sure.examples:,} predictions given with {sure.confidence:.0%} confidence or more"
        console.print(f"{said}, {sure.right:.1%} were right.")
    for unknown in result.every_unknown:
        _show_unknown(unknown, console)
    _show_alarms(result, console)


def _show_unknown(unknown: UnknownResult, console: "Console") -> None:
    """Print how well one set of unknown examples is told from known ones, by each score."""
    from rich.table import Table

    title = f"{unknown.examples:,} unknown examples" + (f" of {unknown.name}" if unknown.name else "")
    table = Table("unknown told from known by", title=title)
    for head in ("AUROC", "AUPR", "FPR at 95 %"):
        table.add_column(head, justify="right")
    labels = {
        "plain_entropy": "entropy, network alone",
        "entropy": "entropy",
        "mutual_information": "mutual information",
        "epistemic": "epistemic variance",
    }
    rows = {labels[name]: scores for name, scores in unknown.separations.items()}
    if (novelty := unknown.novelty) is not None:
        rows |= {"novelty": novelty.together} | {f"novelty: {name}": scores for name, scores in novelty.parts.items()}
    for name, scores in rows.items():
        table.add_row(name, f"{scores.auroc:.4f}", f"{scores.aupr:.4f}", f"{scores.fpr95:.4f}")
    console.print(table)


def _show_alarms(result: EvaluateResult, console: "Console") -> None:
    """Print how many known and unknown examples are called novel, where the posterior can tell it."""
    if result.novelty is None:
        return
    said = f"Novel at {result.novelty.false_alarms:.0%} false alarms: {result.novelty.share:.1%} of known examples"
    unknown = result.every_unknown
    for one in unknown:
        if one.novelty is not None:
            which = "unknown ones" if len(unknown) == 1 else str(one.name)
            said += f", {one.novelty.called.share:.1%} of {which}"
    console.print(f"{said}.")
