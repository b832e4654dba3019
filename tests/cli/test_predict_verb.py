"""`infoform predict` writes the library's predictions, whatever the order of the columns."""

import csv
from collections.abc import Callable
from pathlib import Path

import pandas
import pytest
import torch
from trees import HEIGHTS, NAMES, read
from typer.testing import Result

import infoform
from infoform.cli.model_source import build_model, load_weights

Call = Callable[..., Result]
Fail = Callable[..., str]


def _inputs() -> torch.Tensor:
    return torch.tensor(pandas.read_csv("trees.csv")[["a", "b", "c"]].to_numpy(), dtype=torch.float32)


def test_a_table_of_classes(fitted: Path, succeed: Call) -> None:
    shown = succeed("predict", "run", "--data", "unlabelled.csv", width=80).stdout
    model = build_model("model.py:classifier", {}).eval()
    load_weights(model, Path("classifier.pt"))
    expected = infoform.load(fitted / "posterior.safetensors", model).predict(_inputs())
    table = pandas.read_csv(fitted / "predict.csv")
    assert expected.probs is not None
    found = torch.tensor(table[[f"prob_{name}" for name in NAMES]].to_numpy(), dtype=torch.float32)
    torch.testing.assert_close(found, expected.probs)  # the columns of unlabelled.csv are in another order
    assert list(table["class"]) == [NAMES[label] for label in expected.labels]
    torch.testing.assert_close(torch.tensor(table["entropy"].to_numpy(), dtype=torch.float32), expected.entropy)
    assert f"row {int(expected.mutual_information.argmax())}" in shown.splitlines()[4]
    assert max(map(len, shown.splitlines()[:-1])) <= 80


def test_regression_has_intervals_and_parquet(home: Path, succeed: Call) -> None:
    succeed("fit", "run", "-m", "model.py:regressor", "-w", "regressor.ckpt", *HEIGHTS)
    succeed("predict", "run", "--data", "trees.parquet", "--out", "heights.parquet", "--kind", "mc", "--samples", 5)
    table = pandas.read_parquet("heights.parquet")
    assert len(table) == 40
    assert ((table["low_0"] < table["mean_0"]) & (table["mean_0"] < table["high_0"])).all()
    assert read("run/predict.json")["result"]["examples"] == 40


def test_the_csv_is_plain(fitted: Path, succeed: Call) -> None:
    succeed("predict", "run", "--data", "unlabelled.csv", "--out", "out.csv")
    with Path("out.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows[3]["example"] == "row 3"
    assert list(rows[0])[:4] == ["example", "class", "label", "confidence"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--out", "table.xlsx"], "--out must end with .csv or .parquet"),
        (["--out", "missing/out.csv"], "there is no folder 'missing'"),
        (["--link", "tanh"], "link must be one of"),
        (["--samples", "0"], "samples must be"),
    ],
)
def test_bad_options(fitted: Path, fail: Fail, options: list[str], said: str) -> None:
    assert said in fail("predict", "run", "--data", "unlabelled.csv", *options, "--quiet")


def test_missing_columns(fitted: Path, fail: Fail) -> None:
    Path("short.csv").write_text("a,b\n1,2\n")
    assert "has no column 'c', which the posterior was fitted with" in fail("predict", "run", "--data", "short.csv")
