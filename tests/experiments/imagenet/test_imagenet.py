from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import infoform
from infoform.data.images import spaced
from infoform.experiments import Result, get_experiment
from infoform.experiments.imagenet.experiment import ImageNet
from infoform.experiments.imagenet.networks import NETWORKS, TrainedNetwork
from infoform.experiments.imagenet.page import collect
from infoform.experiments.imagenet.run import ImageNetSettings, Run
from infoform.experiments.method import Method

METHODS = (
    "diag isotropic mc search",
    "inf-paper isotropic mc validation",
    "inf activation linear-mc validation",
    "kfac isotropic mc evidence",
    "swag",
)


def tiny() -> nn.Module:
    convolution = nn.Conv2d(3, 4, 5, 4)
    return nn.Sequential(
        convolution, nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 10)
    )


@pytest.fixture
def settings(small_imagenet: Path, monkeypatch: pytest.MonkeyPatch) -> ImageNetSettings:
    torch.manual_seed(0)
    (small_imagenet / "weights").mkdir()
    save_file(tiny().state_dict(), small_imagenet / "weights" / "tiny.safetensors")
    about = TrainedNetwork("Tiny", "tiny.safetensors", tiny, (0.5,) * 3, (0.5,) * 3, 0.1, "5")
    monkeypatch.setitem(NETWORKS, "tiny", about)
    return replace(
        ImageNet().settings(quick=True),
        network="tiny",
        images=10,
        test=10,
        unknown=4,
        methods=METHODS,
        pairs=4,
        pair_samples=1,
        tuning_samples=1,
        size=32,
    )


def test_pictures_of_fit_tuning_and_test_are_apart(settings: ImageNetSettings, tmp_path: Path) -> None:
    pictures = Run(settings, tmp_path).pictures
    assert pictures.fit[1].tolist() == [0, 1, 2, 3, 5, 6, 7, 8]
    assert pictures.held_out[1].tolist() == [4, 9]
    every = torch.cat([pictures.fit[0], pictures.held_out[0], pictures.test[0], pictures.unknown])
    assert len(every.flatten(1).unique(dim=0)) == 10 + 10 + 4


def test_every_piece_and_the_page(settings: ImageNetSettings, tmp_path: Path) -> None:
    experiment = ImageNet()
    keys = experiment.pieces(settings)
    result = Result("imagenet", asdict(settings), 0, len(keys))
    for key in keys:
        piece = experiment.run_piece(key, settings, cache=tmp_path / "cache")
        result = result.with_piece(key, piece, seconds=1.0, peak_memory_bytes=1)
    rows = collect(result)
    assert set(rows) == {"plain", "temperature", "swa", *METHODS}
    assert rows["temperature"]["accuracy"] == rows["plain"]["accuracy"]  # which no temperature changes
    assert result.pieces["fit"]["bytes"]["diag isotropic"] == 4 * (4 * 76 + 10 * 17)
    assert len([one for one in rows["diag isotropic mc search"]["tried"] if one[0] == 0]) == 4
    assert rows["kfac isotropic mc evidence"]["num_data"] == settings.training_images
    text = experiment.page(result)
    for title in (
        "Posteriors, by search",
        "Posteriors, by validation",
        "Posteriors, by evidence",
        "SWAG",
        "D is negative",
    ):
        assert title in text
    experiment.charts(result, tmp_path)
    names = {path.name for path in tmp_path.glob("*.png")}
    assert names == {f"imagenet-{what}.png" for what in ("reliability", "entropy", "search")}


def test_a_fit_is_read_from_the_cache_and_is_the_same(settings: ImageNetSettings, tmp_path: Path) -> None:
    first = Run(settings, tmp_path).laplace(fresh=True).posterior(structure="diag", prior="isotropic")
    again = Run(settings, tmp_path).laplace()
    assert isinstance(again, infoform.Laplace)
    second = again.posterior(structure="diag", prior="isotropic")
    for name, layer in first.layers.items():
        assert torch.equal(layer.diagonal(), second.layers[name].diagonal())


def test_the_search_of_a_narrow_posterior_is_the_plain_network(settings: ImageNetSettings, tmp_path: Path) -> None:
    narrow = replace(settings, prior_precision=(1e12, 1e13))
    run = Run(narrow, tmp_path)
    found, plain = run.laplace_piece(Method.parse("diag isotropic mc search")), run.plain_piece()
    assert found["nll"] == pytest.approx(plain["nll"], rel=1e-4)
    assert 1e12 <= found["prior_precision"] <= 1e13


def test_rows_are_evenly_spaced() -> None:
    assert spaced(10, 4).tolist() == [0, 2, 5, 7]
    assert spaced(3, 9).tolist() == [0, 1, 2]


@pytest.mark.parametrize("name", ["imagenet", "imagenet-efficientnet", "imagenet-resnet50"])
def test_every_network_has_its_weights(name: str) -> None:
    experiment = get_experiment(name)
    for size in ({}, {"quick": True}, {"full": True}):
        assert experiment.settings(**size).network in NETWORKS
