"""A table, CSV or Parquet: one row an example, one column a target, all others numbers that the network takes in."""

import csv
import gzip
import warnings
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from infoform.cli.mistakes import Mistake
from infoform.cli.sources.base import Data, Reading, class_indices, split_names, tensor_loader
from infoform.cli.sources.standardise import standardise
from infoform.common.extras import describe_missing
from infoform.records.fit import DataFacts

if TYPE_CHECKING:
    from pandas import DataFrame, Series

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}
SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet", ".pq")
OPTIONS = frozenset({"target", "ignore", "classes", "divide_by", "image_mean", "image_std", "batch_size"})


def takes(spec: str) -> bool:
    return spec.lower().endswith(SUFFIXES)


def read(spec: str, reading: Reading) -> Data:
    frame = _frame(spec)
    options = reading.options
    targets = split_names(options.target)
    if reading.labelled and not targets:
        raise Mistake(f"which column of '{spec}' is the target? Give --target; it has {_listed(frame.columns)}.")
    missing = [name for name in targets if name not in frame.columns]
    if missing and reading.labelled:
        raise Mistake(f"'{spec}' has no column '{missing[0]}', which --target names; it has {_listed(frame.columns)}.")
    ignored = split_names(options.ignore)
    columns = reading.facts.columns
    if columns is None:
        absent = [name for name in ignored if name not in frame.columns]
        if absent:
            raise Mistake(
                f"'{spec}' has no column '{absent[0]}', which --ignore names; it has {_listed(frame.columns)}."
            )
        columns = [str(name) for name in frame.columns if name not in (*targets, *ignored)]
    absent = [name for name in columns if name not in frame.columns]
    if absent:
        raise Mistake(f"'{spec}' has no column '{absent[0]}', which the posterior was fitted with; add it.")
    if not columns:
        raise Mistake(f"'{spec}' has no columns besides the target, and the network needs inputs; check --ignore.")
    if reading.facts.columns is None:
        _check_not_words(frame, columns, spec, ignored)
    inputs = torch.stack([_numbers(frame[name], spec, "drop it with --ignore, or") for name in columns], dim=1)
    inputs = standardise(inputs, options)
    labels, classes = None, reading.classes
    if targets and not missing:
        labels, classes = _targets(frame, targets, spec, reading)
    facts = DataFacts(columns=columns, classes=classes, targets=None if reading.likelihood.one_of_many else targets)
    rest = {name: frame[name].tolist() for name in ignored if name in frame.columns}
    loader = tensor_loader(inputs.to(reading.dtype), labels, reading.batch_size)
    return Data(loader, len(frame), [f"row {index}" for index in range(len(frame))], facts, rest)


def _targets(frame: "DataFrame", names: list[str], spec: str, reading: Reading) -> tuple[Tensor, list[str] | None]:
    """Return the targets as the likelihood takes them, and the names of the classes where the targets are names."""
    if not reading.likelihood.one_of_many:
        values = torch.stack([_numbers(frame[name], spec, "") for name in names], dim=1)
        return values.to(reading.dtype), None
    if len(names) > 1:
        raise Mistake(f"a classifier has one target column, got {', '.join(names)}; use --likelihood multilabel.")
    column = frame[names[0]]
    if column.isna().any():
        raise Mistake(
            f"'{spec}' has no value in column '{names[0]}', row {int(column.isna().argmax())}; remove the row."
        )
    if column.dtype.kind in "iubf" and reading.classes is None:
        numbers = torch.tensor(column.to_numpy(dtype="float64"))
        if not bool((numbers == numbers.round()).all()):
            raise Mistake(
                f"the target '{names[0]}' of '{spec}' has the value {float(numbers[numbers != numbers.round()][0]):g}, "
                "and classes are whole numbers or names; use --likelihood regression for numbers."
            )
        return numbers.long(), None
    labels = [_label(value) for value in column]
    classes = reading.classes or sorted(set(labels))
    return class_indices(labels, classes, f"column '{names[0]}' of '{spec}'"), classes


def _numbers(column: "Series[Any]", spec: str, remedy: str) -> Tensor:  # (N,)
    if column.dtype.kind not in "iubf":
        row = _first_without_number(column)
        raise Mistake(
            f"column '{column.name}' of '{spec}' must hold numbers, got {column.iloc[row]!r} in row {row}; "
            f"{remedy} encode it."
        )
    values = torch.tensor(column.to_numpy(dtype="float64"))
    bad = ~values.isfinite()
    if bool(bad.any()):
        row = int(bad.nonzero()[0])
        raise Mistake(
            f"column '{column.name}' of '{spec}' must be finite, and {int(bad.sum())} of {len(values)} values are not "
            f"(the first in row {row}); remove those rows, or fill them in."
        )
    return values


