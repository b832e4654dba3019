import copy
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from infoform import Classification, Likelihood, MultiLabel, Regression
from infoform.baselines import HMC
from infoform.baselines.baseline import log_density

pytestmark = pytest.mark.starts_jax

NOISE, PRECISION = 0.5, 2.0


@pytest.fixture(autouse=True)
def _needs_numpyro() -> None:
    pytest.importorskip("numpyro")


def linear_data() -> tuple[nn.Linear, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(12, 2, generator=generator, dtype=torch.float64) @ torch.tensor([[1.0, 0.6], [0.0, 0.5]]).double()
    y = x @ torch.tensor([[1.0], [-2.0]]).double() + 0.5 + NOISE * torch.randn(12, 1, generator=generator).double()
    torch.manual_seed(0)
    return nn.Linear(2, 1).double(), x, y


def exact_posterior(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and covariance of (weights, bias) of Bayesian linear regression."""
    inputs = torch.cat([x, torch.ones(len(x), 1).double()], dim=1)
    precision = inputs.T @ inputs / NOISE**2 + PRECISION * torch.eye(3).double()
    covariance = torch.linalg.inv(precision)
    return covariance @ inputs.T @ y[:, 0] / NOISE**2, covariance


@pytest.mark.parametrize("kernel", ["nuts", "hmc"])
def test_samples_are_of_the_exact_posterior_of_a_linear_model(kernel: str) -> None:
    model, x, y = linear_data()
    hmc = HMC(
        model,
        Regression(NOISE),
        prior_precision=PRECISION,
        samples=2000,
        warmup=300,
        kernel=kernel,
        trajectory_length=2,
    )
    hmc.fit([(x[:7], y[:7]), (x[7:], y[7:])], progress=False)
    weights = hmc.sample(2000)
    drawn = torch.cat([weights["weight"][:, 0], weights["bias"]], dim=1)
    mean, covariance = exact_posterior(x, y)
    root = torch.linalg.cholesky(torch.linalg.inv(covariance)).T
    white = (drawn - mean) @ root.T  # N(0, I) if the samples are right
    found = hmc.diagnostics(x)
    error = 1 / found.effective_samples**0.5
    assert white.mean(0).abs().max() < 5 * error
    assert (white.T.cov() - torch.eye(3).double()).abs().max() < 8 * error
    assert found.effective_samples > 200
    assert found.r_hat < 1.05
    assert found.divergences == 0
    assert 0.5 < found.accept_prob <= 1
    prediction = hmc.predict(x)
    inputs = torch.cat([x, torch.ones(len(x), 1).double()], dim=1)
    assert_close(prediction.value[:, 0], inputs @ mean, rtol=0, atol=5 * error)
    assert_close(prediction.epistemic[:, 0], (inputs @ covariance * inputs).sum(1), rtol=8 * error, atol=0)
    assert_close(prediction.aleatoric, torch.full((12, 1), NOISE**2).double())


class TiedNetwork(nn.Module):
    """Two layers that share their weight, one with a frozen bias."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(3, 3), nn.Linear(3, 3)
        self.two.weight = self.one.weight
        self.two.bias.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.two(torch.tanh(self.one(x)))
        return out


@pytest.mark.parametrize(
    ("likelihood", "targets"),
    [
        (Regression(0.7), torch.randn(5, 3).double()),
        (Regression([0.7, 2.0, 0.1]), torch.randn(5, 3).double()),
        (Classification(), torch.tensor([0, 2, 1, 1, 2])),
        (MultiLabel(), torch.rand(5, 3).double()),
    ],
)
def test_the_potential_is_the_negative_log_posterior(likelihood: Likelihood, targets: Tensor) -> None:
    jax = pytest.importorskip("jax")
    from infoform.baselines.jax_sampler import make_potential

    network = TiedNetwork().double()
    x = torch.randn(5, 3).double()
    free = {name: p.detach() for name, p in network.named_parameters() if p.requires_grad}
    other = {name: value + 0.3 for name, value in free.items()}

    def expected(weights: dict[str, Tensor]) -> float:
        outputs = torch.func.functional_call(network, weights, (x,))
        noise = torch.tensor(likelihood.noise, dtype=torch.float64) if isinstance(likelihood, Regression) else None
        penalty = sum(float(weight.square().sum()) for weight in weights.values())
        return PRECISION / 2 * penalty - float(log_density(likelihood, outputs, targets, noise).sum())

    with jax.enable_x64(True):
        potential = make_potential(network, likelihood, x, targets, PRECISION)
        given = [{k: jax.numpy.asarray(v.numpy()) for k, v in weights.items()} for weights in (free, other)]
        difference = float(potential(given[1]) - potential(given[0]))
    assert difference == pytest.approx(expected(other) - expected(free), rel=1e-9)


def test_chains_of_a_classifier_start_where_they_are_told_and_the_model_stays() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 3))
    model[0].requires_grad_(False)
    before = copy.deepcopy(model.state_dict())
    x, y = torch.randn(9, 2), torch.arange(9) % 3
    hmc = HMC(model, "classification", samples=20, warmup=10, chains=2, kernel="hmc", start="prior", seed=1)
    hmc.fit([(x, y)], progress=False)
    weights = hmc.sample(40)
    assert set(weights) == {"2.weight", "2.bias"}
    assert weights["2.weight"].shape == (40, 3, 3)
    assert weights["2.weight"].dtype == torch.float32
    assert hmc.predict(x).probs is not None
    assert_close(hmc.predict(x).plain, model(x).detach())
    assert_close(hmc.predict(x, samples=7, seed=3).value, hmc.predict(x, samples=7, seed=3).value)
    assert hmc.predict(x, samples=7).samples is not None
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    assert not model[0].weight.requires_grad
    with pytest.raises(ValueError, match="samples must be at most the 40 that HMC kept, got 41"):
        hmc.predict(x, samples=41)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kernel": "gibbs"}, "kernel must be one of 'nuts', 'hmc', got 'gibbs'"),
        ({"start": "zero"}, "start must be one of"),
        ({"samples": 0}, "samples must be a whole number"),
        ({"warmup": -1}, "warmup must be a whole number"),
        ({"prior_precision": 0.0}, "prior_precision must be above 0"),
        ({"target_accept": 1.0}, "target_accept must be between 0 and 1"),
        ({"trajectory_length": 0.0}, "trajectory_length must be above 0"),
    ],
)
def test_settings_are_checked_when_they_are_given(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HMC(nn.Linear(2, 2), "classification", **settings)


def test_what_cannot_be_sampled_is_refused() -> None:
    model, x, y = linear_data()
    with pytest.raises(ValueError, match=r"HMC needs to know the noise of a regression; give Regression\(noise"):
        HMC(model, "regression")
    hmc = HMC(model, Regression(NOISE), samples=2, warmup=2)
    with pytest.raises(RuntimeError, match="this HMC is not fitted yet"):
        hmc.predict(x)
    with pytest.raises(ValueError, match="training needs targets"):
        hmc.fit([x], progress=False)
    with pytest.raises(TypeError, match="one tensor of inputs"):
        hmc.fit([(x, x, y)], progress=False)
    with pytest.raises(ValueError, match="the loader gave no examples"):
        hmc.fit([], progress=False)
    model.requires_grad_(False)
    with pytest.raises(ValueError, match="requires_grad=True"):
        HMC(model, Regression(NOISE)).fit([(x, y)], progress=False)


def test_without_numpyro_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x, y = linear_data()
    monkeypatch.delitem(sys.modules, "infoform.baselines.jax_sampler", raising=False)
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'infoform\[hmc\]'"):
        HMC(model, Regression(NOISE)).fit([(x, y)], progress=False)
