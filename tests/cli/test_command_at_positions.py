"""The command with a network that answers at every pixel, and with likelihoods of counts and grades."""

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from trees import read
from typer.testing import Result

Call = Callable[..., Result]
NETWORKS = """
from torch import nn

def segmenter():
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, 3, 3, padding=1))

def counter():
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    Path("net.py").write_text(NETWORKS)
    torch.manual_seed(0)
    images = torch.rand(40, 1, 4, 4)
    masks = (images[:, 0] * 3).long().clamp_max(2)
    masks[:, 0] = -100  # void
    segmenter = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, 3, 3, padding=1))
    optimiser = torch.optim.Adam(segmenter.parameters(), 0.05)
    for _ in range(60):
        optimiser.zero_grad()
        nn.functional.cross_entropy(segmenter(images), masks).backward()
        optimiser.step()
    torch.save(segmenter.state_dict(), "segmenter.pt")
    for name, rows in (("train", slice(0, 20)), ("val", slice(20, 40))):
        np.savez(f"{name}.npz", x=images[rows].numpy(), y=masks[rows].numpy())
    np.savez("noise.npz", x=10 * torch.randn(20, 1, 4, 4).numpy())
    counter = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))
    torch.save(counter.state_dict(), "counter.pt")
    x = torch.randn(40, 4)
    np.savez("counts.npz", x=x.numpy(), y=torch.poisson(counter(x).exp()).detach().long().numpy())
    return tmp_path


def test_pixels_keep_their_places_from_the_fit_to_the_report(folder: Path, succeed: Call) -> None:
    succeed("fit", "run", "-m", "net.py:segmenter", "-w", "segmenter.pt", "--data", "train.npz")
    succeed("tune", "run", "--data", "val.npz", "--trials", 5, "--samples", 10)
    shown = succeed("evaluate", "run", "--data", "val.npz", "--unknown", "noise.npz", "--samples", 10)
    assert "20 examples" in shown.stdout
    found = read("run/evaluate.json")["result"]
    assert found["examples"] == 20
    assert found["scores"]["accuracy"] > 0.6
    assert sum(found["reliability"]["count"]) == 20 * 12  # the pixels with a label
    succeed("predict", "run", "--data", "val.npz", "--samples", 10)
    with Path("run/predict.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 20 * 16
    assert [rows[17][name] for name in ("example", "index", "position")] == ["1", "1", "0 1"]
    assert read("run/predict.json")["result"]["examples"] == 20
    succeed("report", "run")
    assert Path("run/report.html").exists()


def test_counts_are_scored_by_their_own_density(folder: Path, succeed: Call) -> None:
    counts = ("--data", "counts.npz", "--likelihood", "poisson")
    succeed("fit", "run", "-m", "net.py:counter", "-w", "counter.pt", *counts)
    succeed("tune", "run", "--data", "counts.npz", "--trials", 3, "--samples", 10)
    succeed("evaluate", "run", "--data", "counts.npz", "--samples", 10)
    scores = read("run/evaluate.json")["result"]["plain_scores"]
    from infoform import Poisson

    network = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))
    network.load_state_dict(torch.load("counter.pt"))
    with np.load("counts.npz") as data:
        x, y = (torch.from_numpy(data[name]).float() for name in ("x", "y"))
    with torch.no_grad():
        expected = -float(Poisson().log_prob(network(x), y.reshape(-1, 1)).mean())
    assert scores["nll"] == pytest.approx(expected, rel=1e-5)
    succeed("report", "run")
