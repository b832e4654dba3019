"""Deep ensembles: members differ by their seed, and predictions are their mean."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from infoform.baselines import Ensemble
from infoform.likelihoods import Regression

Batches = list[tuple[Tensor, Tensor]]


def build() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).double()


def batches() -> Batches:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(12, 3, dtype=torch.float64, generator=generator)
    return list(zip(x.split(4), torch.randint(3, (12,), generator=generator).split(4), strict=True))


def test_members_are_trained_as_by_hand_from_their_own_seeds() -> None:
    model = build()
    before = copy.deepcopy(model.state_dict())
    ensemble = Ensemble(model, "classification", members=2, factory=build, epochs=3, learning_rate=0.05, seed=7)
    ensemble.fit(batches(), progress=False)
    for number, member in enumerate(ensemble.members):
        torch.manual_seed(7 + number)
        expected = build()
        optimizer = torch.optim.Adam(expected.parameters(), 0.05)
        for _ in range(3):
            for x, y in batches():
                optimizer.zero_grad()
                functional.cross_entropy(expected(x), y).backward()
                optimizer.step()
        for name, value in expected.state_dict().items():
            torch.testing.assert_close(member.state_dict()[name], value, rtol=1e-9, atol=1e-12)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_without_a_factory_layers_draw_their_weights_anew() -> None:
    model = build()
    ensemble = Ensemble(model, "classification", members=2, epochs=1, learning_rate=1e-9).fit(batches(), progress=False)
    first, second = (member.state_dict()["0.weight"] for member in ensemble.members)
    assert not torch.allclose(first, second, atol=1e-3)
    assert not torch.allclose(first, model.state_dict()["0.weight"], atol=1e-3)


def test_a_prediction_is_the_mean_over_members() -> None:
    networks = []
    for seed in range(3):
        torch.manual_seed(seed)
        networks.append(build())
    ensemble = Ensemble.of(networks, "classification")
    x = batches()[0][0]
    each = torch.stack([network(x).softmax(1) for network in networks]).detach()
    for samples in (1, 3):
        probs = ensemble.predict(x, samples=samples).probs
        assert probs is not None
        torch.testing.assert_close(probs, each[:samples].mean(0), rtol=1e-12, atol=0)
    default = ensemble.predict(x).probs
    assert default is not None
    torch.testing.assert_close(default, each.mean(0), rtol=1e-12, atol=0)
    with pytest.raises(ValueError, match="at most the 3 members, got 4"):
        ensemble.predict(x, samples=4)


def test_an_ensemble_of_none_or_of_unknown_noise_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one network"):
        Ensemble.of([], "classification")
    with pytest.raises(ValueError, match="known noise"):
        Ensemble.of([build()], "regression")
    assert Ensemble.of([build()], Regression(noise=0.5)).noise == 0.5


def test_a_layer_that_cannot_be_drawn_anew_is_named() -> None:
    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.factor = nn.Parameter(torch.ones(3, dtype=torch.float64))

        def forward(self, x: Tensor) -> Tensor:
            return x * self.factor

    with pytest.raises(ValueError, match="'3' is a Scale"):
        Ensemble(nn.Sequential(*build(), Scale()), "classification").fit(batches(), progress=False)
