import gzip
import struct
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from infoform.comparing.answers import Answered
from infoform.data import imagenet
from infoform.experiments import Result, get_experiment
from infoform.experiments.method import Method
from infoform.experiments.networks import cifar_resnets
from infoform.experiments.public_resnets.answered import CrossFitted, Predict, crossfit, untuned
from infoform.experiments.public_resnets.experiment import PublicResnets
from infoform.experiments.public_resnets.joined import joined
from infoform.experiments.public_resnets.page import best_of_ours, collect
from infoform.experiments.public_resnets.pictures import Batches, Pictures
from infoform.experiments.public_resnets.run import Run
from infoform.experiments.public_resnets.scores import scores
from infoform.experiments.public_resnets.settings import (
    CURVE,
    DEPTHS,
    FULL_METHODS,
    JOINED,
    NOVEL,
    PLAIN,
    TEMPERATURE,
    ResnetSettings,
)
from infoform.likelihoods import get_likelihood
from infoform.metrics import auroc, nll
from infoform.prediction import Prediction

TESTED = (
    PLAIN,
    TEMPERATURE,
    NOVEL,
    "inf isotropic linear validation",
    "kfac isotropic mc validation",
    CURVE,
    "swag",
    JOINED,
)


@pytest.fixture
def settings(small_imagenet: Path, monkeypatch: pytest.MonkeyPatch) -> ResnetSettings:
    """Settings of a run on a tiny network, whose pictures are noise in the files that the loaders expect."""
    generator = np.random.default_rng(0)

    def pictures(count: int) -> dict[str, Any]:
        labels = generator.permutation(np.arange(count) % 10)
        images = generator.integers(0, 256, (count, 32, 32, 3)) // 2 + 12 * labels[:, None, None, None]
        return {"images": images.astype(np.uint8), "labels": labels.astype(np.uint8)}

    folder = small_imagenet
    parts: dict[str, Any] = {f"{part}_{key}": value for part, count in (("train", 60), ("test", 40))
             for key, value in pictures(count).items()}  # fmt: skip
    np.savez(folder / "cifar10.npz", **parts)
    (folder / "svhn").mkdir()
    np.savez(folder / "svhn" / "test_32x32_5k.npz", **pictures(12))
    raw = folder / "mnist" / "MNIST" / "raw"
    raw.mkdir(parents=True)
    digits = generator.integers(0, 256, (20, 28, 28)).astype(np.uint8)
    with gzip.open(raw / "t10k-images-idx3-ubyte.gz", "wb") as file:
        file.write(struct.pack(">IIII", 2051, 20, 28, 28) + digits.tobytes())
    with gzip.open(raw / "t10k-labels-idx1-ubyte.gz", "wb") as file:
        file.write(struct.pack(">II", 2049, 20) + bytes(range(10)) * 2)

    def network(_: int) -> nn.Module:
        torch.manual_seed(0)
        return cifar_resnets.CifarResNet(1, width=4).eval()

    monkeypatch.setattr(cifar_resnets, "load", network)
    monkeypatch.setattr(imagenet, "load", partial(imagenet.load, classes=10))
    quick = PublicResnets().settings(quick=True)
    methods = (*(f"{method} 20" for method in TESTED), *(f"{method} 56" for method in TESTED[:3]))
    return replace(quick, methods=methods, test=40, unknown=8, unknown_slow=6, trials=3, samples=2, rank=4, curve=(30,))


