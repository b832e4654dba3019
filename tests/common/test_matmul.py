"""Products are the same however their factors lie in memory, and rows of aligned matrices begin at round addresses."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.testing import assert_close as assert_near

from dense import assert_close
from infoform.common.matmul import (
    ALIGNMENT,
    LONG_ROWS,
    NARROW,
    WORTH_ONEDNN,
    aligned,
    along,
    products_of_few,
    rows_times,
    selected,
    summed,
    summed_products,
    times,
)
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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("layout", ["rows", "transposed", "cut"])
def test_rows_times_is_the_product_with_the_transpose(dtype: torch.dtype, layout: str) -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((150, 90), (70, 90)))
    expected = x @ y.T
    x, y = x.to(dtype), y.to(dtype)
    if layout == "transposed":
        y = y.T.contiguous().T
    if layout == "cut":
        x, y = functional.pad(x, (0, 3))[:, :-3], functional.pad(y, (0, 3))[:, :-3]
    assert x.numel() * len(y) >= WORTH_ONEDNN
    tolerance = 1e-12 if dtype == torch.float64 else 1e-5
    assert_near(rows_times(x, y).double(), expected, rtol=tolerance, atol=10 * tolerance)
    by_example = rows_times(x.reshape(10, 15, 90), y).double()
    assert_near(by_example, expected.view(10, 15, 70), rtol=tolerance, atol=10 * tolerance)


@pytest.mark.parametrize("size", [3, LONG_ROWS])
def test_products_of_few_long_rows_are_those_of_a_matrix_product(size: int) -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn((rows, size), generator=generator, dtype=torch.float64) for rows in (8, 9))
    assert_near(products_of_few(x, y), x @ y.T)
    assert_near(products_of_few(x.float(), y.float()).double(), x @ y.T, rtol=1e-4, atol=1e-2)
    assert_near(products_of_few(x.T.contiguous().T, y), x @ y.T)
