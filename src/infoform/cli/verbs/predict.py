"""`infoform predict`: predictions of a run for new data, as a table with their uncertainties."""

import csv
import io
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infoform.cli.csv_cells import safe_cell
from infoform.cli.mistakes import Mistake
from infoform.cli.options import (
    DataOptions,
    DataSpec,
    ModelOptions,
    Output,
    PredictOptions,
    Restart,
    Run,
    check_share,
    option,
)
from infoform.cli.record import recorded
from infoform.common.extras import describe_missing
from infoform.common.whole_files import write_text, writing
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
    level: Annotated[
        float,
        option(
            "Prediction", "SHARE", "Share of targets that the interval of a regression holds.", callback=check_share
        ),
    ] = 0.95,
    reject: Annotated[
        float | None,
        option(
            "Prediction",
            "SHARE",
            "Mark inputs to set aside, at a threshold that sets aside this share of --known data (or by novelty).",
            callback=check_share,
        ),
    ] = None,
    known: Annotated[
        str | None, option("Data", "DATA", "Known data, without labels, that --reject finds its threshold on.")
    ] = None,
    model: ModelOptions,
    options: DataOptions,
    prediction: PredictOptions,
    restart: Restart = False,
    output: Output,
) -> None:
    """Predict, with uncertainties.

    It writes a table with one row for each example. The columns: the class and its confidence, or mean, standard
    deviation and interval; the uncertainty that more data would reduce (epistemic, mutual_information_nats) and the one
    that no data would (aleatoric); the entropy in nats; and the novelty (how unlike the training data the input is,
    from 0 to 1), whether that is novel at 5 % of false alarms, and the layer that finds it strangest.

    A command that was interrupted or killed continues where it stopped when you run it again. Examples:

        infoform predict runs/a --data new.csv
        infoform predict runs/a --data photos/new --out predictions.parquet
        infoform predict runs/a --data new.npz --kind mc --samples 30

    A column `reject` marks inputs that a person should look at. Its threshold sets aside 5 % of known data:

        infoform predict runs/a --data new.csv --reject 0.05 --known val.csv
    """
    from infoform.cli.extremes import describe
    from infoform.cli.novel_examples import novel_examples
    from infoform.cli.partial import resumable
    from infoform.cli.rejection import rejected
    from infoform.cli.run_folder import OpenRun
    from infoform.cli.sources import check_options
    from infoform.integrations.tables import to_columns

    target = run / "predict.csv" if out is None else out
    if target.suffix not in FORMATS:
        raise Mistake(f"--out must end with {' or '.join(FORMATS)}, got '{target}'.")
    missing = [name for name in ("pandas", "pyarrow") if target.suffix == ".parquet" and find_spec(name) is None]
    if missing:  # told before the work, and not after it
        raise Mistake(f"'{target}' needs {describe_missing(missing[0])}")
    if not target.resolve().parent.is_dir():
        raise Mistake(f"there is no folder '{target.parent}' for --out; make it first.")
    with recorded(context, output, folder=run if run.is_dir() else None, elsewhere=out) as record:
        opened = OpenRun.load(run, model, options)
        check_options(options, [data])
        new = opened.read(data, labelled=False)
        with resumable(context, target, opened, record, restart=restart) as parts:
            predicted, _ = opened.laplace.predict_loader(
                new.loader, keep=parts.of("data"), progress=record.progress, **vars(prediction)
            )
            names = new.names or [str(index) for index in range(len(predicted))]
            outputs = opened.classes or opened.facts.targets
            columns = to_columns(predicted, names=names, classes=outputs, coverage=level)
            columns = _with_ignored(columns, {name: _by_row(predicted, one) for name, one in new.ignored.items()})
            if reject is not None:
                compared = None
                if known is not None:
                    compared, _ = opened.laplace.predict_loader(
                        opened.read(known, labelled=False).loader, progress=record.progress, **vars(prediction)
                    )
                chosen_rows, said = rejected(predicted, compared, reject)
                columns["reject"] = list(_by_row(predicted, chosen_rows))
                record.console.print(said)
            chosen, note = describe(opened, new, predicted, None)
            write_columns(record.stage(target), columns)
        record.written.append(target)
        novelty = novel_examples(predicted)
        rows = predicted.as_rows()[0] if predicted.positions else predicted
        _show(columns, rows, record.console)
        if novelty is not None:
            record.console.print(_said_of(novelty, len(predicted), predicted.novelty_source))
        record.result = PredictResult(
            examples=len(predicted),
            predictions=str(target.resolve()),
            columns=list(columns),
            mean_entropy=float(rows.entropy.mean()),
            mean_confidence=None if rows.probs is None else float(rows.confidence.mean()),
            classes=None if rows.probs is None else _classes(rows, opened.classes),
            numbers=_numbers(rows) if rows.probs is None else None,
            chosen=chosen,
            kind=predicted.kind,
            reason=predicted.reason,
            novelty=novelty,
        )
        if note is not None:
            record.note(note)


def _by_row(predicted: "Prediction", values: Sequence[Any]) -> Sequence[Any]:
    """Return values of examples, once for every position that the table has."""
    if not predicted.positions:
        return values
    return [values[index] for index in predicted.columns()["index"]]


def _with_ignored(columns: dict[str, list[Any]], ignored: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    """Return the columns with those that the network does not take, as ids, after the names of the examples."""
    own = {f"{name}_in_data" if name in columns else name: list(values) for name, values in ignored.items()}
    return {"example": columns["example"], **own, **{name: one for name, one in columns.items() if name != "example"}}


def _said_of(novelty: NovelExamples, examples: int, source: str) -> str:
    """Return how many examples are novel, in a sentence, and in another one where the scale is that of training."""
    from infoform.novelty.known_inputs import LEFT_OUT

    said = f"{novelty.novel:,} of {examples:,} are novel ({novelty.share:.1%}; of known ones about "
    said += f"{novelty.false_alarms:.0%})"
    if novelty.strangest_layers:
        layer, count = novelty.strangest_layers[0]
        said += f"; layer '{layer}' finds {count:,} of them strangest"
    if source == LEFT_OUT:
        said += ". The scale is of training examples, so fresh known ones look stranger; `infoform tune` sets it"
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
    if path.suffix == ".csv":
        text = io.StringIO(newline="")
        writer = csv.writer(text)
        writer.writerow(map(safe_cell, columns))
        writer.writerows(map(safe_cell, row) for row in zip(*columns.values(), strict=True))
        write_text(path, text.getvalue())
        return
    import pandas

    table = pandas.DataFrame(columns)
    with writing(path) as file:
        table.to_parquet(file)


def _show(columns: dict[str, list[Any]], predicted: "Prediction", console: "Console") -> None:
    from rich.table import Table

    if predicted.probs is None:
        picked = [name for name in columns if name.partition("_")[0] in ("mean", "std", "low", "high")][:8]
    else:
        picked = ["class" if "class" in columns else "label", "confidence", "entropy_nats", "mutual_information_nats"]
    picked += [name for name in ("novelty",) if name in columns]
    order = predicted.mutual_information.argsort(descending=True, stable=True)[:SHOWN].tolist()
    units = "" if predicted.probs is None else " (entropies in nats)"
    table = Table("example", title=f"The least known {len(order)} of {len(predicted)}{units}")
    for name in picked:
        table.add_column(name.removesuffix("_nats").replace("_", " "), justify="right")
    for index in order:
        cells = (columns[name][index] for name in picked)
        table.add_row(columns["example"][index], *(f"{x:.4g}" if isinstance(x, float) else str(x) for x in cells))
    console.print(table)
