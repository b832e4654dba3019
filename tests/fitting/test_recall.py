"""A fit of the last layer runs the network once, and measures what a fit that runs it twice does."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import infoform
from dense import assert_close
from flat import flat_laplace
from infoform.curvature.curvature import Curvature, pack_curvature
from infoform.fitting import fit_task
from infoform.fitting.recall import SeenBatch, SeenExamples

FISHERS = ("mc", "exact", "empirical")


class Counted(nn.Module):
    """Counts the examples that go through its body."""

    def __init__(self, change: float = 1.0) -> None:
        super().__init__()
        self.body, self.head, self.change = nn.Linear(5, 4), nn.Linear(4, 3), change
        self.sizes: list[int] = []  # which copies of the module share

    @property
    def examples(self) -> int:
        return sum(self.sizes)

    def forward(self, x: Tensor) -> Tensor:
        self.sizes.append(len(x))
        out: Tensor = self.head(self.body(x).tanh())
        return out if self.change == 1 else self.change * out


def batches(examples: int = 40, size: int = 7) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(3)
    x = 3 * torch.randn(examples, 5, dtype=torch.float64, generator=generator)
    y = torch.randint(0, 3, (examples,), generator=generator)
    return list(zip(x.split(size), y.split(size), strict=True))


def model(change: float = 1.0) -> Counted:
    torch.manual_seed(0)
    return Counted(change).double()


def fit(
    network: nn.Module, data: Any, layers: Any = "last", likelihood: str = "classification", **options: Any
) -> infoform.Laplace:
    laplace = flat_laplace(network, likelihood, layers=layers, prior="activation", rank=4, **options)
    return laplace.fit(data, check=False, progress=False)  # a check runs the network, too


def check_same(found: Curvature, expected: Curvature) -> None:
    (tensors, plain), (other, other_plain) = pack_curvature(found), pack_curvature(expected)
    assert plain == other_plain
    assert tensors.keys() == other.keys()
    for name, value in other.items():
        if value.is_floating_point():
            assert_close(tensors[name], value)
        else:
            assert torch.equal(tensors[name], value), name


@pytest.mark.parametrize("statistics", ["needed", "all"])
@pytest.mark.parametrize("fisher", FISHERS)
@pytest.mark.parametrize("basis_floor", [0.0, 0.5])
def test_all_statistics_are_those_of_two_runs(
    statistics: str, fisher: str, basis_floor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = batches(300, 40)
    options: dict[str, Any] = {"statistics": statistics, "fisher": fisher, "basis_floor": basis_floor}
    once, network = model(), model()
    found = fit(once, data, **options)
    monkeypatch.setattr(fit_task.FitTask.__init__, "__defaults__", (0,))
    expected = fit(network, data, layers=["head"], **options)
    assert once.examples == 300 + 2  # two to find the layer
    assert network.examples > 300
    assert found.curvature.keys() == expected.curvature.keys() == {"head"}
    check_same(found.curvature["head"], expected.curvature["head"])
    assert found._fitted().fit.summary == expected._fitted().fit.summary


@pytest.mark.parametrize("likelihood", ["multilabel", "regression"])
def test_other_likelihoods_run_the_network_once(likelihood: str) -> None:
    network, data = model(), [(x, torch.rand(len(x), 3).double().round()) for x, _ in batches()]
    assert fit(network, data, likelihood=likelihood).num_data == 40
    assert network.examples == 40 + 2


def test_what_does_not_fit_is_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    data = batches(40, 8)
    each = 8 * (4 + 3) * 8
    monkeypatch.setattr(fit_task.FitTask.__init__, "__defaults__", (2 * each,))
    network = model()
    found = fit(network, data)
    assert network.examples == 2 + 40 + 24
    check_same(found.curvature["head"], fit(model(), data, layers=["head"]).curvature["head"])


def test_a_layer_that_is_not_the_last_is_run_twice() -> None:
    for network, layers in ((model(), ["body"]), (model(2.0), ["head"])):
        fit(network, batches(), layers=layers)
        assert network.examples == 80


def test_a_budget_of_memory_keeps_nothing() -> None:
    network = model()
    laplace = flat_laplace(network, "classification", layers="last", prior="activation", rank=4)
    laplace.fit(batches(), max_memory="1GB", progress=False)
    assert network.examples > 80
    check_same(laplace.curvature["head"], fit(model(), batches()).curvature["head"])


def test_places_are_found_over_batches() -> None:
    seen, module, x = SeenExamples(10_000), nn.Identity(), torch.arange(20.0).reshape(10, 2)
    for start in (0, 4, 8):
        part = x[start : start + 4]
        seen.add(SeenBatch(module, part, -part, part[:0]), start)
    assert seen.count == 10
    for places in ([0, 1, 2, 3], [1, 3], [3, 4], [0, 5, 9], [8, 9], list(range(10))):
        found = seen.at(torch.tensor(places))
        assert found is not None
        assert torch.equal(found.inputs, x[places])
        assert torch.equal(found.outputs, -x[places])
    assert seen.at(torch.tensor([9, 10])) is None
    assert seen.at(torch.tensor([], dtype=torch.int64)) is None


def test_nothing_is_kept_after_a_gap_or_beyond_the_limit() -> None:
    part = torch.zeros(4, 2)
    batch = SeenBatch(nn.Identity(), part, part, part[:0])
    seen = SeenExamples(64 + 10)
    seen.add(batch, 0)
    seen.add(batch, 4)
    assert seen.count == 4
    seen = SeenExamples(1000)
    seen.add(batch, 4)
    seen.add(batch, 0)
    assert seen.count == 0
