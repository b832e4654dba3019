"""A fit in groups of layers is, bit for bit, the fit of all of them at once."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from flat import flat_laplace
from infoform import Laplace
from infoform.curvature.curvature import pack_curvature
from infoform.curvature.request import StatisticsRequest
from infoform.fitting.fit_memory import choose_groups, layer_memory, peak_bytes
from infoform.network.probe import probe
from models import MODELS

SIZES = [4, 3, 5, 1]  # of the batches
NESTED = "nested blocks with residual connections"
Data = list[tuple[Tensor, Tensor]]


def make_data(case: str = NESTED) -> Data:
    x = MODELS[case].inputs(sum(SIZES))
    return list(zip(x.split(SIZES), (torch.arange(len(x)) % 3).split(SIZES), strict=True))


def make_laplace(case: str = NESTED, **options: Any) -> Laplace:
    return without_novelty(flat_laplace(MODELS[case].model(), "classification", **{"rank": 5, "seed": 3} | options))


def without_novelty(laplace: Laplace) -> Laplace:
    """Return it with a fit that holds the sums of its layers alone: of so few examples novelty would take the most."""
    laplace.settings = replace(laplace.settings, fit=replace(laplace.settings.fit, novelty=False))
    return laplace


def budget_of(laplace: Laplace, data: Data) -> int:
    """Return the least that each layer alone takes where what is finished is elsewhere."""
    request = laplace.structure.statistics()
    request = request | StatisticsRequest(inputs=laplace.prior.needs_inputs)
    needed = layer_memory(laplace.layers, probe(laplace.model, data[0][0]), request, laplace.settings.for_fit())
    budget = max(peak_bytes([one]) for one in needed.values())
    assert len(choose_groups(needed, budget=budget, stays=False)) > 1
    return budget


def check_same(found: Laplace, expected: Laplace) -> None:
    assert found._fit is not None
    assert expected._fit is not None
    assert found._fit.summary == expected._fit.summary
    assert found._fit.unreached == expected._fit.unreached
    assert list(found.curvature) == list(expected.curvature)  # in this order samples are drawn
    for name, one in found.curvature.items():
        (tensors, settings), (others, plain) = pack_curvature(one), pack_curvature(expected.curvature[name])
        assert settings == plain
        assert tensors.keys() == others.keys()
        for key, value in tensors.items():
            assert torch.equal(value, others[key]), (name, key)


class Counted:
    """Batches that count how often they were read, and may fail before one."""

    def __init__(self, data: Data, *, before: int | None = None) -> None:
        self.data, self.before, self.read = data, before, 0

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for batch in self.data:
            if self.read == self.before:
                raise KeyError("stopped")
            self.read += 1
            yield batch


@pytest.mark.parametrize("structure", ["inf", "diag", "kfac", "efb", "full"])
def test_groups_give_the_fit_of_all_layers(structure: str, tmp_path: Path) -> None:
    data = make_data()
    whole = make_laplace(structure=structure).fit(data, progress=False)
    parted = make_laplace(structure=structure)
    counted = Counted(data)
    parted.fit(counted, max_memory=budget_of(parted, data), offload=tmp_path, progress=False)
    check_same(parted, whole)
    passes = 2 if structure in ("inf", "efb") else 1
    assert (counted.read - 1) / len(data) >= 2 * passes  # one batch is for the estimate


@pytest.mark.parametrize("case", [name for name, case in MODELS.items() if len(case.layers) > 1])
def test_every_kind_of_layer_may_be_in_a_group_of_its_own(case: str, tmp_path: Path) -> None:
    data = make_data(case)
    parted = make_laplace(case, layers=list(MODELS[case].layers))
    budget = budget_of(parted, data)
    parted.fit(data, max_memory=budget, offload=tmp_path, progress=False)
    check_same(parted, make_laplace(case, layers=list(MODELS[case].layers)).fit(data, progress=False))


def test_a_shuffling_loader_gives_every_group_the_same_order(tmp_path: Path) -> None:
    data = make_data()
    x, y = (torch.cat(parts) for parts in zip(*data, strict=True))
    loader = DataLoader(TensorDataset(x, y), batch_size=4, shuffle=True)
    parted = make_laplace()
    parted.fit(loader, max_memory=2 * budget_of(parted, data), offload=tmp_path, progress=False)
    check_same(parted, make_laplace().fit(loader, progress=False))


def test_bases_from_a_part_of_the_data_and_updates_are_the_same_in_groups(tmp_path: Path) -> None:
    data = make_data()
    whole = make_laplace(basis_data=0.5).fit(data, progress=False)
    parted = make_laplace(basis_data=0.5)
    budget = budget_of(parted, data)
    parted.fit(data, max_memory=budget, offload=tmp_path, progress=False)
    check_same(parted, whole)
    whole.fit(data[:2], update=True, progress=False)
    parted.fit(data[:2], update=True, max_memory=2 * budget, offload=tmp_path, progress=False)
    check_same(parted, whole)


@pytest.mark.parametrize("before", range(1, 17, 3))
def test_a_stopped_fit_in_groups_goes_on(before: int, tmp_path: Path) -> None:
    data = make_data()
    whole = make_laplace().fit(data, progress=False)
    budget = budget_of(whole, data)
    how: dict[str, Any] = {"max_memory": budget, "offload": tmp_path / "kept", "checkpoint": tmp_path / "saved"}
    with pytest.raises(KeyError, match="stopped"):
        make_laplace().fit(Counted(data, before=before), checkpoint_every=0, progress=False, **how)
    again = Counted(data)
    check_same(make_laplace().fit(again, progress=False, **how), whole)
    assert list((tmp_path / "saved").iterdir()) == []


def test_finished_groups_are_not_fitted_again(tmp_path: Path) -> None:
    data = make_data()
    laplace = make_laplace()
    how: dict[str, Any] = {
        "max_memory": budget_of(laplace, data),
        "offload": tmp_path / "kept",
        "checkpoint": tmp_path / "saved",
        "progress": False,
    }
    full = Counted(data)
    laplace.fit(full, **how)
    with pytest.raises(KeyError, match="stopped"):
        make_laplace().fit(Counted(data, before=full.read - 1), checkpoint_every=0, **how)
    again = Counted(data)
    make_laplace().fit(again, **how)
    assert again.read <= 1 + len(data)  # the last pass alone, whose batches are compared with those of before


def test_a_checkpoint_with_another_budget_is_refused(tmp_path: Path) -> None:
    data = make_data()
    how: dict[str, Any] = {"checkpoint": tmp_path / "saved", "checkpoint_every": 0, "progress": False}
    budget = budget_of(make_laplace(), data)
    with pytest.raises(KeyError, match="stopped"):
        make_laplace().fit(Counted(data, before=7), max_memory=budget, offload=tmp_path / "kept", **how)
    with pytest.raises(ValueError, match="is of a fit with another max_memory"):
        make_laplace().fit(data, **how)
    with pytest.raises(ValueError, match=r"is of (another fit|a fit with another max_memory)"):
        make_laplace().fit(data, max_memory=budget + budget // 3, offload=tmp_path / "kept", **how)


class Bypassed(nn.Module):
    """Two layers that nothing comes back to, between two that are used."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.idle = nn.Linear(4, 3), nn.Linear(3, 3)
        self.never, self.head = nn.Linear(2, 2), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x).tanh()
        self.idle(hidden)
        out = self.head(hidden)
        assert isinstance(out, Tensor)
        return out


