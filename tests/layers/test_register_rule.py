"""A public way to a rule of one's own: it comes first, and its name is not another's."""

from collections.abc import Iterator
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

import infoform
from exactness import check_exact, spread
from infoform.layers import LAYERS, find_rule
from infoform.layers.norm import ScaleRule


class Halved(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, 4))

    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * x @ self.weight.T


class HalvedRule(infoform.LayerRule):
    types: ClassVar[tuple[type[nn.Module], ...]] = (Halved,)

    def inputs(self, module: nn.Module, x: Tensor) -> Tensor:
        return 0.5 * x.reshape(1, len(x), -1, x.shape[-1])

    def gradients(self, module: nn.Module, g: Tensor) -> Tensor:
        return g.reshape(1, len(g), -1, g.shape[-1])


@pytest.fixture(autouse=True)
def table_as_before() -> Iterator[None]:
    before = dict(LAYERS)
    yield
    LAYERS.clear()
    LAYERS.update(before)


def test_a_registered_rule_comes_first_and_is_exact() -> None:
    own = HalvedRule()
    infoform.register_rule("halved", own)
    infoform.register_rule("halved", own)
    assert next(iter(LAYERS)) == "halved"
    model = spread(nn.Sequential(Halved(), nn.Tanh(), nn.Linear(3, 2)))
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    laplace = check_exact(model, x, layers=None)
    assert all(row.covered for row in laplace.coverage())
    assert find_rule(model[0]) is own  # type: ignore[index]


def test_what_is_no_rule_or_takes_a_name_is_refused() -> None:
    with pytest.raises(TypeError, match=r"must be an object of a subclass of infoform\.LayerRule"):
        infoform.register_rule("halved", HalvedRule)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'linear' is the name of LinearRule"):
        infoform.register_rule("linear", HalvedRule())
    assert issubclass(type(LAYERS["norm"]), ScaleRule)


class HalfSparseRule(HalvedRule):
    sparse: ClassVar[bool] = True


@pytest.mark.parametrize("method", ["row_indices", "row_gradients"])
def test_a_sparse_rule_without_its_methods_is_told_which_it_lacks(method: str) -> None:
    x = torch.ones(2, 4)
    arguments = (Halved(), x) if method == "row_indices" else (Halved(), x, torch.ones(2, 3))
    with pytest.raises(TypeError, match=f"HalfSparseRule is sparse=True, and such a rule must have {method}"):
        getattr(HalfSparseRule(), method)(*arguments)
