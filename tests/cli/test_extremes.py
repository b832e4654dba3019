"""Examples that are worth looking at are found, told and pictured."""

import base64
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
from PIL import Image
from trees import HEIGHTS, NAMES, read
from typer.testing import Result

from infoform.cli.extremes import choose, pick
from infoform.cli.model_source import build_model
from infoform.prediction import Prediction

Call = Callable[..., Result]


def _classified(probs: torch.Tensor) -> Prediction:
    entropy = torch.special.entr(probs).sum(1)
    return Prediction(0 * probs, probs * (1 - probs), entropy, 0 * entropy, probs.log(), probs=probs, max_entropy=1.1)


def test_the_surest_the_least_sure_and_the_surest_of_the_wrong() -> None:
    probs = torch.tensor([[0.9, 0.1], [0.5, 0.5], [0.2, 0.8], [0.99, 0.01]])
    found = choose(_classified(probs), torch.tensor([1, 0, 0, 0]))
    assert found["least_certain"] == [1, 2, 0, 3]
    assert found["most_certain"] == [3, 0, 2, 1]
    assert found["confidently_wrong"] == [0, 2]


def test_the_farthest_off_of_a_regression() -> None:
    mean, spread = torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([[1.0], [0.01], [1.0]])
    zero = torch.zeros(3)
    found = choose(Prediction(0 * mean, spread, zero, zero, mean, mean=mean), torch.tensor([[1.5], [1.5], [2.0]]))
    assert found["farthest_off"] == [1, 0, 2]  # 5, 1.5 and 0 standard deviations


def test_inputs_are_picked_across_batches() -> None:
    x = torch.arange(10.0).reshape(10, 1)
    found = pick([(part, torch.zeros(len(part))) for part in x.split(4)], [0, 5, 9])
    assert {place: float(value) for place, value in found.items() if value is not None} == {0: 0.0, 5: 5.0, 9: 9.0}
    several = pick([(part, part, torch.zeros(len(part))) for part in x.split(4)], [1])
    assert several == {1: None}


def test_rows_of_a_table_are_told_by_their_columns(fitted: Path, succeed: Call) -> None:
    succeed("evaluate", "run", "--data", "trees.csv", "--unknown", "unlabelled.csv")
    result = read(fitted / "evaluate.json")["result"]
    frame = pandas.read_csv("trees.csv")
    for one in result["least_certain"] + result["confidently_wrong"]:
        row = frame.iloc[one["index"]]
        assert one["inputs"] == pytest.approx({name: row[name] for name in "abc"}, rel=1e-6)
        assert one["target"] == row["tree"]
        assert one["right"] == (one["top"][0][0] == row["tree"])
        assert one["top"][0][1] == one["confidence"]
        assert {name for name, _ in one["top"]} == set(NAMES)
    assert not any(one["right"] for one in result["confidently_wrong"])
    assert "target" not in result["unknown"]["least_certain"][0]


def test_heights_are_told_with_their_spread(home: Path, succeed: Call) -> None:
    succeed("fit", "run", "-m", "model.py:regressor", "-w", "regressor.ckpt", *HEIGHTS)
    succeed("evaluate", "run", "--data", "trees.csv")
    first = read("run/evaluate.json")["result"]["farthest_off"][0]
    assert first["target"] == pytest.approx([pandas.read_csv("trees.csv")["height"][first["index"]]])
    assert len(first["mean"]) == len(first["std"]) == 1


def test_images_are_pictured(home: Path, succeed: Call) -> None:
    whole = np.random.default_rng(0).integers(256, size=(12, 1, 8, 8))
    np.savez("pictures.npz", x=whole.astype(np.uint8), y=np.arange(12) % 2)
    how = ("--data", "pictures.npz", "--divide-by", 255)
    torch.save(build_model("model.py:pictures", {}).state_dict(), "pictures.pt")
    succeed("fit", "run", "-m", "model.py:pictures", "-w", "pictures.pt", *how, "--quiet")
    succeed("evaluate", "run", "--data", "pictures.npz", "--quiet")
    for one in read("run/evaluate.json")["result"]["most_certain"]:
        shown = np.array(Image.open(io.BytesIO(base64.b64decode(one["png"]))))
        assert np.array_equal(shown, whole[one["index"], 0])


SHUFFLED = """
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(64, 3)


def train():
    return DataLoader(TensorDataset(x, torch.arange(64) % 3), batch_size=16, shuffle=True)
"""


def test_another_order_each_time_is_noticed(fitted: Path, succeed: Call) -> None:
    Path("loaders.py").write_text(SHUFFLED)
    said = succeed("evaluate", "run", "--data", "loaders.py:train").stderr
    assert "note: the data come in another order each time" in said
    least = read(fitted / "evaluate.json")["result"]["least_certain"][0]
    assert "inputs" not in least
    assert 0 < least["confidence"] < 1
