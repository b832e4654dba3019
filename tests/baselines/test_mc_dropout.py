"""MC dropout against masks written out, and what it must leave alone."""

import copy
import math

import pytest
import torch
from torch import Tensor, nn

from infoform.baselines import MCDropout


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.3), nn.Linear(2, 3)).double()


def inputs(count: int = 4) -> Tensor:
    return torch.randn(count, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def fitted(network: nn.Module, **options: float) -> MCDropout:
    x = inputs()
    return MCDropout(network, "classification", **options).fit([(x, torch.tensor([0, 1, 2, 0]))], progress=False)  # type: ignore[arg-type]


@pytest.mark.parametrize("rate", [None, 0.7])
def test_the_mean_is_that_over_all_masks_with_their_probabilities(rate: float | None) -> None:
    network = model()
    first, _, second = network
    keep = 1 - (0.3 if rate is None else rate)
    expected = torch.zeros(4, 3, dtype=torch.float64)
    for mask in ((0, 0), (0, 1), (1, 0), (1, 1)):
        hidden = first(inputs()) * torch.tensor(mask) / keep
        weight = math.prod(keep if on else 1 - keep for on in mask)
        expected += weight * second(hidden).softmax(1).detach()
    # examples have masks of their own, so 4,000 samples of each: four standard errors are below 4 · 0.5 / √4000
    prediction = fitted(network, **({} if rate is None else {"rate": rate})).predict(inputs(), samples=4000)
    assert prediction.probs is not None
    torch.testing.assert_close(prediction.probs, expected, rtol=0, atol=0.032)


def test_batch_norm_stays_in_evaluation_mode_and_the_model_as_found() -> None:
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 3)).double().train()
    before = copy.deepcopy(network.state_dict())
    baseline = fitted(network)
    alone = baseline.predict(inputs()[:1], samples=6).probs
    assert alone is not None  # in training mode batch norm refuses a single example
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert all(module.training for module in network.modules())
    statistics = baseline.network[1].state_dict()  # type: ignore[index]
    assert all(torch.equal(value, before[f"1.{name}"]) for name, value in statistics.items())


def test_samples_follow_the_seed_and_leave_the_global_one_alone() -> None:
    baseline = fitted(model())
    state = torch.get_rng_state()
    one, same, other = (baseline.predict(inputs(), samples=5, seed=seed).probs for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    assert one is not None
    assert same is not None
    assert other is not None
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_a_model_without_dropout_and_a_rate_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="needs dropout layers"):
        MCDropout(nn.Linear(3, 2), "classification")
    with pytest.raises(ValueError, match="between 0 and 1, got 1"):
        MCDropout(model(), "classification", rate=1.0)
