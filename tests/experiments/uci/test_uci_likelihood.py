from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from torch.distributions import Normal
from torch.testing import assert_close

from infoform.experiments import Result
from infoform.experiments.uci.likelihood import (
    EXPERIMENT,
    Choice,
    best_noise,
    choose,
    chosen_networks,
    epistemic,
    fitted,
    log_likelihood,
    residuals,
)
from infoform.experiments.uci.likelihood_long import EXPERIMENT as LONG
from infoform.experiments.uci.networks import split_of
from infoform.posteriors import get_structure


def test_log_likelihoods_are_those_of_a_normal() -> None:
    residual, variance = torch.tensor([0.3, -2.0]).double(), torch.tensor([0.5, 4.0]).double()
    assert_close(log_likelihood(residual, variance), Normal(0.0, variance.sqrt()).log_prob(residual))
    best, score = best_noise(residual)
    for other in (0.9 * best, 1.1 * best):
        assert float(log_likelihood(residual, torch.tensor(other)).mean()) < score


@pytest.mark.parametrize("structure", ["kfac", "inf", "full"])
def test_the_choice_is_as_good_as_the_best_of_a_grid_by_hand(small_uci: Path, structure: str) -> None:
    settings = replace(EXPERIMENT.settings(quick=True), short_epochs=2)
    model = chosen_networks("short", "yacht", settings, small_uci)[0].held_out
    held = split_of("yacht", 0, held_out=settings.held_out)
    laplace, kind = fitted(model, held), get_structure(structure)
    found = choose(laplace, held, kind, settings)
    residual = residuals(model, held)

    def reached(choice: Choice) -> float:
        return float(log_likelihood(residual, epistemic(laplace, held, kind, choice) + choice.noise**2).mean())

    best = reached(found)
    for factor in 10.0 ** torch.linspace(-1.5, 1.5, 7):
        for tau in 10.0 ** torch.linspace(-3, 3, 7):
            for noise in found.noise * 10.0 ** torch.linspace(-0.5, 0.5, 5):
                assert reached(Choice(float(factor), float(tau), float(noise))) <= best + 1e-3


def test_a_factor_of_both_n_and_tau_scales_the_variance(small_uci: Path) -> None:
    settings = replace(EXPERIMENT.settings(quick=True), short_epochs=2)
    split = split_of("yacht", 0)
    laplace = fitted(chosen_networks("short", "yacht", settings, small_uci)[0].model, split)
    assert laplace.num_data is not None
    for structure in ("kfac", "inf", "inf-paper", "full"):
        assert laplace.noise is not None
        once = epistemic(laplace, split, get_structure(structure), Choice(1.0, 2.0, laplace.noise))
        posterior = laplace.posterior(structure=structure, prior_precision=6.0, num_data=3 * laplace.num_data)
        assert_close(once / 3, laplace.predict(split.test_x, posterior=posterior).epistemic[:, 0], rtol=1e-6, atol=0)


def test_pieces_and_a_page(small_uci: Path) -> None:
    settings = replace(EXPERIMENT.settings(quick=True), sets=("yacht",), splits=1, short_epochs=3, long_epochs=20)
    assert [LONG.settings().trainings, EXPERIMENT.settings().trainings] == [("long",), ("short",)]
    settings = replace(settings, trials=8, trainings=("short", "long"))
    result = Result("uci-likelihood", asdict(settings), 0, 2)
    for key in EXPERIMENT.pieces(settings):
        piece = EXPERIMENT.run_piece(key, settings, cache=small_uci / "cache")
        result = result.with_piece(key, piece, seconds=1.0, peak_memory_bytes=1)
    piece = result.pieces["long/yacht/0"]
    assert piece["epochs"] in (2, 6, 20)
    assert piece["decay"] in settings.decays
    assert piece["equal"]["exact"] == piece["tuned"]["exact"]
    assert set(piece["tuned"]) < set(piece["equal"])
    model = chosen_networks("long", "yacht", settings, small_uci / "cache")[0].model
    split = split_of("yacht", 0)
    residual = (model(split.test_x) - split.test_y).detach()
    assert piece["rmse"] == pytest.approx(float(residual.square().mean().sqrt()) * split.target_std, 1e-6)
    text = EXPERIMENT.page(result)
    assert "| yacht | 9.568 |" in text
    assert "MC-dropout's published value on" in text
