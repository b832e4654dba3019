"""Classification experiments, all pieces and the page, on tiny pictures; training that is interrupted."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from flat import flat_laplace
from infoform.data.images import spaced
from infoform.experiments import get_experiment
from infoform.experiments.classification.experiment import Classification, ClassificationSettings, Parts, Run
from infoform.experiments.classification.page import chance_ece
from infoform.experiments.classification.targets import Target, against, fixed, memory
from infoform.experiments.method import Method
from infoform.experiments.networks.training import Training, train
from infoform.metrics import ece
from infoform.priors import Activation
from infoform.records.study_result import Result

METHOD = "inf activation:4 mc validation"
SETTINGS = ClassificationSettings(
    train=60, validation=20, curvature=30, test=24, unknown=20, networks=2, epochs=2, batch_size=20,
    learning_rate=1e-2, rank=3, prior_rank=4, samples=3, tuning_samples=2, swag_snapshots=3, search_trials=3,
    methods=(METHOD, "kfac isotropic linear evidence", "inf-paper isotropic mc search",
             "last-layer isotropic mc validation", "inf@uint8 activation:4 mc validation", "mc-dropout", "swag"),
    repeated=(METHOD,),
)  # fmt: skip


class Stripes(Classification):
    """Noisy stripes, upright or lying; unknown: noise."""

    name = "stripes"
    summary = "Stripes."
    reproduces = "nothing"
    last_layer = "5"
    paper: Mapping[str, tuple[float, float]] = {"plain": (0.1, 0.2), "ensemble": (0.3, 0.4)}
    targets: Sequence[Target] = (
        fixed("accuracy", "accuracy", 2.0, at_least=True, method=METHOD),
        against("NLL: the ensemble's", "nll", "ensemble", at_least=False, slack=9.0, method=METHOD),
        memory("bytes", "inf activation", "kfac isotropic", 9.0),
        fixed("of a method that is not there", "nll", 0.0, at_least=False, method="absent"),
    )

    def settings(self, *, quick: bool = False, full: bool = False) -> ClassificationSettings:
        return SETTINGS

    def network(self) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(48, 2)
        )

    def parts(self, settings: ClassificationSettings) -> Parts:
        generator = torch.Generator().manual_seed(0)

        def some(count: int) -> tuple[Tensor, Tensor]:
            labels = torch.randint(2, (count,), generator=generator)
            pictures = torch.randn(count, 1, 6, 6, generator=generator)
            pictures[labels == 0, :, ::2] += 1
            pictures[labels == 1, :, :, ::2] += 1
            return pictures, labels

        return Parts(
            train=some(settings.train),
            validation=some(settings.validation),
            curvature=some(settings.curvature),
            test=some(settings.test),
            unknown=3 * torch.randn(settings.unknown, 1, 6, 6, generator=generator),
        )


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    cache = tmp_path_factory.mktemp("cache")
    experiment = Stripes()
    keys = experiment.pieces(SETTINGS)
    found = Result("stripes", json.loads(json.dumps(vars(SETTINGS))), 0, len(keys))
    for key in keys:
        piece = experiment.run_piece(key, SETTINGS, cache=cache)
        json.dumps(piece, allow_nan=False)
        found = found.with_piece(key, piece, seconds=1.0, peak_memory_bytes=1)
    return found


def test_every_piece_has_its_measures(result: Result) -> None:
    assert result.complete
    rows = {key: piece for key, piece in result.pieces.items() if not key.startswith(("network", "curvature"))}
    for piece in rows.values():
        assert sum(piece["reliability"]["count"]) == SETTINGS.test
        assert sum(piece["histograms"]["known"]) == SETTINGS.test
        assert sum(piece["histograms"]["unknown"]) == SETTINGS.unknown
        assert 0 <= piece["auroc"] <= 1
        assert 0 <= piece["entropy_unknown"] <= 1
    assert "swa" in rows["swag 0"]
    assert len(rows["inf-paper isotropic mc search 0"]["tried"]) == 3


@pytest.mark.filterwarnings("ignore:networks with sampled weights are much worse")
def test_a_method_is_tuned_on_what_it_says_and_scored_as_by_hand(result: Result, tmp_path: Path) -> None:
    experiment, piece = Stripes(), result.pieces[f"{METHOD} 0"]
    parts = experiment.parts(SETTINGS)
    x, y = parts.train
    training = Training(2, 20, 1e-2, SETTINGS.l2)
    network = train(experiment.network, x, y, training=training, seed=0, path=tmp_path / "n.pt").network
    prior = Activation(strength=1.0)  # what a method has whose name does not say it
    laplace = flat_laplace(
        network, "classification", rank=3, prior=prior, prior_rank=4, statistics="all", block_limit=1, seed=0
    )
    laplace.fit([parts.curvature], progress=False)

    def nll(data: tuple[Tensor, Tensor], tau: float, samples: int) -> float:
        posterior = laplace.posterior(prior_precision=tau, num_data=60.0)
        probs = laplace.predict(data[0], kind="mc", samples=samples, posterior=posterior).probs
        assert probs is not None
        return float(-probs[torch.arange(len(data[0])), data[1]].log().mean())

    for tau, score in piece["tried"]:
        assert nll(parts.validation, tau, 2) == pytest.approx(score, rel=1e-3)
    assert piece["prior_precision"] == min(piece["tried"], key=lambda pair: pair[1])[0]
    assert piece["nll"] == pytest.approx(nll(parts.test, piece["prior_precision"], 3), rel=1e-3)


@pytest.mark.filterwarnings("ignore:networks with sampled weights are much worse")
def test_the_search_has_the_papers_grid_and_is_scored_by_the_ece(result: Result, tmp_path: Path) -> None:
    method = Method.parse("inf-paper isotropic mc search")
    experiment, settings = Stripes(), replace(SETTINGS, search_trials=7)
    run = Run(experiment, settings, tmp_path, 0)
    piece, laplace = run.laplace_piece(method), run.laplace()
    pairs = [(count, 10.0**power) for count in (1.0, 60.0, 120.0) for power in (0.0, 5.0)]
    assert [pair for *pair, _ in piece["tried"]] == [pytest.approx(pair) for pair in pairs]
    for count, tau, score in piece["tried"]:
        posterior = laplace.posterior(structure="inf-paper", prior="isotropic", prior_precision=tau, num_data=count)
        x, y = run.parts.validation
        probs = laplace.predict(x, kind="mc", samples=2, posterior=posterior).probs
        assert probs is not None
        assert score == pytest.approx(ece(probs, y), rel=1e-4)
    assert [piece["num_data"], piece["prior_precision"]] == min(piece["tried"], key=lambda one: one[2])[:2]


def test_the_page_and_its_pictures_are_made_of_the_result_alone(result: Result, tmp_path: Path) -> None:
    experiment = Stripes()
    page = experiment.page(result)
    assert "**missed** by" in page
    assert "| met |" in page
    assert "not measured in this run" in page
    for piece in ("plain network", "MC dropout", "SWAG", "`inf`, activation (4), `mc`"):
        assert piece in page
    experiment.charts(result, tmp_path)
    drawn = {path.name for path in tmp_path.iterdir()}
    assert drawn == {f"stripes-{name}.png" for name in ("reliability", "entropy", "eigenvalues", "tuning")}
    assert all(name in page for name in drawn)


def test_rows_are_spaced_evenly() -> None:
    assert spaced(10, 5).tolist() == [0, 2, 4, 6, 8]
    assert spaced(10, 10).tolist() == list(range(10))


def test_complexity_and_spectra_count_every_eigenvalue(result: Result) -> None:
    curvature = result.pieces["curvature 0"]
    assert curvature["complexity"]["5"]["weights"] == 2 * 49
    assert all(grid >= 3 for grid in curvature["complexity"]["5"]["grid"].values())
    assert sum(curvature["spectra"]["5"]["count"]) == 2 * 49


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_settings_of_all_sizes_name_methods_that_are_run(name: str) -> None:
    experiment = get_experiment(name)
    for size in ({}, {"quick": True}, {"full": True}):
        settings = experiment.settings(**size)
        keys = list(experiment.pieces(settings))
        assert len(keys) == len(set(keys))
        assert keys[0] == "network 0"
        assert keys[-1] == "ensemble 0"
        assert isinstance(experiment, Classification)
        assert isinstance(dict(experiment.network().named_modules())[experiment.last_layer], nn.Linear)


def test_the_ece_by_chance_is_that_of_answers_drawn_with_their_confidence() -> None:
    bins: dict[str, list[Any]] = {"confidence": [None, 0.3, 0.6, 0.95], "count": [0, 200, 500, 3000]}
    counts, confidence = torch.tensor([200.0, 500.0, 3000.0]).double(), torch.tensor([0.3, 0.6, 0.95]).double()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        right = torch.binomial(counts.expand(4000, 3), confidence.expand(4000, 3))
    simulated = (right - counts * confidence).abs().sum(1).mean() / counts.sum()
    assert chance_ece(bins) == pytest.approx(float(simulated), rel=0.03)
