"""What a layer takes in, in parts and over batches, adds up to the sums over all its examples."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from dense import assert_close
from infoform.curvature.dimensions import Dimensions
from infoform.fitting.accumulate import GradientAccumulator, PassSums
from infoform.fitting.chunks import WAITING_SHARE_OF_CHUNK, ChunkLimits, shared_limit, waiting_rows
from infoform.fitting.per_example_gradients import Gradients
from infoform.fitting.reading import BatchExamples
from infoform.fitting.running_sums import Operations, Squares, Sums
from infoform.network.capture import Call
from infoform.network.coverage import find_layers
from infoform.network.layer import Layer


class Parts(Sums):
    """Remembers the size and the first number of every part."""

    def __init__(self) -> None:
        self.parts: list[tuple[int, int]] = []
        self.numbers: list[int] = []

    def add(self, gradients: Gradients, *, numbers: Tensor, first: bool) -> None:
        assert isinstance(gradients.positions, Tensor)
        assert len(numbers) == gradients.positions.shape[1]
        self.parts.append((int(numbers[0]), len(numbers)))
        self.numbers += numbers.tolist()

    def totals(self) -> list[Tensor | None]:
        return []

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {}

    def operations(self, size: Dimensions) -> Operations:
        return Operations()


def layer_of(module: nn.Module) -> Layer:
    return find_layers(nn.Sequential(module))[0]["0"]


def call_of(module: nn.Module, x: Tensor, g: Tensor) -> Call:
    return Call(module, x, x._version, g)


def accumulator_of(
    module: nn.Module, sums: Sequence[Sums], chunk: int, *, shared: int | None = None
) -> GradientAccumulator:
    limits = ChunkLimits(chunk, chunk if shared is None else shared, single=True)
    return GradientAccumulator(layer_of(module), PassSums(sums), limits)


def rows(limit: int, sizes: list[int], *, single: bool = True, gap: int = 0) -> tuple[Parts, Squares, Tensor, Tensor]:
    module = nn.Linear(3, 2).double()
    parts, squares = Parts(), Squares((2, 4))
    chunk = limit * 6 * 8 * (WAITING_SHARE_OF_CHUNK if single else 1)
    accumulator = GradientAccumulator(layer_of(module), PassSums([parts, squares]), ChunkLimits(chunk, chunk, single))
    x, g = torch.randn(sum(sizes), 3, dtype=torch.float64), torch.randn(sum(sizes), 2, dtype=torch.float64)
    index = 0
    for a, b in zip(x.split(sizes), g.split(sizes), strict=True):
        accumulator.add([call_of(module, a, b)], BatchExamples(torch.arange(index, index + len(a))), first=True)
        index += len(a) + gap
    accumulator.release()
    return parts, squares, torch.cat([x, torch.ones(len(x), 1, dtype=torch.float64)], 1), g


@pytest.mark.parametrize("single", [True, False])
def test_every_example_is_added_once(single: bool) -> None:
    _, squares, a, g = rows(4, [3, 2, 9, 1], single=single)
    assert squares.squares is not None
    assert_close(squares.squares, g.square().T @ a.square())


def test_rank_one_gradients_wait_for_those_of_later_batches() -> None:
    assert rows(4, [3, 2, 9, 1])[0].parts == [(0, 4), (4, 4), (8, 4), (12, 3)]


def test_gradients_of_several_fisher_vectors_do_not_wait() -> None:
    assert rows(4, [3, 2, 9], single=False)[0].parts == [(0, 3), (3, 2), (5, 4), (9, 4), (13, 1)]


def test_examples_keep_their_numbers_where_batches_were_left_out() -> None:
    parts = rows(5, [3, 2, 3], gap=10)[0]
    assert parts.parts == [(0, 5), (25, 3)]
    assert parts.numbers == [0, 1, 2, 13, 14, 25, 26, 27]


def test_patches_and_gradients_stay_within_the_limit() -> None:
    module = nn.Conv2d(2, 3, 2).double()
    each = (3 * 9 + 4 * 9) * 8  # ∇ and four patches
    parts = Parts()
    accumulator = accumulator_of(module, [parts], 2 * each)
    call = call_of(module, torch.randn(5, 2, 3, 3).double(), torch.randn(5, 3, 2, 2).double())
    accumulator.add([call], BatchExamples(torch.arange(7, 7 + len(call.inputs))), first=True)
    assert parts.parts == [(7, 2), (9, 2), (11, 1)]
    assert not accumulator.waits


class LoneParts(Parts):
    one_by_one = True


@pytest.mark.parametrize(
    ("sums", "expected"),
    [((Parts,), [(0, 3)]), ((LoneParts,), [(0, 1), (1, 1), (2, 1)]), ((LoneParts, Parts), [(0, 3)])],
)
def test_large_gradients_are_squared_one_by_one_where_nothing_else_is_wanted_of_them(
    sums: tuple[type[Parts], ...], expected: list[tuple[int, int]]
) -> None:
    module, own = nn.Linear(1023, 1024), [one() for one in sums]  # ∇ has 4 MiB
    accumulator = accumulator_of(module, own, 2**24)
    accumulator.add(
        [call_of(module, torch.ones(3, 2, 1023), torch.ones(3, 2, 1024))], BatchExamples(torch.arange(3)), first=True
    )
    assert all(one.parts == expected for one in own)


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (nn.Conv2d(16, 16, 3, bias=False), [(0, 4)]),
        (nn.Conv2d(15, 16, 3, bias=False), [(0, 1), (1, 1), (2, 1), (3, 1)]),
    ],
)
def test_patches_that_are_never_unfolded_do_not_count(module: nn.Conv2d, expected: list[tuple[int, int]]) -> None:
    x, own = (
        torch.ones(4, module.in_channels, 34, 34),
        LoneParts(),
    )  # 1,024 patches and a ∇ of 16 rows, of half a KiB each
    accumulator = accumulator_of(module, [own], 2**20)
    accumulator.add([call_of(module, x, torch.ones(4, 16, 32, 32))], BatchExamples(torch.arange(4)), first=True)
    assert own.parts == expected


@pytest.mark.parametrize(
    ("size", "limit", "rows"), [(8, 2**24, 2**17), (4096, 2**24, 256), (8192, 2**20, 16), (9, 1, 1)]
)
def test_waiting_gradients_are_few_where_they_are_large(size: int, limit: int, rows: int) -> None:
    assert waiting_rows(size, limit) == rows  # a MiB, 256 of them, an eighth of the limit, at least one


def test_shared_weights_get_a_part_of_what_the_model_takes() -> None:
    assert shared_limit(2**24, 0) == 2**23
    assert shared_limit(2**24, 9 * 2**21) == 6 * 2**21
    assert shared_limit(2**24, 2**30) == 2**24
    assert shared_limit(2**20, 2**30) == 2**20
    module = nn.Conv1d(2, 3, 2).double()
    parts = Parts()
    each = (3 * 5 + 3 * 5) * 8
    accumulator = accumulator_of(module, [parts], 10 * each, shared=3 * each)
    call = call_of(module, torch.randn(5, 2, 4).double(), torch.randn(5, 3, 3).double())
    accumulator.add([call], BatchExamples(torch.arange(5)), first=True)
    assert parts.parts == [(0, 3), (3, 2)]


def test_half_precision_is_summed_in_single() -> None:
    module = nn.Linear(3, 2, dtype=torch.bfloat16)
    squares = Squares((2, 4))
    accumulator = accumulator_of(module, [squares], 2**20)
    x, g = torch.randn(5, 3).bfloat16(), torch.randn(5, 2).bfloat16()
    accumulator.add([call_of(module, x, g)], BatchExamples(torch.arange(len(x))), first=True)
    accumulator.release()
    assert squares.squares is not None
    assert squares.squares.dtype == torch.float32
    torch.testing.assert_close(squares.squares[:, :3], g.float().square().T @ x.float().square())
