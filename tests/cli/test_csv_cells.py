"""No text of a table is run by a spreadsheet that opens it, and numbers stay as they are."""

import csv
from pathlib import Path
from typing import Any

import pandas
import pytest
from trees import NETWORK
from typer.testing import Result

from infoform.cli.csv_cells import safe_cell


@pytest.mark.parametrize("text", ["=1+1", "+cmd", "-2+3", "@SUM(A1)", "\t=1", "\r=1"])
def test_text_that_is_a_formula_gets_an_apostrophe(text: str) -> None:
    assert safe_cell(text) == f"'{text}"


@pytest.mark.parametrize("value", ["ash", "", "-3.5", "+1e4", "-inf", -3.5, 0, None, "a=b"])
def test_all_else_stays_as_it_is(value: Any) -> None:
    assert safe_cell(value) is value


def test_a_class_called_like_a_formula_is_text_in_the_table_of_predictions(home: Path, succeed: Any) -> None:
    frame = pandas.read_csv("trees.csv")
    frame["tree"] = frame["tree"].replace({"ash": "=1+1", "birch": "=1+1"})
    frame.loc[:8, "tree"] = ["=1+1", "@b", "cedar"] * 3
    frame.to_csv("formulas.csv", index=False)
    data = ("--data", "formulas.csv", "--target", "tree", "--ignore", "id,class,height")
    result: Result = succeed("fit", "run", *NETWORK, *data, "--quiet")
    assert result.exit_code == 0
    succeed("predict", "run", "--data", "unlabelled.csv", "--quiet")
    with Path("run/predict.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert {"prob_=1+1", "prob_@b", "prob_cedar"} <= set(rows[0])  # which begin with a letter
    assert {row[rows[0].index("class")] for row in rows[1:]} <= {"'=1+1", "'@b", "cedar"}
    assert not any(cell.startswith(("=", "@", "+")) for row in rows for cell in row)
