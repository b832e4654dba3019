"""A prediction as a table with one row for each example, for pandas or any program that reads columns."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from infoform.common.extras import needed_by
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
    """Return a prediction as columns, with the names of examples and classes.

    The columns are those of `prediction.columns()`. A column of one output ends with the name of its class or, without
    names, with its number. A regression has standard deviations and the ends of an interval too. A prediction with
    novelty has the columns `novelty`, `novel` (at 5 % of false alarms) and `strangest_layer`. At positions, tokens or
    pixels, there is a row for every one of them, with the columns `index` (of the example) and `position`.

    Args:
        prediction: The prediction.
        names: The names of the examples; if None, there is no column `example`.
        classes: The names of the outputs; if None, outputs have numbers.
        coverage: The share of targets that the interval of a regression should contain; the columns `low` and `high`.

    Returns:
        A list of values for each column.

    Raises:
        ValueError: If there are not as many names as examples, or not as many classes as outputs.

    Examples:
        >>> import torch, infoform
        >>> from infoform.integrations.tables import to_columns
        >>> laplace = infoform.Laplace(torch.nn.Linear(3, 2), "classification")
        >>> prediction = laplace.fit([torch.randn(8, 3)], progress=False).predict(torch.randn(5, 3))
        >>> list(to_columns(prediction, classes=["cat", "dog"]))[:2]
        ['class', 'label']
    """
    width = prediction.value.shape[-1]
    if classes is not None and len(classes) != width:
        raise ValueError(f"classes must name each of {width} outputs, got {len(classes)} names.")
    if names is not None and len(names) != len(prediction):
        raise ValueError(f"names must be one for each of {len(prediction)} examples, got {len(names)}.")
    plain = prediction.columns()
    if prediction.positions:  # a row for every position
        names = None if names is None else [names[index] for index in plain["index"]]
        prediction = prediction.as_rows()[0]
    table: dict[str, list[Any]] = {} if names is None else {"example": list(names)}
    if classes is not None and "label" in plain:
        table["class"] = [str(classes[label]) for label in plain["label"]]
    suffixes = [str(index) for index in range(width)] if classes is None else [str(name) for name in classes]
    renamed = {
        f"{quantity}_{index}": f"{quantity}_{suffixes[index]}" for quantity in _BY_OUTPUT for index in range(width)
    }
    table |= {renamed.get(name, name): values for name, values in plain.items()}
    if prediction.mean is not None:
        low, high = prediction.gaussian_interval(coverage)
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
    """Return a prediction as a data frame with one row for each example.

    Args:
        prediction: The prediction.
        names: The names of the examples; if None, there is no column `example`.
        classes: The names of the outputs; if None, outputs have numbers.
        coverage: The share of targets that the interval of a regression should contain.

    Returns:
        A `pandas.DataFrame` with the columns of `to_columns`.

    Raises:
        ModuleNotFoundError: If pandas is not installed.
        ValueError: If there are not as many names as examples, or not as many classes as outputs.

    Examples:
        >>> import torch, infoform
        >>> from infoform.integrations.tables import to_pandas
        >>> laplace = infoform.Laplace(torch.nn.Linear(3, 2), "classification")
        >>> prediction = laplace.fit([torch.randn(8, 3)], progress=False).predict(torch.randn(5, 3))
        >>> len(to_pandas(prediction, classes=["cat", "dog"]))
        5
    """
    with needed_by("a data frame needs"):
        import pandas
    return pandas.DataFrame(to_columns(prediction, names=names, classes=classes, coverage=coverage))


_BY_OUTPUT = ("prob", "mean", "epistemic", "aleatoric")
