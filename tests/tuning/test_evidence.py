"""The log marginal likelihood equals its dense formula, and the one-dimensional ascent finds tops."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import infoform
from flat import flat_laplace
from infoform.posteriors import PRESETS, STRUCTURES
from infoform.tuning.evidence import maximise


def make_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()


def fit(likelihood: Any = "classification", **options: Any) -> tuple[infoform.Laplace, Tensor, Tensor]:
    torch.manual_seed(1)
    x = torch.randn(40, 4).double()
    y = torch.randn(40, 3).double() if not isinstance(likelihood, str) else torch.randint(0, 3, (40,))
    laplace = flat_laplace(make_model(), likelihood, statistics="all", rank=9, prior_rank=2, **options)
    return laplace.fit([(x, y)], progress=False), x, y


def dense_log_evidence(laplace: infoform.Laplace, x: Tensor, y: Tensor, **options: Any) -> float:
    """Return log N-approximation of the integral, from dense matrices and torch.distributions."""
    outputs = laplace.model(x).detach()
    if laplace.noise is None:
        total = torch.distributions.Categorical(logits=outputs).log_prob(y).sum()
    else:
        total = torch.distributions.Normal(outputs, laplace.noise).log_prob(y).sum()
    total = options.get("num_data", len(x)) / len(x) * total
    tau = options.get("prior_precision", laplace.prior_precision)
    for name, layer in laplace.posterior(**options).layers.items():
        prior = tau * torch.eye(layer.shape[0] * layer.shape[1]).double()  # the part of the prior centred at zero
        mean = laplace.layers[name].mean.flatten()
        total = total + torch.distributions.MultivariateNormal(torch.zeros_like(mean), precision_matrix=prior).log_prob(
            mean
        )
        total = total + 0.5 * len(mean) * math.log(2 * math.pi) - 0.5 * torch.linalg.slogdet(layer.dense()).logabsdet
    return float(total)


@pytest.mark.parametrize("prior", ["isotropic", "activation"])
@pytest.mark.parametrize("structure", [*STRUCTURES, *PRESETS])
def test_evidence_equals_the_dense_formula(structure: str, prior: str) -> None:
    laplace, x, y = fit(prior=prior)
    for precision in (0.01, 1.0, 30.0):
        found = laplace.log_evidence(structure=structure, prior_precision=precision)
        expected = dense_log_evidence(laplace, x, y, structure=structure, prior_precision=precision)
        assert found == pytest.approx(expected, rel=1e-8)


def test_evidence_of_regression_counts_the_noise() -> None:
    for likelihood in (infoform.Regression(), infoform.Regression(noise=0.7)):
        laplace, x, y = fit(likelihood)
        assert laplace.log_evidence() == pytest.approx(dense_log_evidence(laplace, x, y), rel=1e-8)


@pytest.mark.parametrize("structure", [*STRUCTURES, *PRESETS])
def test_evidence_of_more_examples_than_were_fitted_equals_the_dense_formula(structure: str) -> None:
    for likelihood in ("classification", infoform.Regression()):
        laplace, x, y = fit(likelihood)
        options: dict[str, Any] = {"structure": structure, "prior_precision": 3.0, "num_data": 250.0}
        assert laplace.log_evidence(**options) == pytest.approx(dense_log_evidence(laplace, x, y, **options), rel=1e-8)


@pytest.mark.parametrize("noise", ["residuals", "evidence"])
@pytest.mark.parametrize("per_layer", [False, True])
@pytest.mark.parametrize("prior", ["isotropic", "activation"])
def test_examples_that_stand_for_several_are_tuned_as_if_they_were_there_several_times(
    prior: str, per_layer: bool, noise: str
) -> None:
    torch.manual_seed(1)
    x, y = torch.randn(40, 4).double(), torch.randn(40, 3).double()
    once, thrice = (
        flat_laplace(make_model(), "regression", fisher="exact", structure="full", prior=prior, prior_rank=2).fit(
            [(x, y)] * times, progress=False
        )
        for times in (1, 3)
    )
    once.tune(num_data=120, per_layer=per_layer, noise=noise)
    thrice.tune(per_layer=per_layer, noise=noise)
    assert once.num_data == thrice.num_data == 120
    assert once.noise == pytest.approx(thrice.noise, rel=1e-9)
    assert once.prior_precision == pytest.approx(thrice.prior_precision, rel=1e-6)
    assert once.log_evidence() == pytest.approx(thrice.log_evidence(), rel=1e-9)


def test_evidence_is_searched_within_the_given_range() -> None:
    laplace, _, _ = fit()
    free = laplace.tune().prior_precision
    assert isinstance(free, float)
    above = laplace.tune(prior_precision=(10 * free, 100 * free)).prior_precision
    assert above == pytest.approx(10 * free, rel=0.011)
    assert laplace.tune(prior_precision=(free / 2, free * 2)).prior_precision == pytest.approx(free, rel=0.03)


def test_a_number_of_data_that_evidence_cannot_have_is_refused() -> None:
    laplace, _, _ = fit()
    before = laplace.prior_precision
    for count in ((10.0, 100.0), 0.0, -3.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="num_data by evidence must be one positive and finite number, got"):
            laplace.tune(num_data=count)
    with pytest.raises(ValueError, match="prior_precision must be a range of positive numbers"):
        laplace.tune(prior_precision=(0.0, 1.0))
    assert (laplace.prior_precision, laplace.num_data) == (before, 40.0)


def test_evidence_needs_targets() -> None:
    laplace = infoform.Laplace(make_model(), "classification").fit([torch.randn(9, 4).double()], progress=False)
    with pytest.raises(ValueError, match="targets of the fitted data"):
        laplace.log_evidence()


@pytest.mark.parametrize("per_layer", [False, True])
@pytest.mark.parametrize("prior", ["isotropic", "activation"])
@pytest.mark.parametrize("structure", ["diag", "kfac", "efb", "inf", "full"])
def test_tuned_precisions_beat_all_others(structure: str, prior: str, per_layer: bool) -> None:
    laplace, _, _ = fit(prior=prior, structure=structure)
    laplace.tune(per_layer=per_layer)
    best = laplace.log_evidence()
    assert isinstance(laplace.prior_precision, dict) is per_layer
    if isinstance(laplace.prior_precision, float):
        others = [laplace.log_evidence(prior_precision=10.0**power) for power in range(-5, 6)]
    else:
        tuned = dict(laplace.prior_precision)
        others = [
            laplace.log_evidence(prior_precision={**tuned, name: tuned[name] * factor})
            for name in tuned
            for factor in (0.01, 0.3, 3.0, 100.0)
        ]
    assert best >= max(others) - 1e-3


def test_tuning_finds_the_noise_of_a_linear_model() -> None:
    torch.manual_seed(0)
    x = torch.randn(2000, 3).double()
    y = x @ torch.tensor([[1.0], [-2.0], [0.5]]).double() + 0.3 * torch.randn(2000, 1).double()
    model = nn.Linear(3, 1, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(torch.linalg.lstsq(x, y).solution.T)
    laplace = flat_laplace(model, "regression", structure="full", fisher="exact").fit([(x, y)], progress=False)
    laplace.tune(noise="evidence")
    assert laplace.noise == pytest.approx(0.3, rel=0.05)
    assert laplace.noise is not None
    # MacKay's fixed point: τ = γ / |w|², γ the number of well-determined weights
    eigenvalues = torch.linalg.eigvalsh(x.T @ x) / laplace.noise**2
    assert isinstance(laplace.prior_precision, float)
    gamma = float((eigenvalues / (eigenvalues + laplace.prior_precision)).sum())
    assert laplace.prior_precision == pytest.approx(gamma / float(model.weight.detach().square().sum()), rel=0.03)


def test_known_noise_is_left_alone() -> None:
    laplace, _, _ = fit(infoform.Regression(noise=0.7))
    assert laplace.tune(noise="evidence").noise == 0.7


def test_noise_stays_as_the_residuals_have_it_unless_asked_for() -> None:
    laplace, _, _ = fit(infoform.Regression())
    before = laplace.noise
    assert laplace.tune().noise == before
    assert laplace.tune(noise="evidence").noise != before


def test_noise_by_another_name_or_from_validation_is_refused() -> None:
    laplace, x, y = fit(infoform.Regression())
    with pytest.raises(ValueError, match="noise must be one of 'residuals', 'evidence', got 'free'"):
        laplace.tune(noise="free")
    with pytest.raises(ValueError, match=r"noise .with val_loader. must be one of 'residuals', 'validation'"):
        laplace.tune([(x, y)], noise="evidence", progress=False)


def test_evidence_prefers_the_right_model() -> None:
    torch.manual_seed(0)
    x = torch.randn(300, 2).double()
    y = torch.sin(2 * x[:, :1]) + 0.1 * torch.randn(300, 1).double()

    def trained(hidden: int) -> float:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(2, hidden), nn.Tanh(), nn.Linear(hidden, 1)).double()
        optimizer = torch.optim.Adam(model.parameters(), 1e-2, weight_decay=1e-4)
        for _ in range(600):
            optimizer.zero_grad()
            (model(x) - y).square().mean().backward()
            optimizer.step()
        laplace = flat_laplace(model, "regression", fisher="exact", structure="full")
        return laplace.fit([(x, y)], progress=False).tune().log_evidence()

    assert trained(8) > trained(1) + 10


@pytest.mark.parametrize(
    ("function", "top"),
    [
        (lambda x: -((x - 1.234) ** 2), 1.234),
        (lambda x: -math.cosh(x - 7.7), 7.7),
        (lambda x: -((x + 3) ** 4) - abs(x + 3), -3.0),
        (lambda x: x, 14.0),
        (lambda x: -x, -14.0),
        (lambda x: -math.log1p(math.exp(-x)) - 0.1 * x, math.log(9)),
    ],
)
def test_maximise_finds_the_top(function: Callable[[float], float], top: float) -> None:
    calls = []

    def counted(x: float) -> float:
        calls.append(x)
        return function(x)

    found, value = maximise(counted, -14.0, 14.0)
    assert abs(found - top) < 0.011
    assert value == function(found)
    assert len(calls) < 30