@pytest.mark.filterwarnings("ignore:networks with sampled weights", "ignore:the best prior_precision")
@pytest.mark.filterwarnings("ignore::infoform.UntrainedWarning")
def test_every_piece_and_the_page(settings: ResnetSettings, tmp_path: Path) -> None:
    experiment = PublicResnets()
    keys = experiment.pieces(settings)
    assert keys[f"{PLAIN} 20"] == (f"{TEMPERATURE} 20",)
    done: set[str] = set()
    result = Result("cifar10-resnet", asdict(settings), 0, len(keys))
    for key in sorted(keys, key=lambda one: (TEMPERATURE not in one, JOINED in one)):
        assert done.issuperset(keys[key])
        piece = experiment.run_piece(key, settings, cache=tmp_path / "cache")
        result = result.with_piece(key, piece, seconds=1.0, peak_memory_bytes=1)
        done.add(key)
    result.save(tmp_path / "run.json")  # all numbers are finite
    rows = collect(result)[20]
    assert set(rows) == set(TESTED)
    assert rows[PLAIN]["nll_to_temperature"][0] == pytest.approx(
        rows[PLAIN]["nll"] - rows[TEMPERATURE]["nll"], abs=1e-6
    )
    for row in rows.values():
        if "nll" in row:
            low, high = row["nll_interval"]
            assert low <= row["nll"] <= high
    assert set(rows[NOVEL]["apart"]) == {
        "SVHN", "MNIST in colour", "uniform noise", "normal noise", "paintings", "ImageNet",
    }  # fmt: skip
    assert set(rows["kfac isotropic mc validation"]["apart"]) == {"SVHN"}
    text = experiment.page(result)
    for words in ("ResNet-20", "ResNet-56", "published: VaLLA", "to temperature", "missed"):
        assert words in text
    experiment.charts(result, tmp_path)
    assert {path.name for path in tmp_path.glob("*.png")} == {"cifar10-resnet-nll.png", "cifar10-resnet-unknown.png"}


def test_temperature_scaling_is_as_by_hand(settings: ResnetSettings, tmp_path: Path) -> None:
    run = Run(settings, tmp_path, 20)
    found = run.temperature_piece(Method(TEMPERATURE, network=20))
    pictures = run.pictures
    with torch.no_grad():
        outputs = torch.cat([run.model(x) for x, _ in pictures.batches(pictures.test)])
    first, second = (told["temperature"] for told in found["tuned"])
    scale = torch.where(pictures.fold == 0, second, first).unsqueeze(1)
    assert found["nll"] == pytest.approx(nll((outputs / scale).softmax(1), pictures.test.labels), rel=1e-5)


def test_no_picture_is_predicted_by_what_was_tuned_on_it(settings: ResnetSettings, tmp_path: Path) -> None:
    pictures = Pictures(settings, tmp_path)
    seen: list[Tensor] = []

    def tune(validation: Batches) -> tuple[Predict, dict[str, Any]]:
        own = torch.cat([x for x, _ in validation])
        seen.append(own)

        def predict(x: Tensor) -> Prediction:
            assert not (x.flatten(1)[:, None] == own.flatten(1)).all(2).any()
            outputs = x.mean((2, 3)).repeat(1, 4)[:, :10]  # tells which picture it is of
            return get_likelihood("classification").from_samples(outputs[None], outputs, noise=None)

        return predict, {"tuned_on": len(own)}

    found = crossfit(pictures, tune, has_spread=False, slow=True)
    assert [one["tuned_on"] for one in found.facts] == [8, 8]
    assert not (seen[0].flatten(1)[:, None] == seen[1].flatten(1)).all(2).any()
    assert int(found.first.sum()) == 32
    outputs = torch.cat([x for x, _ in pictures.batches(pictures.test)]).mean((2, 3)).repeat(1, 4)[:, :10]
    torch.testing.assert_close(found.known.value, outputs.softmax(1).double(), rtol=1e-5, atol=1e-6)  # in their order


def test_answers_are_kept_and_read_again(settings: ResnetSettings, tmp_path: Path) -> None:
    def predict(x: Tensor) -> Prediction:
        outputs = x.flatten(1)[:, :10]
        return get_likelihood("classification").from_samples(outputs.expand(3, -1, -1), outputs, noise=None)

    found = untuned(Pictures(settings, tmp_path), predict, has_spread=True, slow=False, facts={})
    found.save(tmp_path / "answers.safetensors")
    read = CrossFitted.load(tmp_path / "answers.safetensors")
    assert read.known.value.equal(found.known.value)
    assert set(read.unknown) == set(found.unknown)
    assert read.unknown["SVHN"].signs["entropy"].equal(found.unknown["SVHN"].signs["entropy"])


