"""Randomness that leaves no trace and does not depend on how the data is cut into batches."""

import random
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

from infoform.common.randomness import BLOCK, UniformStream, isolated, normal


def draw() -> tuple[float, float, float]:
    """Take a number from every global generator."""
    return random.random(), float(np.random.rand()), float(torch.rand(()))  # noqa: NPY002


def seed_all(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    torch.manual_seed(seed)


def test_the_global_generators_go_on_as_if_nothing_had_happened() -> None:
    seed_all(3)
    expected = draw()
    seed_all(3)
    with isolated(7):
        draw()
    assert draw() == expected


def test_the_global_generators_go_on_also_after_an_exception() -> None:
    seed_all(3)
    expected = draw()
    seed_all(3)
    with pytest.raises(ZeroDivisionError), isolated(7):
        draw()[0] / 0
    assert draw() == expected


def test_a_loaders_own_generators_are_put_back() -> None:
    own, samplers = torch.Generator(), torch.Generator()
    data = TensorDataset(torch.arange(9))
    loader = DataLoader(data, sampler=RandomSampler(data, generator=samplers), batch_size=2, generator=own)
    before = own.get_state(), samplers.get_state()
    orders = []
    for _ in range(2):
        with isolated(0, loader=loader):
            orders.append(torch.cat([x for (x,) in loader]))
        assert torch.equal(own.get_state(), before[0])
        assert torch.equal(samplers.get_state(), before[1])
    assert torch.equal(orders[0], orders[1])
    assert orders[0].tolist() != list(range(9))


@pytest.mark.parametrize("seed", [0, 7, -1, 2**40])
def test_the_same_seed_gives_the_same_draws_inside(seed: int) -> None:
    with isolated(seed):
        first = draw()
    draw()
    with isolated(seed):
        assert draw() == first
    with isolated(seed + 1):
        assert all(one != other for one, other in zip(draw(), first, strict=True))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(1, 5))
def test_a_stream_is_the_same_for_every_cut_into_batches(cuts: list[int], block: int) -> None:
    whole = UniformStream(0, (2, 3), block=block).take(sum(cuts))
    stream = UniformStream(0, (2, 3), block=block)
    assert torch.equal(torch.cat([stream.take(count) for count in cuts]), whole)
    assert whole.shape == (sum(cuts), 2, 3)


def test_streams_of_different_seeds_differ() -> None:
    def take(seed: int) -> Tensor:
        return UniformStream(seed, (2,)).take(300)

    assert torch.equal(take(0), take(0))
    assert not (take(0) == take(1)).any()
    assert ((take(0) >= 0) & (take(0) < 1)).all()
    assert take(0).dtype == torch.float64
    assert len(take(0).unique()) == 600  # past the first block there is no repetition


def test_many_normal_numbers_are_the_same_for_any_number_of_threads() -> None:
    before, shape = torch.get_num_threads(), (2, BLOCK + 5)
    found = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(normal(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float32))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, found[0]) for one in found)
    assert abs(float(found[0].mean())) < 0.01
    assert float(found[0].std()) == pytest.approx(1, abs=0.01)


class _Counted(torch.utils.data.Sampler[int]):
    """Shuffles by a seed and the number of its passes, as samplers of Accelerate do."""

    def __init__(self) -> None:
        self.epoch = 3

    def __iter__(self) -> Iterator[int]:
        yield from torch.randperm(20, generator=torch.Generator().manual_seed(self.epoch)).tolist()
        self.epoch += 1


def test_every_pass_has_the_order_of_the_first_where_a_sampler_counts_its_passes() -> None:
    sampler = _Counted()
    loader: DataLoader[int] = DataLoader(range(20), sampler=sampler, batch_size=4)  # type: ignore[arg-type]
    passes = []
    for _ in range(3):
        with isolated(0, loader=loader):
            passes.append(torch.cat(list(loader)).tolist())
    assert passes[0] == passes[1] == passes[2]
    assert sampler.epoch == 3
