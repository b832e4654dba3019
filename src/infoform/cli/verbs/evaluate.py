"""`infoform evaluate`: how good a run's predictions are, beside those of the network alone."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infoform.cli.mistakes import Mistake
from infoform.cli.options import DataOptions, DataSpec, ModelOptions, Output, PredictOptions, Restart, Run, option
from infoform.cli.record import recorded
from infoform.records.evaluate import EvaluateResult

if TYPE_CHECKING:
    from rich.console import Console


def evaluate(
    context: typer.Context,
    run: Run,
    data: DataSpec,
    *,
    unknown: Annotated[
        str | None,
        option("Data", "DATA", "Data unlike the training data: does the uncertainty notice? No labels needed."),
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
    """
    from infoform.cli.extremes import describe
    from infoform.cli.novel_examples import novel_examples, told_by_novelty
    from infoform.cli.partial import resumable
    from infoform.cli.run_folder import OpenRun
    from infoform.cli.scoring import score, tell_apart
    from infoform.cli.unknown_sets import unknown_sets

    with recorded(context, output, folder=run if run.is_dir() else None) as record:
        opened = OpenRun.load(run, model, options)
        labelled = opened.read(data, labelled=True)
        strange = None if unknown is None else opened.read(unknown, labelled=False)
        likelihood = opened.laplace.likelihood
        how: dict[str, Any] = {**vars(prediction), "progress": record.progress}
        with resumable(context, run / "evaluate.json", opened, restart=restart) as parts:
            predicted, targets = opened.laplace.predict_loader(labelled.loader, keep=parts.of("data"), **how)
            if targets is None:
                parts.forget()
                raise Mistake(f"scores need targets, and '{data}' gave none; give (input, target) batches.")
            chosen, note = describe(opened, labelled, predicted, targets)
            result = replace(
                score(likelihood, predicted, targets, noise=opened.laplace.noise),
                chosen=chosen,
                kind=predicted.kind,
                reason=predicted.reason,
                novelty=novel_examples(predicted),
            )
            if strange is not None:
                other, _ = opened.laplace.predict_loader(strange.loader, keep=parts.of("unknown"), **how)
                chosen, other_note = describe(opened, strange, other, None)
                novelty = told_by_novelty(predicted, other)
                apart = replace(tell_apart(likelihood, predicted, other), chosen=chosen, novelty=novelty)
                sets = unknown_sets(predicted, {str(unknown): other})
                result, note = replace(result, unknown=apart, unknown_sets=sets), note or other_note
        record.result = result
        if note is not None:
            record.note(note)
        _show(result, record.console)


def _show(result: EvaluateResult, console: "Console") -> None:
    """Print the scores, and how well unknown examples are told from known ones."""
    from rich.table import Table

    table = Table("", "network alone", "with posterior", title=f"{result.examples:,} examples")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, value in result.scores.items():
        table.add_row(name.replace("_", " "), f"{result.plain_scores[name]:.4f}", f"{value:.4f}")
    console.print(table)
    sure = None if result.confidences is None else result.confidences.sure
    if sure is not None and sure.right is not None:
        said = f"Of {sure.examples:,} predictions given with {sure.confidence:.0%} confidence or more"
        console.print(f"{said}, {sure.right:.1%} were right.")
    if result.unknown is None:
        _show_alarms(result, console)
        return
    table = Table("unknown told from known by", title=f"{result.unknown.examples:,} unknown examples")
    for head in ("AUROC", "AUPR", "FPR at 95 %"):
        table.add_column(head, justify="right")
    labels = {
        "plain_entropy": "entropy, network alone",
        "entropy": "entropy",
        "mutual_information": "mutual information",
        "epistemic": "epistemic variance",
    }
    rows = {labels[name]: scores for name, scores in result.unknown.separations.items()}
    if (novelty := result.unknown.novelty) is not None:
        rows |= {"novelty": novelty.together} | {f"novelty: {name}": scores for name, scores in novelty.parts.items()}
    for name, scores in rows.items():
        table.add_row(name, f"{scores.auroc:.4f}", f"{scores.aupr:.4f}", f"{scores.fpr95:.4f}")
    console.print(table)
    _show_alarms(result, console)


def _show_alarms(result: EvaluateResult, console: "Console") -> None:
    """Print how many known and unknown examples are called novel, where the posterior can tell it."""
    if result.novelty is None:
        return
    said = f"Novel at {result.novelty.false_alarms:.0%} false alarms: {result.novelty.share:.1%} of known examples"
    if result.unknown is not None and result.unknown.novelty is not None:
        said += f", {result.unknown.novelty.called.share:.1%} of unknown ones"
    console.print(f"{said}.")
