"""`infoform evaluate` scores what the library scores, beside the plain network."""

from collections.abc import Callable
from pathlib import Path

import pandas
import pytest
import torch
from torch import nn
from trees import HEIGHTS, NAMES, read
from typer.testing import Result

import infoform
from infoform import metrics
from infoform.cli.model_source import build_model, load_weights

Call = Callable[..., Result]
Fail = Callable[..., str]


def test_scores_of_the_posterior_and_of_the_network_alone(fitted: Path, succeed: Call) -> None:
    shown = succeed("evaluate", "run", "--data", "trees.csv", width=80).stdout
    result = read(fitted / "evaluate.json")["result"]
    model = build_model("model.py:classifier", {}).eval()
    load_weights(model, Path("classifier.pt"))
    frame = pandas.read_csv("trees.csv")
    x = torch.tensor(frame[["a", "b", "c"]].to_numpy(), dtype=torch.float32)
    labels = torch.tensor([NAMES.index(name) for name in frame["tree"]])
    prediction = infoform.load(fitted / "posterior.safetensors", model).predict(x)
    assert result["scores"] == pytest.approx(metrics.evaluate(prediction, labels))
    with torch.no_grad():
        plain = model(x).softmax(1)
    assert result["plain_scores"]["nll"] == pytest.approx(metrics.nll(plain, labels))
    entropy = float(torch.special.entr(plain).sum(1).mean())
    assert result["plain_scores"]["entropy_nats"] == pytest.approx(entropy)
    assert (result["kind"], result["reason"]) == ("linear", "closed form: 3 outputs, at most 64")
    assert sum(result["reliability"]["count"]) == sum(result["entropy_histogram"]["count"]) == 40
    least = int(prediction.entropy.argmax())
    assert result["least_certain"][0]["index"] == least
    assert result["least_certain"][0]["example"] == f"row {least}"
    assert f"{result['scores']['nll']:.4f}" in shown
    assert max(map(len, shown.splitlines()[:-1])) <= 80


def test_unknown_data_are_told_apart(fitted: Path, succeed: Call) -> None:
    (pandas.read_csv("unlabelled.csv") * 30).to_csv("far.csv", index=False)
    shown = succeed("evaluate", "run", "--data", "trees.csv", "--unknown", "far.csv").stdout
    unknown = read(fitted / "evaluate.json")["result"]["unknown"]
    assert unknown["examples"] == 40
    for score in ("entropy", "mutual_information", "plain_entropy"):
        assert 0 <= unknown[score]["auroc"] <= 1
    assert "entropy, network alone" in shown


def test_regression_has_coverage_and_the_noise_alone(home: Path, succeed: Call) -> None:
    succeed("fit", "run", "-m", "model.py:regressor", "-w", "regressor.ckpt", *HEIGHTS)
    succeed("evaluate", "run", "--data", "trees.csv", "--unknown", "unlabelled.csv")
    result = read("run/evaluate.json")["result"]
    assert {"rmse", "crps", "coverage_90"} <= set(result["scores"])
    assert result["scores"]["rmse"] == pytest.approx(result["plain_scores"]["rmse"])  # linear: the same mean
    noise = read("run/fit.json")["result"]["noise"]
    frame = pandas.read_csv("trees.csv")
    model = build_model("model.py:regressor", {}).eval()
    load_weights(model, Path("regressor.ckpt"))
    y = torch.tensor(frame[["height"]].to_numpy())
    with torch.no_grad():
        mean = model(torch.tensor(frame[["a", "b", "c"]].to_numpy(), dtype=torch.float32)).detach().double()
    density = torch.distributions.Normal(mean, noise).log_prob(y).mean()
    assert result["plain_scores"]["log_likelihood"] == pytest.approx(float(density), rel=1e-5)
    assert "epistemic" in result["unknown"]


def test_labels_are_needed(fitted: Path, fail: Fail) -> None:
    assert "has no column 'tree'" in fail("evaluate", "run", "--data", "unlabelled.csv")


def test_classes_that_the_fit_did_not_see(fitted: Path, fail: Fail) -> None:
    frame = pandas.read_csv("trees.csv")
    frame["tree"] = frame["tree"].replace("ash", "oak")
    frame.to_csv("other.csv", index=False)
    said = fail("evaluate", "run", "--data", "other.csv")
    assert "has the class 'oak', which is none of ash, birch, cedar" in said


def test_a_temperature_alone_stands_beside_the_posterior_once_tuned(fitted: Path, succeed: Call) -> None:
    assert "temperature" not in succeed("evaluate", "run", "--data", "trees.csv").stdout
    succeed("tune", "run", "--data", "trees.csv", "--trials", 3, "--quiet")
    temperature = read(fitted / "tune.json")["result"]["plain_temperature"]
    shown = succeed("evaluate", "run", "--data", "trees.csv").stdout
    result = read(fitted / "evaluate.json")["result"]
    assert "temperature alone" in shown
    frame = pandas.read_csv("trees.csv")
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 3))
    model.load_state_dict(torch.load("classifier.pt", weights_only=True))
    logits = model(torch.tensor(frame[["a", "b", "c"]].to_numpy(), dtype=torch.float32)).detach().double()
    expected = nn.functional.cross_entropy(logits / temperature, torch.tensor(frame["class"].to_numpy()))
    assert result["temperature_scores"]["nll"] == pytest.approx(float(expected), abs=1e-6)
