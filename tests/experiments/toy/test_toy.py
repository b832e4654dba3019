"""The toy regression in small: pieces, page and pictures, and the numbers on the page against naive ones."""

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from flat import flat_laplace
from infoform import Regression
from infoform.experiments import Result, get_experiment
from infoform.experiments.page import write_page
from infoform.experiments.toy.experiment import EXPERIMENT, METHODS, BandSettings, pseudo_root
from infoform.experiments.toy.network import toy_data, toy_network
from infoform.experiments.toy.page import WAYS, Band, distance, ground_truth, largest_r_hat

pytestmark = pytest.mark.starts_jax

SETTINGS = BandSettings(
    steps=500,
    restarts=2,
    learning_rate=0.02,
    bbb_steps=5,
    hmc_samples=40,
    hmc_chains=2,
    hmc_warmup=40,
    hmc_tree_depth=3,
    weight_samples=20,
    grid=(-6.0, 6.0, 13),
)


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    pytest.importorskip("numpyro")
    cache = tmp_path_factory.mktemp("cache")
    found = {key: EXPERIMENT.run_piece(key, SETTINGS, cache=cache) for key in ("laplace", "bbb", "hmc/1")}
    shifted = [value + 1 for value in found["hmc/1"]["mean"]]  # a second chain, without the time that it takes
    return {**found, "hmc/0": {**found["hmc/1"], "mean": shifted}}


def result_of(pieces: dict[str, Any]) -> Result:
    return Result("toy", asdict(SETTINGS), 0, len(pieces), pieces=pieces)


def test_every_method_has_a_band_at_every_setting(pieces: dict[str, Any]) -> None:
    assert set(pieces) == set(EXPERIMENT.pieces(SETTINGS)) == {"laplace", "bbb", "hmc/0", "hmc/1"}
    for way in WAYS:
        assert set(pieces["laplace"][way]) == set(METHODS)
        for band in pieces["laplace"][way].values():
            assert len(band["mean"]) == len(band["std"]) == 13
            assert all(map(math.isfinite, [*band["mean"], *band["std"]]))


def test_equal_bands_are_those_of_the_library(pieces: dict[str, Any]) -> None:
    (x, y), model = toy_data(SETTINGS, 0), toy_network(SETTINGS, 0)
    laplace = flat_laplace(model, Regression(3.0), structure="diag", fisher="exact").fit([(x, y)], progress=False)
    laplace.prior_precision = 0.01
    grid = torch.linspace(-6, 6, 13).double().unsqueeze(1)
    expected = laplace.predict(grid).epistemic.sqrt().flatten()
    assert_close(torch.tensor(pieces["laplace"]["linear"]["Diag"]["std"]).double(), expected)


def test_the_page_and_its_pictures_are_made_of_the_result_alone(pieces: dict[str, Any], tmp_path: Path) -> None:
    text = write_page("toy", result_of(pieces), tmp_path).read_text()
    pictures = {path.name for path in (tmp_path / "images").iterdir()}
    assert pictures == {f"toy-{name}.png" for name in (*WAYS, "covariance", "information")}
    assert all(f"../images/{name}" in text for name in pictures)
    assert all((tmp_path / "images" / name).stat().st_size < 200_000 for name in pictures)
    assert all(f"| {label} |" in text for label in METHODS)


def test_the_information_grows_with_the_data(pieces: dict[str, Any]) -> None:
    few, every = (torch.tensor(pieces["laplace"]["information"][key]["block"]) for key in ("few", "all"))
    assert_close(few, few.T)
    assert every.shape == (14, 14)
    found = pieces["laplace"]["information"]
    assert found["few"]["fixed_weights"] >= found["all"]["fixed_weights"]
    assert found["all"]["fixed_directions"] >= found["all"]["fixed_weights"]


def test_the_root_of_a_singular_precision_is_that_of_its_pseudo_inverse() -> None:
    factor = torch.randn(5, 3, generator=torch.Generator().manual_seed(0)).double()
    root, fixed = pseudo_root(factor @ factor.T)
    assert fixed == 2
    assert_close(root @ root.T, torch.linalg.pinv(factor @ factor.T, hermitian=True, rtol=1e-10))


def test_directions_of_little_precision_are_held_fixed_if_wanted() -> None:
    root, fixed = pseudo_root(torch.diag(torch.tensor([4.0, 0.1, 1.0]).double()), least=0.5)
    assert fixed == 1
    assert_close(root @ root.T, torch.diag(torch.tensor([0.25, 0.0, 1.0]).double()))


def test_chains_are_pooled_as_if_all_samples_were_one_set() -> None:
    numpyro = pytest.importorskip("numpyro.diagnostics")
    each = SETTINGS.hmc_samples // SETTINGS.hmc_chains
    drawn = torch.randn(2, each, 13, generator=torch.Generator().manual_seed(0)).double() + torch.tensor(
        [[[0.0]], [[0.5]]]
    )
    pieces = {
        f"hmc/{index}": {"mean": chain.mean(0).tolist(), "std": chain.std(0).tolist()}
        for index, chain in enumerate(drawn)
    }
    truth = ground_truth(result_of(pieces))
    assert_close(torch.tensor(truth.mean), drawn.flatten(0, 1).mean(0).float())
    assert_close(torch.tensor(truth.std), drawn.flatten(0, 1).std(0).float())
    assert largest_r_hat(result_of(pieces)) == pytest.approx(float(numpyro.gelman_rubin(drawn.numpy()).max()))


def test_distances_are_those_between_gaussians() -> None:
    band, truth = Band([1.0, 5.0, -2.0], [2.0, 1.0, 0.3]), Band([0.5, 5.0, 0.0], [1.0, 3.0, 0.3])
    found = distance(band, truth, [0, 2], noise=0.7)
    noisy = [
        torch.distributions.Normal(torch.tensor(one.mean), (torch.tensor(one.std) ** 2 + 0.49).sqrt())
        for one in (truth, band)
    ]
    divergence = torch.distributions.kl_divergence(*noisy)
    assert found.divergence == pytest.approx(float(divergence[[0, 2]].mean()), rel=1e-5)
    assert found.wasserstein == pytest.approx((math.hypot(0.5, 1.0) + 2.0) / 2)
    assert found.log_ratio == found.signed == pytest.approx(math.log(2) / 2)


def test_a_quick_run_has_far_fewer_samples() -> None:
    experiment = get_experiment("toy")
    assert experiment.settings().hmc_samples == 50_000
    assert experiment.settings(quick=True).hmc_samples <= 1000
    assert experiment.settings().weight_samples == 100
