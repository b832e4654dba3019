"""Which examples are left out depends on their numbers alone."""

import pytest
import torch

from infoform.novelty.left_out import LEAST_LIMIT, MOST, MOST_BYTES, MOST_PARTS, ExampleRows, LeftOut


def read(count: int, size: int, columns: int = 1) -> tuple[LeftOut, list[int]]:
    """Return what is left out of so many examples in batches of a size, and the numbers of the others."""
    left, others = LeftOut(), []
    for numbers in torch.arange(count).split(size):
        chosen, returned = left.cut(ExampleRows(numbers, {"row": numbers[:, None].double().expand(-1, columns)}))
        others += numbers[~chosen].tolist() + [number for part in returned for number in part.numbers.tolist()]
    return left, others


@pytest.mark.parametrize("count", [10, 300, 20_000])
def test_the_batch_size_does_not_matter(count: int) -> None:
    expected, _ = read(count, count)
    for size in (1, 7) if count < 1000 else (64, 999):
        left, others = read(count, size)
        own = left.examples()
        assert torch.equal(own.numbers, expected.examples().numbers)
        assert torch.equal(own.rows["row"][:, 0], own.numbers.double())
        assert sorted([*others, *own.numbers.tolist()]) == list(range(count))  # each example once


def test_there_are_never_too_many_and_they_are_spread_over_the_data() -> None:
    left, _ = read(50_000, 500)
    numbers = left.examples().numbers
    assert MOST / 3 < len(numbers) <= MOST
    for period in (2, 10, 64):  # data may be sorted, or repeat
        assert int((numbers % period).bincount(minlength=period).min()) > 0.2 * len(numbers) / period
    assert abs(float(numbers.double().mean()) / 25_000 - 1) < 0.1


def test_wide_rows_are_fewer() -> None:
    columns = MOST_BYTES // 8 // 300  # 300 rows at most
    left, others = LeftOut(), 0
    for numbers in torch.arange(1600).split(100):
        rows = {"row": torch.zeros(1, columns).double().expand(100, -1)}
        chosen, returned = left.cut(ExampleRows(numbers, rows))
        others += int((~chosen).sum()) + sum(len(one.numbers) for one in returned)
    assert LEAST_LIMIT / 2 < left.count <= 300
    assert others + left.count == 1600


def test_a_state_goes_on() -> None:
    whole, _ = read(9000, 250)
    first, _ = read(5000, 250)
    second = LeftOut()
    second.restore(*first.state())
    for numbers in torch.arange(5000, 9000).split(250):
        second.cut(ExampleRows(numbers, {"row": numbers[:, None].double()}))
    assert second.stride == whole.stride
    assert torch.equal(second.examples().numbers, whole.examples().numbers)
    assert torch.equal(second.examples().rows["row"], whole.examples().rows["row"])


@pytest.mark.parametrize("size", [1, 50])
def test_what_is_left_out_lies_in_few_tensors(size: int) -> None:
    left, _ = read(3000, size)
    assert left.count > MOST / 3
    assert len(left.parts) <= MOST_PARTS
