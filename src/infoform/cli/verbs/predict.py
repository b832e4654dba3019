"""`infoform predict`: predictions of a run for new data, as a table with their uncertainties."""

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infoform.cli.mistakes import Mistake
from infoform.cli.options import DataOptions, DataSpec, ModelOptions, Output, PredictOptions, Restart, Run, option
from infoform.cli.record import recorded
from infoform.records.evaluate import Histogram
from infoform.records.novelty import NovelExamples
from infoform.records.predict import PredictedClasses, PredictedNumbers, PredictResult

if TYPE_CHECKING:
    from rich.console import Console

    from infoform.prediction import Prediction

FORMATS = (".csv", ".parquet")
SHOWN = 10  # rows on the screen


def predict(
    context: typer.Context,
    run: Run,
    data: DataSpec,
    *,
    out: Annotated[
        Path | None,
        option("Output", "FILE", "Table to write, .csv or .parquet. Default: RUN/predict.csv.", "--out", "-o"),
    ] = None,
    model: ModelOptions,
    options: DataOptions,
    prediction: PredictOptions,
    restart: Restart = False,
    output: Output,
) -> None:
    """Predict, with uncertainties.

    It writes a table with one row for each example. The columns: the class and its confidence, or mean, standard
    deviation and 95 % interval; the uncertainty that more data would reduce (epistemic, mutual_information) and the
    one that no data would (aleatoric); the entropy; and the novelty (how unlike the training data the input is, from 0
    to 1), whether that is novel at 5 % of false alarms, and the layer that finds it strangest.

    A command that was interrupted or killed continues where it stopped when you run it again. Examples:

        infoform predict runs/a --data new.csv
        infoform predict runs/a --data photos/new --out predictions.parquet
        infoform predict runs/a --data new.npz --kind mc --samples 30
    """
    from infoform.cli.extremes import describe
    from infoform.cli.novel_examples import novel_examples
    from infoform.cli.partial import resumable
    from infoform.cli.run_folder import OpenRun
    from infoform.integrations.tables import to_columns

    target = run / "predict.csv" if out is None else out
    if target.suffix not in FORMATS:
        raise Mistake(f"--out must end with {' or '.join(FORMATS)}, got '{target}'.")
    if not target.resolve().parent.is_dir():
        raise Mistake(f"there is no folder '{target.parent}' for --out; make it first.")
    with recorded(context, output, folder=run if run.is_dir() else None) as record:
        opened = OpenRun.load(run, model, options)
        new = opened.read(data, labelled=False)
        with resumable(context, target, opened, restart=restart) as parts:
            predicted, _ = opened.laplace.predict_loader(
                new.loader, keep=parts.of("data"), progress=record.progress, **vars(prediction)
            )
            names = new.names or [str(index) for index in range(len(predicted))]
            columns = to_columns(predicted, names=names, classes=opened.classes)
            chosen, note = describe(opened, new, predicted, None)
            write_columns(target, columns)
        record.written.append(target)
        novelty = novel_examples(predicted)
        _show(columns, predicted, record.console)
        if novelty is not None:
            record.console.print(_said_of(novelty, len(predicted)))
        record.result = PredictResult(
            examples=len(predicted),
            predictions=str(target.resolve()),
            columns=list(columns),
            mean_entropy=float(predicted.entropy.mean()),
            mean_confidence=None if predicted.probs is None else float(predicted.confidence.mean()),
            classes=None if predicted.probs is None else _classes(predicted, opened.classes),
            numbers=_numbers(predicted) if predicted.probs is None else None,
            chosen=chosen,
            kind=predicted.kind,
            reason=predicted.reason,
            novelty=novelty,
        )
        if note is not None:
            record.note(note)


def _said_of(novelty: NovelExamples, examples: int) -> str:
    """Return how many examples are novel, in a sentence."""
    said = f"{novelty.novel:,} of {examples:,} are novel ({novelty.share:.1%}; of known ones about "
    said += f"{novelty.false_alarms:.0%})"
    if novelty.strangest_layers:
        layer, count = novelty.strangest_layers[0]
        said += f"; layer '{layer}' finds {count:,} of them strangest"
    return f"{said}."


def _numbers(predicted: "Prediction") -> PredictedNumbers:
    """Return how wide the predictions are."""
    return PredictedNumbers(predicted.std.mean(0).tolist(), predicted.epistemic.sqrt().mean(0).tolist())


def _classes(predicted: "Prediction", classes: list[str] | None) -> PredictedClasses:
    """Return how often each class is predicted, and with which confidence."""
    import torch

    assert predicted.probs is not None
    counted = torch.bincount(predicted.labels.cpu(), minlength=predicted.probs.shape[1]).tolist()
    names = classes or [str(index) for index in range(len(counted))]
    confidence = torch.histogram(predicted.confidence.double().cpu().clamp(0, 1), 20, range=(0.0, 1.0))
    histogram = Histogram(confidence.bin_edges.tolist(), confidence.hist.long().tolist())
    return PredictedClasses(list(zip(names, counted, strict=True)), histogram)


def write_columns(path: Path, columns: dict[str, list[Any]]) -> None:
    """Write a table, a CSV with nothing but Python, a Parquet with pandas."""
    try:
        if path.suffix == ".csv":
            with path.open("w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file)
                writer.writerow(columns)
                writer.writerows(zip(*columns.values(), strict=True))
            return
        try:
            import pandas

            pandas.DataFrame(columns).to_parquet(path)
        except ImportError:
            raise Mistake("a .parquet needs pandas and pyarrow: pip install 'infoform[tables]', or use .csv.") from None
    except OSError as error:
        raise Mistake(f"'{path}' cannot be written: {error.strerror or error}; give another path.") from error


def _show(columns: dict[str, list[Any]], predicted: "Prediction", console: "Console") -> None:
    from rich.table import Table

    if predicted.probs is None:
        picked = [name for name in columns if name.partition("_")[0] in ("mean", "std", "low", "high")][:8]
    else:
        picked = ["class" if "class" in columns else "label", "confidence", "entropy", "mutual_information"]
    picked += [name for name in ("novelty",) if name in columns]
    order = predicted.mutual_information.argsort(descending=True, stable=True)[:SHOWN].tolist()
    table = Table("example", title=f"The least known {len(order)} of {len(predicted)}")
    for name in picked:
        table.add_column(name.replace("_", " "), justify="right")
    for index in order:
        cells = (columns[name][index] for name in picked)
        table.add_row(columns["example"][index], *(f"{x:.4g}" if isinstance(x, float) else str(x) for x in cells))
    console.print(table)
