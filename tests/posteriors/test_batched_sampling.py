"""Layers drawn together give what each gives by itself, in the memory of an earlier draw too."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from flat import flat_laplace
from infoform.posteriors import STRUCTURES
from infoform.posteriors import batched_sampling as module
from infoform.posteriors.batched_sampling import grouped
from infoform.posteriors.network_posterior import Posterior

PRIORS = ("isotropic", "activation")


def blocks() -> nn.Sequential:
    """Return a network with small layers of three shapes, two of them many times, of unequal ranks."""
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Linear(6, 5)]
    for _ in range(7):
        layers += [nn.Tanh(), nn.Linear(5, 9), nn.Tanh(), nn.Linear(9, 5)]
    return nn.Sequential(*layers, nn.Linear(5, 3)).double()


def fitted(structure: str = "inf", **options: Any) -> Posterior:
    model = blocks()
    x, y = torch.randn(40, 6, dtype=torch.float64), torch.arange(40) % 3
    laplace = flat_laplace(model, "classification", structure=structure, **options).fit([(x, y)], progress=False)
    return laplace.posterior(prior_precision=3.0, num_data=500.0)


def one_by_one(posterior: Posterior, seed: int) -> dict[str, torch.Tensor]:
    seeds = posterior._seeds(torch.Generator().manual_seed(seed))
    return {
        name: layer.sample(1, generator=torch.Generator().manual_seed(seeds[name]))
        for name, layer in posterior.layers.items()
    }


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("options", [{"rank": 7}, {"rank": 7, "correction": "additive", "support": "grid"}])
def test_layers_drawn_together_are_as_one_by_one(prior: str, options: dict[str, Any]) -> None:
    posterior = fitted(prior=prior, **options)
    assert sorted(len(group.layers) for group in grouped(posterior.layers)) == [1, 1, 7, 7]
    widths = {layer.state_dict()["input_vectors"].shape[1] for layer in posterior.layers.values()}
    assert len(widths) > 1  # what is stacked has to be filled up
    expected = one_by_one(posterior, 1)
    drawn = posterior.sample(1, generator=torch.Generator().manual_seed(1))
    assert list(drawn) == list(posterior.layers)
    for name, one in drawn.items():
        torch.testing.assert_close(one, expected[name], rtol=1e-9, atol=1e-12)
    each = posterior.sample_each(2, generator=torch.Generator().manual_seed(1))
    for name, one in each[0].items():
        torch.testing.assert_close(one, expected[name], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("prior", PRIORS)
def test_a_stack_is_the_factor_of_every_layers_covariance(prior: str) -> None:
    posterior = fitted(prior=prior, rank=7)
    group = max(grouped(posterior.layers), key=lambda one: len(one.layers))
    layers = list(group.layers.values())
    rows, columns = layers[0].shape
    size = rows * columns
    factors = torch.empty(len(layers), size, size, dtype=torch.float64)
    for index, unit in enumerate(torch.eye(size, dtype=torch.float64)):
        noise = unit.view(1, rows, columns).repeat(len(layers), 1, 1)
        group._transform(noise)
        factors[:, :, index] = noise.flatten(1)
    for factor, layer in zip(factors, layers, strict=True):
        eye = torch.eye(size, dtype=torch.float64)
        torch.testing.assert_close(factor @ factor.T @ layer.dense(), eye, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_every_structure_draws_its_layers_in_any_way_alike(structure: str) -> None:
    posterior = fitted(structure, prior="isotropic")
    expected = one_by_one(posterior, 2)
    drawn = posterior.sample(1, generator=torch.Generator().manual_seed(2))
    for name, one in drawn.items():
        torch.testing.assert_close(one, expected[name], rtol=1e-9, atol=1e-12)


def test_the_memory_of_an_earlier_draw_is_used_where_it_will_do() -> None:
    posterior = fitted(rank=7)
    first = posterior.sample(1, generator=torch.Generator().manual_seed(1))
    places = {name: one.data_ptr() for name, one in first.items()}
    fresh = posterior.sample(1, generator=torch.Generator().manual_seed(2))
    again = posterior.sample(1, generator=torch.Generator().manual_seed(2), out=first)
    for name, one in again.items():
        assert one.data_ptr() == places[name]
        assert torch.equal(one, fresh[name])
    apart = {name: one.clone() for name, one in first.items()}  # parts of nothing: not to be written over by stacks
    kept = {name: one.clone() for name, one in apart.items()}
    stacked = {name for group in grouped(posterior.layers) if len(group.layers) > 1 for name in group.layers}
    other = posterior.sample(1, generator=torch.Generator().manual_seed(3), out=apart)
    expected = posterior.sample(1, generator=torch.Generator().manual_seed(3))
    for name, one in other.items():
        assert torch.equal(one, expected[name])
        if name in stacked:
            assert torch.equal(apart[name], kept[name])


def test_groups_are_cut_to_a_size_and_large_layers_stay_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = fitted(rank=7).layers
    monkeypatch.setattr(module, "LARGEST", 3 * 45)
    counts = [len(group.layers) for group in grouped(layers)]
    assert max(counts) <= 3
    assert sum(counts) == len(layers)
    assert sorted(name for group in grouped(layers) for name in group.layers) == sorted(layers)
    monkeypatch.setattr(module, "SMALL", 44)
    assert all(len(group.layers) == 1 for group in grouped(layers))


def test_a_posterior_that_was_drawn_from_together_still_transforms_one_layer() -> None:
    posterior = fitted(rank=7)
    before = one_by_one(posterior, 4)
    posterior.sample(1)
    after = one_by_one(posterior, 4)
    for name, one in before.items():
        assert torch.equal(one, after[name])


class Disturbed(list[Any]):
    """Layers that another thread stacks between any two looks at them."""

    def __iter__(self) -> Iterator[Any]:
        for layer in super().__iter__():
            layer.__dict__.pop("_draws", None)
        return super().__iter__()


def test_layers_that_another_thread_stacks_at_the_same_time_are_stacked_all_the_same() -> None:
    group = max(grouped(fitted(rank=7).layers), key=lambda one: len(one.layers))
    layers = list(group.layers.values())
    noise = torch.randn(len(layers), *layers[0].shape, dtype=torch.float64)
    alone, disturbed = noise.clone(), noise.clone()
    type(layers[0]).transform_batched(layers)(alone)
    type(layers[0]).transform_batched(Disturbed(layers))(disturbed)
    assert torch.equal(alone, disturbed)
