"""Groups keep their budget, hold every layer once, and are as few as the order of layers allows."""

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from flat import flat_laplace
from infoform.curvature.request import StatisticsRequest
from infoform.fitting.fit_memory import LayerMemory, choose_groups, largest_peak, layer_memory, peak_bytes
from infoform.network.probe import probe
from infoform.posteriors import STRUCTURES, get_structure

numbers = st.integers(0, 50)
layers = st.lists(st.builds(LayerMemory, st.tuples(numbers, numbers), numbers, numbers, numbers, numbers), min_size=1)


def needed(structure: str, **options: Any) -> dict[str, LayerMemory]:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 200), nn.Linear(200, 4))
    laplace = flat_laplace(model, "classification", structure=structure, **options)
    request = get_structure(structure).statistics() | StatisticsRequest(inputs=laplace.prior.needs_inputs)
    seen = probe(model, torch.zeros(16, 3, 8, 8))
    return layer_memory(laplace.layers, seen, request, laplace.settings.for_fit())


def test_a_peak_is_of_all_sums_and_one_layers_work() -> None:
    one = LayerMemory((10, 20), 3, 40, 5, 7)
    other = LayerMemory((30, 5), 1, 20, 50, 6)
    assert peak_bytes([one]) == 20 + max(3 + 40 + 7, 5 + 20)
    assert peak_bytes([one, other]) == 40 + max(3 + 1 + 40 + 7, 50 + 5)


@settings(max_examples=100, deadline=None)
@given(layers, st.integers(0, 100), st.booleans())
def test_groups_keep_the_budget(found: list[LayerMemory], more: int, stays: bool) -> None:
    given = {str(index): one for index, one in enumerate(found)}
    results = itertools.accumulate((one.result for one in found), initial=0)
    least = max(peak_bytes([one]) + (done if stays else 0) for one, done in zip(found, results, strict=False))
    groups = choose_groups(given, budget=least + more, stays=stays)
    assert [name for group in groups for name in group] == list(given)
    assert largest_peak(given, groups, stays=stays) <= least + more
    for group, following in itertools.pairwise(groups) if not stays else ():
        assert peak_bytes(given[name] for name in [*group, following[0]]) > least + more


@settings(max_examples=50, deadline=None)
@given(layers)
def test_a_budget_below_one_layer_is_refused(found: list[LayerMemory]) -> None:
    given = {str(index): one for index, one in enumerate(found)}
    least = max(map(peak_bytes, ([one] for one in found)))
    if least > 0:
        with pytest.raises(ValueError, match=r"max_memory must be at least .* for layer"):
            choose_groups(given, budget=least - 1, stays=False)


def test_what_is_finished_counts_where_it_stays() -> None:
    given = {name: LayerMemory((10, 10), 0, 5, 0, 5) for name in "abcd"}
    assert choose_groups(given, budget=30, stays=False) == [["a", "b"], ["c", "d"]]
    assert choose_groups(given, budget=50, stays=True) == [["a", "b", "c", "d"]]
    assert choose_groups(given, budget=30, stays=False) != choose_groups(given, budget=50, stays=False)
    with pytest.raises(ValueError, match=r"for layers that are finished\), got 49 B; use offload="):
        choose_groups(given, budget=49, stays=True)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_a_smaller_chunk_asks_for_less(structure: str) -> None:
    large, small = (needed(structure, chunk=chunk) for chunk in ("16MiB", "64kB"))
    assert peak_bytes(small.values()) < peak_bytes(large.values())
    assert all(small[name].sums == large[name].sums for name in large)


def test_several_fisher_vectors_keep_no_gradients_waiting() -> None:
    assert any(one.waiting for one in needed("diag").values())
    assert not any(one.waiting for one in needed("diag", fisher="exact").values())
    assert not any(one.waiting for one in needed("diag", fisher_samples=2).values())