def _check_not_words(frame: "DataFrame", columns: list[str], spec: str, ignored: list[str]) -> None:
    """Raise if several columns hold words in every row: all are named at once, and the option that drops them."""
    words = [name for name in columns if not _has_number(frame[name])]
    if len(words) > 1:
        example = frame[words[0]].iloc[0]
        raise Mistake(
            f"columns of '{spec}' must hold numbers, and {len(words)} hold none: {_listed(words)} ({words[0]} is "
            f"{example!r} in row 0); drop them with --ignore {quote(','.join([*ignored, *words]))}, or encode them."
        )


def _has_number(column: "Series[Any]") -> bool:
    import pandas

    return column.dtype.kind in "iubf" or bool(pandas.to_numeric(column, errors="coerce").notna().any())


def _first_without_number(column: "Series[Any]") -> int:
    """Return the row of the first cell that is neither empty nor a number as tables write it (Python reads 1_000)."""
    import pandas

    if column.dtype.kind not in "OU":
        return 0
    bad = pandas.to_numeric(column, errors="coerce").isna() & column.notna()
    return int(bad.to_numpy(dtype=bool).argmax())


def _label(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _frame(spec: str) -> "DataFrame":
    try:
        import pandas
    except ModuleNotFoundError:
        raise Mistake("reading tables needs pandas, which is not installed: pip install 'infoform[tables]'.") from None
    if not Path(spec).is_file():
        raise Mistake(f"there is no file '{spec}' to read data from; check the path.")
    is_parquet, sep = spec.lower().endswith((".parquet", ".pq")), "\t" if ".tsv" in spec.lower() else ","
    try:
        if is_parquet:
            frame = pandas.read_parquet(spec)
            names = frame.columns.to_series().map(str)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("error", pandas.errors.ParserWarning)  # values without a name would be left out
                frame = pandas.read_csv(spec, sep=sep, index_col=False)
                # as they stand in the file: pandas calls the second `a` of a header `a.1`
                names = (
                    pandas.read_csv(spec, sep=sep, index_col=False, header=None, nrows=1, dtype=str).iloc[0].dropna()
                )
    except ImportError as error:
        raise Mistake(f"reading '{spec}' needs {describe_missing('pyarrow')}") from error
    except UnicodeError as error:
        raise Mistake(f"'{spec}' is not in UTF-8 ({error}); save it again in that encoding.") from error
    except pandas.errors.ParserWarning as error:
        _check_separator(spec, sep)
        raise Mistake(
            f"the rows of '{spec}' have more values than the header has names, so that no value has a sure name; name "
            "every column, or remove the values without a name."
        ) from error
    except Exception as error:
        raise Mistake(f"'{spec}' cannot be read as a table: {' '.join(str(error).split())}.") from error
    if not is_parquet and frame.shape[1] == 1:
        _check_separator(spec, sep)
    if len(frame) == 0:
        raise Mistake(f"'{spec}' has no rows; a table needs at least one.")
    if not is_parquet and frame.iloc[:, -1].isna().any():
        _check_lengths(spec, sep, len(names))
    if names.duplicated().any():
        raise Mistake(
            f"'{spec}' has more than one column '{names[names.duplicated()].iloc[0]}', so that the name does not say "
            "which is meant; give every column a name of its own."
        )
    frame.columns = frame.columns.map(str)
    return frame


def _check_separator(spec: str, sep: str) -> None:
    """Raise if the header looks as if it were separated by something else, as spreadsheets write it in Europe."""
    opened = gzip.open if spec.lower().endswith(".gz") else open
    with opened(spec, "rt", encoding="utf-8-sig") as file:
        header = file.readline()
    other = next((one for one in SEPARATORS if header.count(one) > header.count(sep)), None)
    if other is not None:
        raise Mistake(
            f"'{spec}' must be separated by {SEPARATORS[sep]}, and its header is by {SEPARATORS[other]}; save it again "
            "as a CSV with commas, and with points in decimal numbers."
        )


def _check_lengths(spec: str, sep: str, count: int) -> None:
    """Raise if a row has fewer values than the header names: pandas takes them for the first columns."""
    opened = gzip.open if spec.lower().endswith(".gz") else open
    with opened(spec, "rt", encoding="utf-8-sig", newline="") as file:
        try:
            lengths = [len(row) for row in csv.reader(file, delimiter=sep) if row][1:]
        except csv.Error as error:
            raise Mistake(f"'{spec}' cannot be read as a table: {error}.") from error
    short = next((row for row, length in enumerate(lengths) if length < count), None)
    if short is not None:
        raise Mistake(
            f"row {short} of '{spec}' has {lengths[short]} values and the header {count} names, so that no value has a "
            "sure name; write an empty value between two separators, or remove the row."
        )


def _listed(names: Any) -> str:
    shown = [str(name) for name in names]
    return ", ".join(shown[:10]) + (", ..." if len(shown) > 10 else "")
