import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from infoform import Regression
from infoform.baselines import BBB

NOISE, PRECISION = 0.5, 2.0


def linear_data() -> tuple[nn.Linear, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    mix = torch.tensor([[1.0, 0.6], [0.0, 0.5]])
    x = (torch.randn(20, 2, generator=generator) @ mix).double()
    y = x @ torch.tensor([[1.0], [-2.0]]).double() + 0.5 + NOISE * torch.randn(20, 1, generator=generator).double()
    torch.manual_seed(0)
    return nn.Linear(2, 1).double(), x, y


def exact_precision(x: Tensor, *, kl_weight: float = 1.0) -> tuple[Tensor, Tensor]:
    """Return the inputs with a column of ones, and P of Bayesian linear regression."""
    inputs = torch.cat([x, torch.ones(len(x), 1).double()], dim=1)
    return inputs, inputs.T @ inputs / NOISE**2 / kl_weight + PRECISION * torch.eye(3).double()


@pytest.mark.parametrize(("weighting", "kl_weight"), [("uniform", 1.0), ("blundell", 5.0)])
def test_the_optimum_is_that_of_the_elbo_of_a_linear_model(weighting: str, kl_weight: float) -> None:
    """The best factorised Gaussian has the exact mean and the variances 1 / diag(P), P tempered by β."""
    model, x, y = linear_data()
    bbb = BBB(
        model,
        Regression(NOISE),
        prior_precision=PRECISION,
        epochs=250,
        learning_rate=0.1,
        samples=4,
        kl_weight=kl_weight,
        kl_weighting=weighting,
    )
    bbb.fit([(x[:12], y[:12]), (x[12:], y[12:])], progress=False)
    inputs, precision = exact_precision(x, kl_weight=kl_weight)
    mean = torch.linalg.solve(precision, inputs.T @ y[:, 0] / NOISE**2 / kl_weight)
    weights = dict(bbb.network.named_parameters())
    found = torch.cat([weights["weight"][0], weights["bias"]]).detach()
    std = torch.cat([bbb.std["weight"][0], bbb.std["bias"]])
    expected = precision.diagonal().rsqrt()
    assert ((found - mean) / expected).abs().max() < 0.1
    assert_close(std, expected, rtol=0.08, atol=0)


def test_predictions_are_those_of_the_fitted_gaussian() -> None:
    model, x, y = linear_data()
    bbb = BBB(model, Regression(NOISE), epochs=3).fit([(x, y)], progress=False)
    prediction = bbb.predict(x, samples=20_000, seed=4)
    variance = x**2 @ bbb.std["weight"][0] ** 2 + bbb.std["bias"] ** 2
    assert_close(prediction.epistemic[:, 0], variance, rtol=0.05, atol=0)
    assert_close(prediction.plain, bbb.network(x).detach())
    weights = bbb.sample(3, seed=4)
    assert {name: tuple(value.shape) for name, value in weights.items()} == {"weight": (3, 1, 2), "bias": (3, 1)}
    assert_close(bbb.sample(3, seed=4)["weight"], weights["weight"])


def test_the_noise_is_learned_where_it_is_not_given() -> None:
    model, x, y = linear_data()
    bbb = BBB(model, "regression", epochs=200, learning_rate=0.1, samples=2, prior_precision=0.01)
    bbb.fit([(x, y)], progress=False)
    inputs, _ = exact_precision(x)
    drawn = bbb.sample(5000)
    outputs = torch.einsum("mga,na->mng", torch.cat([drawn["weight"], drawn["bias"][:, :, None]], dim=2), inputs)
    expected = (outputs - y).square().mean().sqrt()  # at the optimum: σ² = E_q (y − f)²
    assert bbb.noise == pytest.approx(float(expected), rel=0.08)


def test_the_kl_is_that_of_torch_distributions() -> None:
    bbb = BBB(nn.Linear(2, 2), "classification", prior_precision=PRECISION)
    mean, raw = torch.randn(3, 4).double(), torch.randn(3, 4).double()
    q = torch.distributions.Normal(mean, nn.functional.softplus(raw))
    p = torch.distributions.Normal(torch.zeros_like(mean), torch.full_like(mean, 1 / math.sqrt(PRECISION)))
    assert_close(bbb._divergence(mean, raw), torch.distributions.kl_divergence(q, p).sum())


@pytest.mark.parametrize("weighting", ["uniform", "blundell"])
def test_the_shares_of_the_kl_add_up_to_one(weighting: str) -> None:
    bbb = BBB(nn.Linear(2, 2), "classification", kl_weighting=weighting)
    shares = [bbb._share(index, 7) for index in range(7)]
    assert sum(shares) == pytest.approx(1)
    if weighting == "blundell":
        assert shares == pytest.approx([2 ** (7 - b) / (2**7 - 1) for b in range(1, 8)])


def test_a_classifier_with_batch_norm_learns_and_the_model_stays() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    model[3].bias.requires_grad_(False)
    before, mode = copy.deepcopy(model.state_dict()), model.training
    state = torch.get_rng_state()
    x = torch.randn(60, 2, generator=torch.Generator().manual_seed(1))
    y = (x[:, 0] > 0).long()
    bbb = BBB(model, "classification", epochs=60, learning_rate=0.02, antithetic=False, samples=1, schedule="constant")
    bbb.fit([(x[:30], y[:30]), (x[30:], y[30:])], progress=False)
    prediction, targets = bbb.predict_loader([(x[:50], y[:50]), (x[50:], y[50:])], samples=20, progress=False)
    assert targets is not None
    assert (prediction.labels == targets).float().mean() > 0.9
    assert "3.bias" not in bbb.std
    assert bbb.losses[-1] < bbb.losses[0]
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training == mode
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"prior_precision": 0.0}, "prior_precision must be positive and finite, got 0.0"),
        ({"kl_weight": -1.0}, "kl_weight must be at least 0"),
        ({"schedule": "step"}, "schedule must be one of"),
        ({"kl_weighting": "none"}, "kl_weighting must be one of"),
        ({"samples": 3}, "samples must be even to be drawn in pairs, got 3"),
        ({"epochs": 0}, "epochs must be a whole number"),
    ],
)
def test_settings_are_checked_when_they_are_given(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BBB(nn.Linear(2, 2), "classification", **settings)


def test_what_cannot_be_trained_is_refused() -> None:
    model, x, y = linear_data()
    with pytest.raises(ValueError, match="the loader gave no examples"):
        BBB(model, "regression").fit([], progress=False)
    with pytest.raises(ValueError, match="the ELBO is not finite in epoch 1; lower learning_rate"):
        BBB(model, Regression(NOISE)).fit([(torch.full_like(x, math.inf), y)], progress=False)
    model.requires_grad_(False)
    with pytest.raises(ValueError, match="requires_grad=True"):
        BBB(model, Regression(NOISE)).fit([(x, y)], progress=False)