def test_groups_that_no_gradient_reaches_are_told(tmp_path: Path) -> None:
    data = make_data("linear")
    model = Bypassed().double()
    whole = without_novelty(flat_laplace(model, "classification", rank=3)).fit(data, progress=False)
    parted = without_novelty(flat_laplace(model, "classification", rank=3))
    budget = budget_of(parted, data)
    parted.fit(data, max_memory=budget, offload=tmp_path, progress=False)
    check_same(parted, whole)
    assert set(parted.curvature) == {"first", "head"}
    check_same(
        parted.fit(data, update=True, max_memory=2 * budget, offload=tmp_path, progress=False),
        whole.fit(data, update=True, progress=False),
    )
    idle = without_novelty(flat_laplace(model, "classification", rank=3, layers=["idle", "never"]))
    with pytest.raises(ValueError, match="a gradient must reach at least one layer"):
        idle.fit(data, max_memory=budget_of(idle, data), offload=tmp_path, progress=False)


def test_a_large_budget_takes_one_group() -> None:
    counted = Counted(make_data())
    make_laplace().fit(counted, max_memory="1GB", progress=False)
    assert counted.read == 1 + 2 * len(counted.data)


def test_mistakes_get_one_sentence() -> None:
    data = make_data()
    with pytest.raises(ValueError, match=r"max_memory must be at least .*, got 1.00 kB; use smaller batches"):
        make_laplace().fit(data, max_memory="1kB", progress=False)
    with pytest.raises(ValueError, match="the loader is an iterator"):
        make_laplace(structure="diag").fit(iter(data), max_memory="1GB", progress=False)
    with pytest.raises(ValueError, match="memory must be a positive number"):
        make_laplace().fit(data, max_memory="much", progress=False)
    with pytest.raises(ValueError, match="gave no examples"):
        make_laplace().fit([], max_memory="1GB", progress=False)


class Branching(nn.Module):
    """Its second layer is used where the first input is large."""

    def __init__(self) -> None:
        super().__init__()
        self.often, self.seldom, self.head = nn.Linear(40, 30), nn.Linear(40, 30), nn.Linear(30, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.seldom(x) if float(x.detach()[0, 0]) > 100 else self.often(x)
        outputs: Tensor = self.head(hidden.tanh())
        return outputs


@pytest.mark.parametrize("reaches", [True, False])
def test_an_update_in_groups_may_reach_a_layer_for_the_first_time(reaches: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Branching()
    first, second = [torch.randn(6, 40)], [torch.randn(5, 40), torch.randn(5, 40) + 200 * reaches]
    whole, parted = (
        without_novelty(flat_laplace(model, "classification", rank=5)).fit(first, progress=False) for _ in range(2)
    )
    whole.fit(second, update=True, progress=False)
    needed = layer_memory(
        parted.layers,
        probe(model, second[0]),
        parted.structure.statistics() | StatisticsRequest(inputs=parted.prior.needs_inputs),
        parted.settings.for_fit(),
    )
    needed = {name: replace(one, sums=(one.sums[0], 2 * one.sums[1])) for name, one in needed.items()}  # of an update
    budget = max(peak_bytes([one]) for one in needed.values())
    assert len(choose_groups(needed, budget=budget, stays=False)) > 1
    parted.fit(second, update=True, max_memory=budget, offload=tmp_path, progress=False)
    check_same(parted, whole)
    assert ("seldom" in parted.curvature) == reaches
