"""SWA and SWAG against moments of a training written out, and batch norm against a pass over all data."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from infoform.baselines import SWA, SWAG
from infoform.baselines.moments import Moments, renewed_batch_norm

Batches = list[tuple[Tensor, Tensor]]
OPTIONS = {"epochs": 3, "every": 1, "learning_rate": 0.1, "momentum": 0.5}


def build(norm: bool = False) -> nn.Sequential:
    torch.manual_seed(0)
    middle = [nn.BatchNorm1d(4)] if norm else []
    return nn.Sequential(nn.Linear(3, 4), *middle, nn.Tanh(), nn.Linear(4, 3)).double()


def batches() -> Batches:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(12, 3, dtype=torch.float64, generator=generator)
    return list(zip(x.split(4), torch.randint(3, (12,), generator=generator).split(4), strict=True))


def trajectory(network: nn.Module) -> dict[str, Tensor]:
    """Train as OPTIONS say; return the weights after every step, (steps, *shape) by name."""
    optimizer = torch.optim.SGD(network.parameters(), 0.1, momentum=0.5)
    seen = []
    for _ in range(3):
        for x, y in batches():
            optimizer.zero_grad()
            functional.cross_entropy(network(x), y).backward()
            optimizer.step()
            seen.append({name: value.detach().clone() for name, value in network.named_parameters()})
    return {name: torch.stack([one[name] for one in seen]) for name in seen[0]}


def flat(weights: dict[str, Tensor], names: list[str]) -> Tensor:  # (M, *shape) each -> (M, P)
    return torch.cat([weights[name].flatten(1) for name in names], dim=1)


def test_swa_has_the_mean_of_the_weights_along_the_training() -> None:
    model = build()
    before = copy.deepcopy(model.state_dict())
    swa = SWA(model, "classification", **OPTIONS).fit(batches(), progress=False)  # type: ignore[arg-type]
    steps = trajectory(build())
    for name, value in swa.network.named_parameters():
        torch.testing.assert_close(value.detach(), steps[name].mean(0), rtol=1e-9, atol=1e-12)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    x = batches()[0][0]
    probs = swa.predict(x, samples=3).probs
    assert probs is not None
    torch.testing.assert_close(probs, swa.network(x).softmax(1).detach())


def test_swag_has_the_papers_covariance() -> None:
    rank = 4
    swag = SWAG(build(), "classification", rank=rank, scale=1.7, **OPTIONS).fit(batches(), progress=False)  # type: ignore[arg-type]
    steps = trajectory(build())
    names = list(steps)
    along = flat(steps, names)  # (steps, P)
    running = along.cumsum(0) / torch.arange(1, len(along) + 1).unsqueeze(1)
    deviations = (along - running)[-rank:]
    variance = along.square().mean(0) - along.mean(0).square()
    expected = 1.7 * (variance.diag() / 2 + deviations.T @ deviations / (2 * (rank - 1)))
    drawn = flat(swag.sample(20_000, seed=3), names) - along.mean(0)
    found = drawn.T @ drawn / len(drawn)
    # four standard errors of a covariance of Gaussians
    error = ((expected.diag().outer(expected.diag()) + expected.square()) / len(drawn)).sqrt()
    assert bool(((found - expected).abs() <= 5 * error + 1e-12).all())
    assert float((found - expected).norm() / expected.norm()) < 0.05


def test_swag_without_a_scale_is_swa() -> None:
    swag = SWAG(build(), "classification", scale=0.0, **OPTIONS).fit(batches(), progress=False)  # type: ignore[arg-type]
    swa = SWA(build(), "classification", **OPTIONS).fit(batches(), progress=False)  # type: ignore[arg-type]
    x = batches()[0][0]
    one, other = swag.predict(x, samples=2).probs, swa.predict(x).probs
    assert one is not None
    assert other is not None
    torch.testing.assert_close(one, other)
    torch.testing.assert_close(swag.predict(x, samples=2).plain.softmax(1), other)


def test_batch_norm_statistics_are_renewed_for_every_sample() -> None:
    swag = SWAG(build(norm=True), "classification", **OPTIONS).fit(batches(), progress=False)  # type: ignore[arg-type]
    drawn = swag.sample(3, seed=5)
    for index in range(3):
        weight, bias = drawn["0.weight"][index], drawn["0.bias"][index]
        hidden = [x @ weight.T + bias for x, _ in batches()]
        mean = torch.stack([one.mean(0) for one in hidden]).mean(0)
        variance = torch.stack([one.var(0) for one in hidden]).mean(0)
        torch.testing.assert_close(drawn["1.running_mean"][index], mean)
        torch.testing.assert_close(drawn["1.running_var"][index], variance)


def test_renewing_batch_norm_leaves_the_network_as_found() -> None:
    network = build(norm=True)
    before = copy.deepcopy(network.state_dict())
    renewed_batch_norm(network, {}, batches(), batches=2)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert all(module.training for module in network.modules())
    assert network[1].momentum == 0.1


def test_moments_of_one_set_of_weights_have_no_spread() -> None:
    moments = Moments(rank=2)
    weights = {"a": torch.tensor([1.0, -2.0])}
    for _ in range(3):
        moments.add(weights)
    torch.testing.assert_close(moments.mean["a"], weights["a"])
    assert float(moments.variance("a").max()) < 1e-6
    assert len(moments.deviations) == 2


def test_too_short_a_training_is_refused() -> None:
    with pytest.raises(ValueError, match="two moments or more"):
        SWAG(build(), "classification", epochs=1).fit(batches(), progress=False)
    with pytest.raises(ValueError, match="every=99"):
        SWA(build(), "classification", epochs=1, every=99).fit(batches(), progress=False)
    with pytest.raises(ValueError, match="at least 0 and finite, got -1"):
        SWAG(build(), "classification", scale=-1.0)


def test_a_loader_that_can_be_read_once_only_is_refused() -> None:
    with pytest.raises(ValueError, match="no batches in epoch 2"):
        SWA(build(), "classification", epochs=2).fit(iter(batches()), progress=False)
