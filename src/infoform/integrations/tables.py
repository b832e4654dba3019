"""A prediction as a table: one row an example, for pandas or any program that reads columns."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from infoform.prediction import Prediction

if TYPE_CHECKING:
    from pandas import DataFrame

COVERAGE = 0.95  # of the intervals of a regression


def to_columns(
    prediction: Prediction,
    *,
    names: Sequence[str] | None = None,
    classes: Sequence[str] | None = None,
    coverage: float = COVERAGE,
) -> dict[str, list[Any]]:
    """Return `prediction.columns()` with the examples' and classes' names, and a regression's standard deviations.

    Columns of an output end with its class's name or, where there is none, its number.
    """
    width = prediction.value.shape[1]
    if classes is not None and len(classes) != width:
        raise ValueError(f"classes must name each of {width} outputs, got {len(classes)} names.")
    if names is not None and len(names) != len(prediction):
        raise ValueError(f"names must be one for each of {len(prediction)} examples, got {len(names)}.")
    table: dict[str, list[Any]] = {} if names is None else {"example": list(names)}
    plain = prediction.columns()
    if classes is not None and "label" in plain:
        table["class"] = [str(classes[label]) for label in plain["label"]]
    suffixes = [str(index) for index in range(width)] if classes is None else [str(name) for name in classes]
    renamed = {
        f"{quantity}_{index}": f"{quantity}_{suffixes[index]}" for quantity in _BY_OUTPUT for index in range(width)
    }
    table |= {renamed.get(name, name): values for name, values in plain.items()}
    if prediction.mean is not None:
        low, high = prediction.interval(coverage)
        for quantity, values in (("std", prediction.std), ("low", low), ("high", high)):
            table |= {f"{quantity}_{suffixes[index]}": column.tolist() for index, column in enumerate(values.T)}
    return table


def to_pandas(
    prediction: Prediction,
    *,
    names: Sequence[str] | None = None,
    classes: Sequence[str] | None = None,
    coverage: float = COVERAGE,
) -> "DataFrame":
    """Return the prediction as a data frame, one row an example; see `to_columns`."""
    try:
        import pandas
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "a data frame needs pandas, which is not installed: pip install 'infoform[tables]'."
        ) from None
    return pandas.DataFrame(to_columns(prediction, names=names, classes=classes, coverage=coverage))


_BY_OUTPUT = ("prob", "mean", "epistemic", "aleatoric")
