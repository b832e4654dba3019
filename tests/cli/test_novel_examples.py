"""`infoform predict` and `infoform evaluate` tell novelty as the library does, and nothing where there is none."""

from collections.abc import Callable
from pathlib import Path

import pandas
import pytest
import torch
from trees import HEIGHTS, read
from typer.testing import Result

import infoform
from infoform import metrics
from infoform.cli.model_source import build_model, load_weights
from infoform.cli.verbs.predict import _said_of
from infoform.novelty.calibrate import HELD_OUT
from infoform.novelty.known_inputs import LEFT_OUT
from infoform.records import EvaluateResult, PredictResult, read_record
from infoform.records.novelty import NovelExamples

Call = Callable[..., Result]


def _laplace(run: Path) -> infoform.Laplace:
    model = build_model("model.py:classifier", {}).eval()
    load_weights(model, Path("classifier.pt"))
    return infoform.load(run / "posterior.safetensors", model)


def _inputs() -> torch.Tensor:
    return torch.tensor(pandas.read_csv("trees.csv")[["a", "b", "c"]].to_numpy(), dtype=torch.float32)


@pytest.fixture
def far(fitted: Path) -> Path:
    """Make a table of inputs far from the training data."""
    (pandas.read_csv("unlabelled.csv") * 30).to_csv("far.csv", index=False)
    return Path("far.csv")


@pytest.fixture
def without(fitted: Path) -> Path:
    """Make the run's posterior one that knows nothing of its inputs."""
    laplace = _laplace(fitted)
    frame = pandas.read_csv("trees.csv")
    data = [(_inputs(), torch.tensor(frame["class"].to_numpy()))]
    options = infoform.FitOptions(novelty=False)
    infoform.Laplace(laplace.model, "classification", fit_options=options).fit(data, progress=False).save(
        fitted / "posterior.safetensors"
    )
    return fitted


def test_a_table_of_predictions_has_novelty(fitted: Path, far: Path, succeed: Call) -> None:
    shown = succeed("predict", "run", "--data", far, width=80).stdout
    expected = _laplace(fitted).novelty(30 * _inputs())
    table = pandas.read_csv(fitted / "predict.csv")
    torch.testing.assert_close(torch.tensor(table["novelty"].to_numpy(), dtype=torch.float32), expected.novelty)
    assert table["novel"].tolist() == expected.novel(0.05).tolist()
    assert table["novel"].any()
    layers = list(expected.novelty_layers)
    strangest = torch.stack(list(expected.novelty_layers.values())).argmax(0)
    assert table["strangest_layer"].astype(str).tolist() == [layers[place] for place in strangest]
    count = int(table["novel"].sum())
    assert f"{count} of 40 are novel" in shown

    result = read_record(fitted / "predict.json", PredictResult, "infoform predict").result
    assert result.novelty is not None
    assert (result.novelty.false_alarms, result.novelty.novel) == (0.05, count)
    assert result.novelty.share == pytest.approx(count / 40)
    found = table[table["novel"]]["strangest_layer"].astype(str).value_counts()
    assert dict(result.novelty.strangest_layers) == found.to_dict()
    assert result.chosen is not None
    for example in result.chosen.least_certain:
        row = table.iloc[example.index]
        assert example.novelty == pytest.approx(row["novelty"])
        assert (example.novel, example.strangest_layer) == (bool(row["novel"]), str(row["strangest_layer"]))


def test_unknown_data_are_told_apart_by_novelty_and_by_its_parts(fitted: Path, far: Path, succeed: Call) -> None:
    shown = succeed("evaluate", "run", "--data", "trees.csv", "--unknown", far, width=80).stdout
    laplace = _laplace(fitted)
    known, unknown = laplace.novelty(_inputs()), laplace.novelty(30 * _inputs())
    result = read_record(fitted / "evaluate.json", EvaluateResult, "infoform evaluate").result
    assert result.novelty is not None
    assert result.novelty.share == pytest.approx(float(known.novel().float().mean()))
    assert result.unknown is not None
    told = result.unknown.novelty
    assert told is not None
    assert vars(told.together) == pytest.approx(metrics.ood(known.novelty, unknown.novelty))
    assert list(told.parts) == list(known.novelty_parts)
    for name, separation in told.parts.items():
        expected = metrics.ood(known.novelty_parts[name], unknown.novelty_parts[name])
        assert vars(separation) == pytest.approx(expected)
        assert f"novelty: {name}" in shown
    assert told.called.share == pytest.approx(float(unknown.novel().float().mean()))
    assert f"{result.novelty.share:.1%} of known examples, {told.called.share:.1%} of unknown ones" in shown


def test_regression_has_novelty_too(home: Path, succeed: Call) -> None:
    succeed("fit", "run", "-m", "model.py:regressor", "-w", "regressor.ckpt", *HEIGHTS)
    succeed("predict", "run", "--data", "unlabelled.csv")
    assert pandas.read_csv("run/predict.csv")["novelty"].between(0, 1).all()
    shown = succeed("evaluate", "run", "--data", "trees.csv", "--unknown", "unlabelled.csv").stdout
    assert read("run/evaluate.json")["result"]["unknown"]["novelty"]["together"]["auroc"] == pytest.approx(0.5)
    assert "epistemic variance" in shown


def test_a_posterior_without_novelty_leaves_it_out(without: Path, far: Path, succeed: Call) -> None:
    shown = succeed("predict", "run", "--data", far).stdout
    shown += succeed("evaluate", "run", "--data", "trees.csv", "--unknown", far).stdout
    assert "novel" not in shown
    assert "novel" not in (without / "predict.csv").read_text()
    for name in ("predict", "evaluate"):
        assert "'novel" not in str(read(without / f"{name}.json")["result"])
    record = read_record(without / "evaluate.json", EvaluateResult, "infoform evaluate")  # as an older one reads
    assert record.result.novelty is None
    assert record.result.unknown is not None
    assert record.result.unknown.novelty is None


def test_a_scale_of_training_examples_is_told_with_its_remedy() -> None:
    found = NovelExamples(0.05, 3, 0.3, [("fc", 2)])
    told = [_said_of(found, 10, source) for source in (LEFT_OUT, HELD_OUT)]
    assert [("training examples" in said, "`infoform tune`" in said) for said in told] == [(True, True), (False, False)]
    assert all(said.startswith("3 of 10 are novel (30.0%; of known ones about 5%)") for said in told)