def test_scores_are_those_of_the_metrics_and_their_differences_are_paired() -> None:
    torch.manual_seed(0)
    targets = torch.randint(3, (200,))
    logits = torch.randn(200, 3) + 2 * nn.functional.one_hot(targets, 3)

    def answers(scale: float) -> CrossFitted:
        probs = (scale * logits).double().softmax(1)
        signs = {"entropy": -(probs * probs.log()).sum(1)}
        unknown = {"other": Answered(probs[:50].flip(1), None, {"entropy": signs["entropy"][:50] + 0.3})}
        return CrossFitted(Answered(probs, None, signs), torch.ones(200, dtype=torch.bool), unknown, [])

    one, other = answers(1.0), answers(2.0)
    found = scores(one, targets, beside=other, resamples=100, seed=0)
    assert found["nll"] == pytest.approx(nll(one.known.value, targets))
    difference, low, high = found["nll_to_temperature"]
    assert difference == pytest.approx(nll(one.known.value, targets) - nll(other.known.value, targets))
    width = found["nll_interval"][1] - found["nll_interval"][0]
    assert low < difference < high
    assert high - low < width  # what both share does not count
    assert found["apart"]["other"]["entropy"]["auroc"] > 0.5


def test_a_part_that_knows_adds_to_novelty_and_one_that_does_not_takes_from_it() -> None:
    torch.manual_seed(0)

    def answers(sees: bool) -> CrossFitted:
        def signs(count: int, strange: float) -> dict[str, Tensor]:
            spread = torch.randn(count).double() + (strange if sees else 0.0)
            novelty = (torch.randn(count).double() + strange).sigmoid()
            return {"novelty": novelty, "mutual_information": spread}

        known, unknown = (Answered(torch.zeros(count, 2), None, signs(count, strange))
                          for count, strange in ((2000, 0.0), (1000, 1.0)))  # fmt: skip
        return CrossFitted(known, torch.ones(2000, dtype=torch.bool), {"other": unknown}, [])

    for sees in (True, False):
        found = answers(sees)
        told = joined(found, resamples=100, seed=0)["other"]
        by_hand = auroc(
            torch.cat([found.known.signs["novelty"][1::2], found.unknown["other"].signs["novelty"]]),
            torch.cat([torch.zeros(1000), torch.ones(1000)]),
        )
        assert told["novelty"] == pytest.approx(by_hand, abs=2e-3)  # but for ends, which tie
        mean, low, high = told["1"]
        assert low <= mean <= high
        assert (low > 0) if sees else (high < 0)


def test_the_best_row_is_named_by_the_pictures_that_tuned_it() -> None:
    rows = {
        key: {"tuned": [{"nll": tuned}], "nll": scored}
        for key, tuned, scored in (
            (TEMPERATURE, 0.1, 0.1),
            (NOVEL, 0.3, 0.2),
            ("inf activation linear validation", 0.2, 0.3),
            ("kfac isotropic mc validation", 0.1, 0.1),
        )
    }
    assert best_of_ours(rows) == "inf activation linear validation"


def test_all_methods_have_a_key_and_both_networks() -> None:
    assert len(set(FULL_METHODS)) == len(FULL_METHODS)
    for key in FULL_METHODS:
        assert Method.parse(key).network in DEPTHS
    by_depth = [{key.rsplit(" ", 1)[0] for key in FULL_METHODS if key.endswith(f" {depth}")} for depth in DEPTHS]
    assert by_depth[0] == by_depth[1]
    experiment = get_experiment("cifar10-resnet")
    assert set(experiment.settings().methods) < set(experiment.settings(full=True).methods) == set(FULL_METHODS)
