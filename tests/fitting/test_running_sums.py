"""Every running sum tells, before there is data, the bytes that it holds after it; and what it costs adds up."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from flat import flat_laplace
from infoform import Laplace
from infoform.curvature.dimensions import Dimensions
from infoform.curvature.request import ALL_STATISTICS, StatisticsRequest
from infoform.curvature.sketch import EXACT_LIMIT
from infoform.fitting.layer_costs import eigen_bytes, eigen_flops, fit_flops, forward_flops
from infoform.fitting.layer_statistics import LayerStatistics
from infoform.fitting.layer_sums import LayerSums, layer_dimensions
from infoform.fitting.running_sums import Sketch, Sums
from infoform.posteriors import Inf
from models import MODELS, TokenPool

LARGE = EXACT_LIMIT + 12
Held = dict[str, dict[str, int]]  # bytes by layer and sum


def wide() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(LARGE, LARGE), nn.Tanh(), nn.Linear(LARGE, 3))


def wide_tokens() -> nn.Module:
    return nn.Sequential(wide(), TokenPool())


def held_bytes(sums: Sums) -> int:
    """Return the bytes of all tensors of a sum, whatever their names."""
    tensors = {id(one): one for one in vars(sums).values() if isinstance(one, Tensor)}
    return sum(one.nbytes for one in tensors.values())


def watched_fit(monkeypatch: pytest.MonkeyPatch, laplace: Laplace, data: list[Any]) -> Held:
    """Fit, and return what every sum held when it was complete."""
    held: Held = {}

    def watch(name: str) -> None:
        inner: Callable[..., Any] = getattr(LayerStatistics, name)

        def look(self: LayerStatistics, *arguments: Any) -> Any:
            own = held.setdefault(self._layer.name, {})
            own |= {key: held_bytes(one) for key, one in self._sums.named().items() if one.state()}
            return inner(self, *arguments)

        monkeypatch.setattr(LayerStatistics, name, look)

    watch("find_bases")
    watch("finish")
    laplace.fit(data, progress=False)
    return held


def planned(laplace: Laplace, request: StatisticsRequest) -> Held:
    settings = laplace.settings.for_fit()
    sizes = {name: layer_dimensions(layer, request, settings, use=None) for name, layer in laplace.layers.items()}
    return {
        name: {
            key: one.planned_bytes(size.dtype)
            for key, one in LayerSums.planned(size, request, block=True).named().items()
        }
        for name, size in sizes.items()
    }


@pytest.mark.parametrize("basis_size", [None, 2])
@pytest.mark.parametrize("case", MODELS)
def test_planned_bytes_are_those_of_all_sums_of_every_layer_type(
    case: str, basis_size: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    laplace = flat_laplace(
        MODELS[case].model(), "classification", statistics="all", prior="activation", basis_size=basis_size
    )
    held = watched_fit(monkeypatch, laplace, [MODELS[case].inputs(7)])
    expected = planned(laplace, ALL_STATISTICS)
    assert held == {name: expected[name] for name in held}
    assert set(held) == set(MODELS[case].layers)


@pytest.mark.parametrize("make", [wide, wide_tokens])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_planned_bytes_are_those_of_sketches_and_input_energies(
    make: Callable[[], nn.Module], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    laplace = flat_laplace(make().to(dtype), "classification", rank=4, basis_size=3, prior="activation")
    shape = (60, LARGE) if make is wide else (60, 2, LARGE)
    request = Inf(rank=4).statistics() | StatisticsRequest(inputs=True)
    held = watched_fit(monkeypatch, laplace, [torch.randn(shape, dtype=dtype)])
    assert held == planned(laplace, request)
    assert {"energy", "moment 0", "squares", "gradient"} <= held[next(iter(held))].keys()


def test_the_bytes_of_directions_that_an_update_keeps_are_told_too(monkeypatch: pytest.MonkeyPatch) -> None:
    laplace = Laplace(wide(), "classification", structure="diag", prior="activation")
    data, told = [torch.randn(60, LARGE)], []
    laplace.fit(data, progress=False)
    finish = LayerStatistics.finish

    def look(self: LayerStatistics, numbers: range) -> Any:
        energy = self._sums.energy
        assert energy is not None
        told.append((energy.planned_bytes(torch.float32), held_bytes(energy)))
        return finish(self, numbers)

    monkeypatch.setattr(LayerStatistics, "finish", look)
    laplace.fit(data, update=True, progress=False)
    assert len(told) == 2
    assert all(before == after for before, after in told)


def size_of(outputs: int, inputs: int, columns: int, **use: Any) -> Dimensions:
    return Dimensions(outputs, inputs, (min(outputs, columns), min(inputs, columns)), torch.float32, **use)


EFB = StatisticsRequest(bases=frozenset({"gradient"}))


@pytest.mark.parametrize("positions", [2, 50])
@pytest.mark.parametrize("columns", [8, 100, 500])
def test_gradients_are_formed_for_sketches_where_that_is_cheaper(columns: int, positions: int) -> None:
    size = size_of(512, 600, columns, positions=positions)
    sums = LayerSums.planned(size, EFB, block=False)
    assert all(isinstance(one, Sketch) for one in sums.moments)
    flops = [one.operations(size) for one in sums.moments]
    formed = forward_flops(size) + sum(one.per_vector for one in flops)
    unformed = sum(one.unformed or 0 for one in flops)
    measuring = forward_flops(size) + sums.projections["gradient"].operations(size).per_vector
    assert fit_flops(size, EFB, block=False, vectors=3) == 3 * (min(formed, unformed) + measuring)


def test_gradients_are_formed_for_all_where_one_sum_needs_them() -> None:
    size = size_of(100, 600, 8, positions=5)  # the moment of the outputs is held whole
    flops = [one.operations(size) for one in LayerSums.planned(size, EFB, block=False).moments]
    assert [one.unformed is None for one in flops] == [True, False]
    grouped = size_of(600, 600, 8, positions=5, groups=2)
    assert all(one.operations(grouped).unformed is None for one in LayerSums.empty(grouped, EFB, block=False).moments)


def test_a_sketch_is_no_wider_than_its_moment() -> None:
    size = size_of(LARGE, LARGE, LARGE - 1, positions=1)
    assert LayerSums.empty(size, EFB, block=False).moments[0].shapes()["sketch"] == (LARGE, LARGE)
    assert eigen_flops(size, EFB) == 2 * 8 * LARGE**3
    assert eigen_bytes(size, EFB) == 4 * 8 * 2 * LARGE**2


def test_a_fit_without_bases_decomposes_nothing() -> None:
    size = size_of(4, 5, 5, positions=1)
    for request in (StatisticsRequest(diagonal=True), StatisticsRequest(factors=True)):
        assert eigen_flops(size, request) == eigen_bytes(size, request) == 0
