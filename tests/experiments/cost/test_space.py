from dataclasses import asdict
from pathlib import Path

import pytest
import torch

import infoform
from infoform.experiments import Result
from infoform.experiments.cost.space import EXPERIMENT, SpaceSettings, counted
from infoform.experiments.cost.stand_ins import stand_in
from infoform.experiments.networks.architectures import build


@pytest.fixture
def result(small_imagenet: Path) -> Result:
    settings = SpaceSettings(networks=("tiny-densenet",), rank=5, images=4, size=32, paper_basis=True)
    piece = EXPERIMENT.run_piece("tiny-densenet", settings, cache=small_imagenet)
    return Result("space", asdict(settings), 0, 1).with_piece("tiny-densenet", piece, seconds=1.0, peak_memory_bytes=1)


def test_shapes_alone_tell_what_a_fit_stores() -> None:
    model = build("tiny-resnet")
    x = torch.randn(3, 3, 32, 32)
    for structure in ("kfac", "efb-paper"):
        fitted = infoform.Laplace(model, "classification", structure=structure).fit([x], progress=False)
        assert counted(stand_in(model, structure, device="meta")) == counted(fitted.posterior())


def test_values_are_counted_from_what_is_stored(result: Result) -> None:
    piece = result.pieces["tiny-densenet"]
    model = build("tiny-densenet")
    weights = sum(layer.mean.numel() for layer in infoform.Laplace(model, "classification").layers.values())
    stored = piece["stored"]
    assert stored["diag"] == {"values": weights, "bytes": 4 * weights, "bfloat16_bytes": 2 * weights}
    assert stored["inf"]["values"] > 2 * weights  # f and a byte of scale for every weight
    assert stored["inf"]["bytes"] < 4 * stored["inf"]["values"]
    assert stored["inf, activation prior"]["bytes"] > stored["inf"]["bytes"]
    assert stored["inf, activation prior"]["file"] > stored["inf, activation prior"]["bytes"]


def test_plans_are_exact_or_the_most(result: Result) -> None:
    piece = result.pieces["tiny-densenet"]
    for structure in ("diag", "kfac", "efb-paper"):
        assert piece["stored"][structure]["bytes"] == piece["planned"][structure]["float32"]
    assert piece["stored"]["diag"]["bfloat16_bytes"] == piece["planned"]["diag"]["bfloat16"]
    assert piece["stored"]["inf, activation prior"]["bytes"] <= piece["planned"]["inf"]["float32"]
    assert piece["stored"]["inf-paper"]["bytes"] <= piece["planned"]["inf-paper"]["float32"]


def test_the_page_has_the_network_and_its_plan(result: Result) -> None:
    text = EXPERIMENT.page(result)
    assert "| tiny-densenet | equal | equal | equal |" in text
    assert f"{result.pieces['tiny-densenet']['stored']['kfac']['values']:,}" in text
