"""All that a regressor returns is in the units of its targets."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from infoform.integrations.sklearn import InfRegressor
from infoform.integrations.units import in_units
from infoform.integrations.weight_decay import CANDIDATES, choose_weight_decay
from infoform.likelihoods import Regression


def test_a_prediction_in_other_units_is_that_of_the_scaled_gaussian() -> None:
    generator = torch.Generator().manual_seed(0)
    samples = torch.randn(50, 4, 2, generator=generator, dtype=torch.float64)
    scale, shift = torch.tensor([3.0, 0.5], dtype=torch.float64), torch.tensor([-10.0, 100.0], dtype=torch.float64)
    found = in_units(Regression(0.3).from_samples(samples, samples[0], noise=0.3), scale=scale, shift=shift)
    assert found.mean is not None
    assert found.samples is not None
    torch.testing.assert_close(found.mean, samples.mean(0) * scale + shift)
    torch.testing.assert_close(found.epistemic, (samples * scale).var(0))
    torch.testing.assert_close(found.aleatoric, (0.3 * scale).square().expand(4, 2))
    covariance = torch.stack([torch.cov((samples * scale)[:, n].T) for n in range(4)]) + (0.3 * scale).square().diag()
    entropy = 0.5 * torch.logdet(2 * math.pi * math.e * covariance)
    torch.testing.assert_close(found.entropy, entropy)
    torch.testing.assert_close(found.samples, samples * scale + shift)


def test_intervals_of_a_regressor_hold_its_targets() -> None:
    generator = np.random.default_rng(0)
    x = generator.uniform(-1, 1, (150, 1))
    y = 500 + 100 * x[:, 0] + 10 * generator.standard_normal(150)
    model = InfRegressor(hidden=(8,), epochs=60, random_state=0).fit(x, y)
    low, high = (end.numpy()[:, 0] for end in model.predictive(x).gaussian_interval(0.9))
    assert 0.8 < np.mean((low < y) & (y < high)) < 0.99
    mean, std = model.predict(x, return_std=True)
    prediction = model.predictive(x)
    assert prediction.mean is not None
    np.testing.assert_allclose(prediction.mean[:, 0].numpy(), mean)
    np.testing.assert_allclose(prediction.std[:, 0].numpy(), std)


@pytest.mark.parametrize("scale", ["std", "constant"])
def test_conformal_intervals_are_in_the_units_of_the_targets(scale: str) -> None:
    generator = np.random.default_rng(1)
    x = generator.uniform(-1, 1, (300, 1))
    y = 500 + 100 * x[:, 0] + 10 * generator.standard_normal(300)
    model = InfRegressor(hidden=(8,), epochs=60, random_state=0, tune="validation").fit(x, y)
    low, high = (end.numpy()[:, 0] for end in model.predictive(x).interval(0.9, scale=scale))
    assert 0.8 < np.mean((low < y) & (y < high)) < 0.99
    assert 20 < np.mean(high - low) < 60  # 33 is what the noise alone has


class _Shrunk(nn.Module):
    """Stands for a trained network: the truth, shrunk by its weight decay, and noise where that is small."""

    def __init__(self, decay: float, *, noise: float) -> None:
        super().__init__()
        self.decay, self.noise = decay, noise

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        free = self.noise / (1 + 10 * self.decay)
        wrong = torch.randn(x.shape, generator=torch.Generator().manual_seed(len(x)), dtype=x.dtype)
        return x / (1 + 0.2 * self.decay) + free * wrong


@pytest.mark.parametrize(("noise", "expected"), [(0.0, CANDIDATES[0]), (2.0, CANDIDATES[-1])])
def test_the_weight_decay_is_the_largest_that_held_out_data_can_bear(noise: float, expected: float) -> None:
    x = torch.linspace(-1, 1, 60, dtype=torch.float64)[:, None]
    generator = torch.Generator().manual_seed(0)
    chosen = choose_weight_decay(lambda _, decay: _Shrunk(decay, noise=noise), x, x, generator=generator)
    assert chosen == expected


def test_an_estimator_without_data_kept_out_says_how_to_have_intervals() -> None:
    x = np.random.default_rng(0).normal(size=(60, 3))
    model = InfRegressor(hidden=(5,), epochs=5, weight_decay=1.0, random_state=0).fit(x, x.sum(1))
    with pytest.raises(ValueError, match=r'no data were kept out of training for it, .* tune="validation"; .*gaussian'):
        model.predictive(x[:3]).interval(0.9)
