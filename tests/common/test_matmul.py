"""Products are the same however their factors lie in memory, and rows of aligned matrices begin at round addresses."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from dense import assert_close
from infoform.common.matmul import ALIGNMENT, NARROW, aligned, along, selected, summed, summed_products, times
from infoform.common.matmul import padded as filled_up


def as_it_is(x: Tensor) -> Tensor:
    return x


def transposed(x: Tensor) -> Tensor:
    return x.mT.contiguous().mT


def padded(x: Tensor) -> Tensor:
    return torch.cat([x, x], 2)[..., : x.shape[2]]


LAYOUTS = [as_it_is, transposed, padded]


@pytest.mark.parametrize("of_y", LAYOUTS)
@pytest.mark.parametrize("of_x", LAYOUTS)
@pytest.mark.parametrize("positions", [1, 3])
@pytest.mark.parametrize("together", [0, 2**18])
def test_products_are_summed_over_examples_and_positions(
    monkeypatch: pytest.MonkeyPatch,
    together: int,
    positions: int,
    of_x: Callable[[Tensor], Tensor],
    of_y: Callable[[Tensor], Tensor],
) -> None:
    monkeypatch.setattr("infoform.common.matmul.TOGETHER", together)
    x, y = torch.randn(5, positions, 4, dtype=torch.float64), torch.randn(5, positions, 2, dtype=torch.float64)
    expected = sum(a.T @ b for a, b in zip(x, y, strict=True))
    assert_close(summed_products(of_x(x), of_y(y)), expected)
    assert_close(summed(of_x(x.mT), of_y(y)), expected)


@pytest.mark.parametrize("width", [3, 8, 9])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("positions", [1, 3])
@pytest.mark.parametrize("large", [1, 2, 128])
def test_large_products_of_a_matrix_with_itself_or_another_are_the_same_sums(
    monkeypatch: pytest.MonkeyPatch, large: int, positions: int, layout: Callable[[Tensor], Tensor], width: int
) -> None:
    for name, value in {"TOGETHER": 0, "WORTH_COPYING": large, "LARGE_BLOCK": large}.items():
        monkeypatch.setattr(f"infoform.common.matmul.{name}", value)
    x, y = (torch.randn(5, positions, size, dtype=torch.float64) for size in (width, 4))
    laid = layout(x)
    found = summed_products(laid, laid)
    assert_close(found, sum(a.T @ a for a in x))
    assert_close(found, found.T)
    assert_close(summed_products(laid, layout(y)), sum(a.T @ b for a, b in zip(x, y, strict=True)))


@pytest.mark.parametrize("positions", [1, 3])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_times_multiplies_each_example(layout: Callable[[Tensor], Tensor], positions: int) -> None:
    x, matrix = torch.randn(5, positions, 4, dtype=torch.float64), torch.randn(4, 2, dtype=torch.float64)
    assert_close(times(layout(x), matrix), torch.stack([one @ matrix for one in x]))


@pytest.mark.parametrize("layout", [as_it_is, transposed])
def test_selected_examples_lie_as_they_did(layout: Callable[[Tensor], Tensor]) -> None:
    x, chosen = layout(torch.randn(5, 3, 4)), torch.tensor([0, 3])
    found = selected(x, chosen)
    assert torch.equal(found, x[chosen])
    assert found.is_contiguous() == x.is_contiguous()


@pytest.mark.parametrize("columns", [1, ALIGNMENT - 1, ALIGNMENT, ALIGNMENT + 1])
def test_rows_of_aligned_matrices_begin_at_round_addresses(columns: int) -> None:
    matrix = aligned(torch.empty(0, dtype=torch.float64), 3, columns)
    assert matrix.shape == (3, columns)
    assert matrix.dtype == torch.float64
    assert matrix.stride(0) % ALIGNMENT == 0
    assert matrix.stride(0) < columns + ALIGNMENT


@pytest.mark.parametrize("width", [1, 15, ALIGNMENT, ALIGNMENT + 1, NARROW, NARROW + 1])
def test_few_columns_are_filled_up_without_a_trace(width: int) -> None:
    x, vectors = torch.randn(3, 5, 7, dtype=torch.float64), torch.randn(7, width, dtype=torch.float64)
    assert_close(along(x, vectors), torch.einsum("nsp,pq->nsq", x, vectors))
    wide = filled_up(vectors)
    assert wide.shape[1] % ALIGNMENT == 0
    assert torch.equal(wide[:, :width], vectors)
    assert not wide[:, width:].any()
