"""What `infoform evaluate` tells for a report: confidences, intervals and histograms, counted here by hand."""

from collections.abc import Callable
from pathlib import Path

import pandas
import pytest
import torch
from trees import HEIGHTS, NAMES, read
from typer.testing import Result

import infoform
from infoform.cli.model_source import build_model, load_weights
from infoform.cli.scoring import _spread_histogram

Call = Callable[..., Result]


def test_how_many_are_right_above_every_confidence(fitted: Path, succeed: Call) -> None:
    succeed("evaluate", "run", "--data", "trees.csv")
    result = read(fitted / "evaluate.json")["result"]
    model = build_model("model.py:classifier", {}).eval()
    load_weights(model, Path("classifier.pt"))
    frame = pandas.read_csv("trees.csv")
    x = torch.tensor(frame[["a", "b", "c"]].to_numpy(), dtype=torch.float32)
    labels = torch.tensor([NAMES.index(name) for name in frame["tree"]])
    probs = infoform.load(fitted / "posterior.safetensors", model).predict(x).probs
    assert probs is not None
    with torch.no_grad():
        plain = model(x).softmax(1)
    table = result["by_confidence"]
    for prefix, said in (("", probs), ("plain_", plain)):
        for place, level in enumerate(table["confidence"]):
            sure = [(row.max(), row.argmax()) for row in said.double()]
            right = [int(label == answer) for (top, label), answer in zip(sure, labels, strict=True) if top >= level]
            assert table[f"{prefix}examples"][place] == len(right)
            assert table[f"{prefix}right"][place] == (pytest.approx(sum(right) / len(right)) if right else None)
        assert result[f"{prefix}mean_confidence"] == pytest.approx(float(said.max(1).values.mean()), rel=1e-6)
    assert result["reliability"]["edges"][::15] == [0, 1]


def test_intervals_of_every_level(home: Path, succeed: Call) -> None:
    succeed("fit", "run", "-m", "model.py:regressor", "-w", "regressor.ckpt", *HEIGHTS)
    succeed("evaluate", "run", "--data", "trees.csv", "--unknown", "unlabelled.csv")
    result = read("run/evaluate.json")["result"]
    coverage = result["interval_coverage"]
    assert coverage["found"] == sorted(coverage["found"])
    place = coverage["level"].index(0.9)
    assert coverage["found"][place] == result["scores"]["coverage_90"]
    assert coverage["plain"][place] == result["plain_scores"]["coverage_90"]
    points = result["points"]
    inside = [low <= y <= high for low, y, high in zip(points["low"], points["target"], points["high"], strict=True)]
    assert len(inside) == 40  # all of them, since they are few
    assert sum(inside) / 40 == pytest.approx(result["scores"]["coverage_90"])
    assert points["mean"] == sorted(points["mean"])
    heights = pandas.read_csv("trees.csv")["height"]
    assert points["target"] == pytest.approx([heights[index] for index in points["index"]], rel=1e-6)
    histogram = result["unknown"]["spread_histogram"]
    assert sum(histogram["known"]) == sum(histogram["unknown"]) == 40


def test_spreads_are_counted_between_their_edges() -> None:
    known, unknown = torch.tensor([1.0, 1.0, 10.0]), torch.tensor([100.0, 10.0])
    found = _spread_histogram(known, unknown)
    edges = found.edges
    assert float(edges[0]) == pytest.approx(1)
    assert float(edges[-1]) == pytest.approx(100)
    assert found.known[0] == 2
    assert found.unknown[-1] == 1
    assert sum(found.known) == 3
    none = _spread_histogram(torch.zeros(3), torch.zeros(2))
    assert sum(none.known) == 3
