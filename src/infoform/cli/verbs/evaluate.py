"""`infoform evaluate`: how good a run's predictions are beside the network's own, and whether they know it."""

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infoform.cli.mistakes import Mistake
from infoform.cli.options import DataOptions, DataSpec, ModelOptions, Output, PredictOptions, Run
from infoform.cli.record import Record, recorded

if TYPE_CHECKING:
    from torch import Tensor

    from infoform.cli.run_folder import OpenRun
    from infoform.cli.sources import Data
    from infoform.prediction import Prediction

EXTREMES = 8  # most and least certain examples in the JSON
SURE = 0.9


def evaluate(
    context: typer.Context,
    run: Run,
    data: DataSpec,
    *,
    unknown: Annotated[
        str | None,
        typer.Option(
            metavar="DATA",
            help="Data unlike the training data, to be told apart by the uncertainty.",
            rich_help_panel="Data",
        ),
    ] = None,
    model: ModelOptions,
    options: DataOptions,
    prediction: PredictOptions,
    output: Output,
) -> None:
    """Score predictions on labelled data, beside the network's own.

    Accuracy, NLL, Brier score and calibration error, or RMSE, log-likelihood, CRPS and coverage of intervals:

        infoform evaluate runs/a --data test.csv
        infoform evaluate runs/a --data test.csv --kind mc --samples 30

    With data of another kind (no labels needed), how well the entropy tells them apart:

        infoform evaluate runs/b --data photos/test --unknown drawings
    """
    from infoform.cli.run_folder import OpenRun

    with recorded(context, output, folder=run if run.is_dir() else None) as record:
        opened = OpenRun.load(run, model, options)
        found = opened.read(data, labelled=True)
        strange = None if unknown is None else opened.read(unknown, labelled=False)
        how: dict[str, Any] = {
            "kind": prediction.kind,
            "samples": prediction.samples,
            "link": prediction.link,
            "seed": prediction.seed,
            "progress": record.progress,
        }
        predicted, targets = opened.laplace.predict_loader(found.loader, **how)
        if targets is None:
            raise Mistake(f"scores need targets, and '{data}' gave none; give (input, target) batches.")
        record.result = _score(opened, predicted, targets, found)
        if strange is not None:
            other, _ = opened.laplace.predict_loader(strange.loader, **how)
            record.result["unknown"] = _tell_apart(opened, predicted, other)
        _show(record)


def _score(run: "OpenRun", predicted: "Prediction", targets: "Tensor", data: "Data") -> dict[str, Any]:
    from infoform.metrics import entropy_histogram, reliability
    from infoform.metrics import evaluate as measure

    plain = plain_prediction(run, predicted)
    result: dict[str, Any] = {
        "examples": len(predicted),
        "scores": measure(predicted, targets),
        "plain_scores": measure(plain, targets),
    }
    if predicted.probs is not None and plain.probs is not None:
        for name, one in (("reliability", predicted), ("plain_reliability", plain)):
            assert one.probs is not None
            result[name] = reliability(one.probs, targets)
        result["entropy_histogram"] = entropy_histogram(predicted.normalised_entropy)
        if targets.dim() == 1:
            right = (predicted.labels == targets.to(predicted.labels.device)).cpu()
            sure = (predicted.confidence >= SURE).cpu()
            share = float(right[sure].double().mean()) if bool(sure.any()) else None
            result["sure"] = {"confidence": SURE, "examples": int(sure.sum()), "right": share}
    order = predicted.entropy.argsort(descending=True, stable=True).tolist()
    shown = {"least_certain": order[:EXTREMES], "most_certain": order[::-1][:EXTREMES]}
    result |= {
        name: [{"index": i, "example": data.name(i), "entropy": float(predicted.entropy[i])} for i in indices]
        for name, indices in shown.items()
    }
    return result


def plain_prediction(run: "OpenRun", predicted: "Prediction") -> "Prediction":
    """Return what the trained network says by itself: its own probabilities, or its mean with the fitted noise."""
    import torch

    none = torch.zeros_like(predicted.epistemic)
    if predicted.probs is None:
        return replace(predicted, mean=predicted.plain, epistemic=none, samples=None)
    one_of_many = run.laplace.likelihood.name == "classification"
    probs = predicted.plain.softmax(1) if one_of_many else predicted.plain.sigmoid()
    entropies: Tensor = torch.special.entr(probs)
    if not one_of_many:
        entropies = entropies + torch.special.entr(1 - probs)
    entropy = entropies.sum(1).clamp_max(predicted.max_entropy if math.isfinite(predicted.max_entropy) else math.inf)
    return replace(predicted, probs=probs, epistemic=none, aleatoric=probs * (1 - probs), entropy=entropy, samples=None)


def _tell_apart(run: "OpenRun", known: "Prediction", unknown: "Prediction") -> dict[str, Any]:
    from infoform.metrics import entropy_histogram, ood

    found: dict[str, Any] = {"examples": len(unknown)}
    if known.probs is None:
        found["epistemic"] = ood(known.epistemic.sum(1), unknown.epistemic.sum(1))
        return found
    plain_known, plain_unknown = plain_prediction(run, known), plain_prediction(run, unknown)
    found["entropy"] = ood(known.entropy, unknown.entropy)
    found["mutual_information"] = ood(known.mutual_information, unknown.mutual_information)
    found["plain_entropy"] = ood(plain_known.entropy, plain_unknown.entropy)
    found["entropy_histogram"] = entropy_histogram(unknown.normalised_entropy)
    return found


def _show(record: Record) -> None:
    from rich.table import Table

    result = record.result
    table = Table("", "network alone", "with posterior", title=f"{result['examples']:,} examples")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, value in result["scores"].items():
        table.add_row(name.replace("_", " "), f"{result['plain_scores'][name]:.4f}", f"{value:.4f}")
    record.console.print(table)
    sure = result.get("sure")
    if sure is not None and sure["right"] is not None:
        said = f"Of {sure['examples']:,} predictions given with {SURE:.0%} confidence or more"
        record.console.print(f"{said}, {sure['right']:.1%} were right.")
    if "unknown" not in result:
        return
    table = Table("unknown told from known by", title=f"{result['unknown']['examples']:,} unknown examples")
    for head in ("AUROC", "AUPR", "FPR at 95 %"):
        table.add_column(head, justify="right")
    labels = {
        "plain_entropy": "entropy, network alone",
        "entropy": "entropy",
        "mutual_information": "mutual information",
        "epistemic": "epistemic variance",
    }
    for key, label in labels.items():
        if key in result["unknown"]:
            scores = result["unknown"][key]
            table.add_row(label, *(f"{scores[name]:.4f}" for name in ("auroc", "aupr", "fpr95")))
    record.console.print(table)
