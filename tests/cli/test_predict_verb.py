"""`infoform predict` writes the library's predictions, whatever the order of the columns."""

import csv
import sys
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
    torch.testing.assert_close(torch.tensor(table["entropy_nats"].to_numpy(), dtype=torch.float32), expected.entropy)
    assert f"row {int(expected.mutual_information.argmax())}" in shown.splitlines()[4]
    assert max(map(len, shown.splitlines()[:-1])) <= 80


def test_regression_has_intervals_and_parquet(home: Path, succeed: Call) -> None:
    succeed("fit", "run", "-m", "model.py:regressor", "-w", "regressor.ckpt", *HEIGHTS)
    succeed("predict", "run", "--data", "trees.parquet", "--out", "heights.parquet", "--kind", "mc", "--samples", 5)
    table = pandas.read_parquet("heights.parquet")
    assert len(table) == 40
    mean, low, high = (table[f"{name}_height"] for name in ("mean", "low", "high"))  # by the name of the target
    assert ((low < mean) & (mean < high)).all()
    assert table["id"].tolist()[:2] == ["n0", "n1"]  # which the network does not take
    succeed("predict", "run", "--data", "trees.parquet", "--out", "half.csv", "--level", 0.5)
    half = pandas.read_csv("half.csv")
    ratio = (half["high_height"] - half["mean_height"]) / half["std_height"]
    assert ratio.to_numpy() == pytest.approx(0.6744898, rel=1e-4)  # of a Gaussian
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


def test_inputs_are_set_aside_at_a_threshold_of_known_data(fitted: Path, succeed: Call, fail: Fail) -> None:
    import torch

    from infoform.cli.rejection import rejected

    shown = succeed("predict", "run", "--data", "unlabelled.csv", "--reject", 0.1, "--known", "trees.csv").stdout
    table = pandas.read_csv(fitted / "predict.csv")
    assert f"Set aside {int(table['reject'].sum())} of 40" in shown
    model = build_model("model.py:classifier", {}).eval()
    load_weights(model, Path("classifier.pt"))
    predicted = infoform.load(fitted / "posterior.safetensors", model).predict(_inputs())
    marked, _ = rejected(predicted, predicted, 0.1)
    doubt, strange = (torch.quantile(one.double(), 0.95) for one in (predicted.entropy, predicted.novelty))
    expected = (predicted.entropy.double() > doubt) | (predicted.novelty.double() > strange)
    assert marked == expected.tolist()
    assert sum(rejected(predicted, None, 0.05)[0]) == int(predicted.novel(0.05).sum())
    assert "a share lies between 0 and 1" in fail("predict", "run", "--data", "unlabelled.csv", "--reject", 5, code=2)


def test_a_parquet_without_pyarrow_is_refused_before_the_work(
    fitted: Path, fail: Fail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    told = "needs pyarrow, which is not installed: pip install 'infoform[tables]'."
    assert fail("predict", "run", "--data", "unlabelled.csv", "--out", "new.parquet") == f"'new.parquet' {told}"
    assert fail("predict", "run", "--data", "trees.parquet") == f"reading 'trees.parquet' {told}"
    assert not list(fitted.glob("predict*"))
