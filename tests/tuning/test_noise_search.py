"""A regression's noise and τ found together: exact for the posterior they give, never worse than the noise alone."""

import math
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import infoform
from infoform.metrics import evaluate
from infoform.posteriors import STRUCTURES
from infoform.predicting.predictor import KINDS

Data = list[tuple[Tensor, Tensor]]
pytestmark = [
    pytest.mark.filterwarnings("ignore:the best prior_precision"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated"),  # by torch's own jvp, once
]


def overfitted() -> tuple[nn.Module, Data, Data]:
    """Return a network that has learned its noise: residuals of the training data are too small."""
    torch.manual_seed(0)
    x = torch.randn(120, 3, dtype=torch.float64)
    y = x[:, :1] ** 2 + 0.3 * torch.randn(120, 1, dtype=torch.float64)
    model = nn.Sequential(nn.Linear(3, 24), nn.Tanh(), nn.Linear(24, 1)).double()
    optimizer = torch.optim.Adam(model.parameters(), 2e-2)
    for _ in range(300):
        optimizer.zero_grad()
        functional.mse_loss(model(x[:60]), y[:60]).backward()
        optimizer.step()
    return model, [(x[:60], y[:60])], [(x[60:90], y[60:90]), (x[90:], y[90:])]


def by_noise_alone(model: nn.Module, data: Data) -> tuple[float, float]:
    """Return the noise of the validation residuals, and its mean negative log-likelihood."""
    x, y = (torch.cat(parts) for parts in zip(*data, strict=True))
    sigma = float((model(x).detach() - y).square().mean().sqrt())
    return sigma, 0.5 * math.log(2 * math.pi * sigma**2) + 0.5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("structure", STRUCTURES)
def test_the_best_score_is_never_above_that_of_the_noise_alone(structure: str, kind: str) -> None:
    model, train, validation = overfitted()
    sigma, reference = by_noise_alone(model, validation)
    laplace = infoform.Laplace(model, "regression", structure=structure).fit(train, progress=False)
    fitted = laplace.noise
    options: dict[str, Any] = {"kind": kind, "samples": 40}
    laplace.tune(validation, trials=9, **options, progress=False)
    assert laplace.plain_trial is not None
    assert laplace.plain_trial.noise == pytest.approx(sigma, rel=2e-3)
    assert laplace.plain_trial.scores["nll"] == pytest.approx(reference, abs=1e-5)
    assert laplace.noise is not None
    assert laplace.noise != fitted
    taken = next(trial for trial in laplace.trials if trial.noise == laplace.noise)
    assert taken.prior_precision == laplace.prior_precision
    prediction, targets = laplace.predict_loader(validation, **options, progress=False)
    assert targets is not None
    assert evaluate(prediction, targets)["nll"] == pytest.approx(taken.scores["nll"], rel=1e-5)


def test_a_known_noise_and_that_of_the_residuals_stay() -> None:
    model, train, validation = overfitted()
    known = infoform.Laplace(model, infoform.Regression(noise=0.3)).fit(train, progress=False)
    assert known.tune(validation, trials=3, progress=False).noise == 0.3
    with pytest.raises(ValueError, match="noise='validation' is for a noise that is not known"):
        known.tune(validation, noise="validation", progress=False)
    free = infoform.Laplace(model, "regression").fit(train, progress=False)
    before = free.noise
    assert free.tune(validation, noise="residuals", trials=3, progress=False).noise == before
    assert all(trial.noise is None for trial in free.trials)


@pytest.mark.parametrize("fisher", ["mc", "empirical"])
def test_posteriors_of_another_noise_are_as_wide_as_the_search_assumes(fisher: str) -> None:
    model, train, validation = overfitted()
    options = infoform.FitOptions(fisher=fisher)
    laplace = infoform.Laplace(model, "regression", fit_options=options).fit(train, progress=False)
    laplace.tune(validation, trials=5, progress=False)
    taken = next(trial for trial in laplace.trials if trial.noise == laplace.noise)
    prediction, targets = laplace.predict_loader(validation, progress=False)
    assert targets is not None
    assert evaluate(prediction, targets)["nll"] == pytest.approx(taken.scores["nll"], rel=1e-6)


@pytest.mark.parametrize("span", [(1e-4, 1e-2), (1e2, 1e6), (1.0, 1e4)])
def test_an_end_of_the_range_is_told_for_the_tau_that_was_searched(span: tuple[float, float]) -> None:
    """A noise that is found divides τ, which then may lie outside of the range without being at its end."""
    torch.manual_seed(0)
    x = torch.randn(160, 4)
    y = x[:, :1].sin() + 0.3 * torch.randn(160, 1)
    model = nn.Sequential(nn.Linear(4, 30), nn.Tanh(), nn.Linear(30, 1))
    laplace = infoform.Laplace(model, "regression").fit([(x[:60], y[:60])], progress=False)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        laplace.tune([(x[60:], y[60:])], prior_precision=span, trials=9, progress=False)
    best = min(range(9), key=lambda place: laplace.trials[place].scores["nll"])
    plain = laplace.plain_trial
    assert plain is not None
    near_plain = plain.scores["nll"] <= laplace.trials[best].scores["nll"] and span[0] < 1
    told_of_end = any("end of the searched range" in str(one.message) for one in told)
    assert told_of_end == (best in (0, 8)) or near_plain
