"""Embeddings: exact rows, and never a matrix of vocabulary size an example."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import infoform
from dense import assert_close
from exactness import check_exact, spread
from infoform.layers import find_rule
from infoform.layers.embedding import sum_rows


class Words(nn.Module):
    """A mean of embedded words; the table is looked into twice."""

    def __init__(self, *, tokens_first: bool = False, **options: Any) -> None:
        super().__init__()
        self.table, self.norm, self.head = nn.Embedding(7, 4, **options), nn.LayerNorm(4), nn.Linear(4, 3)
        self.tokens_first = tokens_first

    def forward(self, x: Tensor) -> Tensor:
        x = x.T if self.tokens_first else x
        hidden = self.norm(self.table(x) + self.table((x + 1) % 7).tanh())
        return self.head(hidden.mean(0 if self.tokens_first else 1))  # type: ignore[no-any-return]


class Bag(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.table, self.head = nn.EmbeddingBag(7, 4, **options), nn.Linear(4, 3)

    def forward(self, x: Tensor, weights: Tensor | None = None) -> Tensor:
        return self.head(self.table(x, per_sample_weights=weights).tanh())  # type: ignore[no-any-return]


class Bags(Bag):
    """Bags of several lengths, given by offsets into one long row of words."""

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:  # type: ignore[override]
        words = torch.cat([row[: int(length)] for row, length in zip(x, lengths, strict=True)])
        return self.head(self.table(words, lengths.cumsum(0) - lengths).tanh())  # type: ignore[no-any-return]


def words(length: int = 5) -> Tensor:
    return torch.randint(7, (6, length), generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("length", [5, 6])
@pytest.mark.parametrize("tokens_first", [False, True])
@pytest.mark.parametrize("padding_idx", [None, 2])
def test_the_rows_of_an_embedding_are_exact(tokens_first: bool, padding_idx: int | None, length: int) -> None:
    laplace = check_exact(spread(Words(tokens_first=tokens_first, padding_idx=padding_idx)), words(length))
    assert all(row.covered for row in laplace.coverage())


@pytest.mark.parametrize("padding_idx", [None, 2])
@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_bags_are_exact_with_and_without_offsets(mode: str, padding_idx: int | None) -> None:
    check_exact(spread(Bag(mode=mode, padding_idx=padding_idx)), words())
    check_exact(spread(Bags(mode=mode, padding_idx=padding_idx)), words(), torch.tensor([1, 2, 5, 3, 4, 5]))


def test_weighted_bags_are_exact() -> None:
    check_exact(spread(Bag(mode="sum")), words(), torch.rand(6, 5, dtype=torch.float64))


def test_gradients_that_torch_keeps_sparse_are_the_same() -> None:
    found = []
    for sparse in (False, True):
        model = spread(Words(sparse=sparse)).double()
        laplace = infoform.Laplace(model, "classification", structure="diag", layers="all")
        found.append(laplace.fit([words()], progress=False).curvature["table"].diagonal)
    assert found[0] is not None
    assert_close(found[1], found[0])


@pytest.mark.parametrize("module", [nn.Embedding(5, 2, max_norm=1.0), nn.EmbeddingBag(5, 2, mode="max")])
def test_tables_that_are_changed_or_not_linear_have_no_rule(module: nn.Module) -> None:
    assert find_rule(module) is None


def test_rows_are_summed_by_example() -> None:
    indices = torch.tensor([[1, 3, 1], [3, 3, 0]])
    values = torch.arange(6.0).reshape(2, 3, 1)
    examples, rows, sums = sum_rows(indices, values, height=4)
    assert (examples.tolist(), rows.tolist(), sums.flatten().tolist()) == ([0, 0, 1, 1], [1, 3, 0, 3], [2, 1, 5, 7])


def test_a_large_vocabulary_costs_no_matrix_an_example() -> None:
    torch.manual_seed(0)
    vocabulary, width = 50_000, 64
    model = nn.Sequential(nn.Embedding(vocabulary, width), nn.Flatten(), nn.Linear(4 * width, 3))
    x = torch.randint(vocabulary, (64, 4))
    laplace = infoform.Laplace(model, "classification", layers=["0"], structure="diag")
    sizes: list[int] = []

    class Watching(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            if isinstance(out, Tensor):
                sizes.append(out.numel())
            return out

    with Watching():  # type: ignore[no-untyped-call]
        laplace.fit([x], progress=False, check=False)
        laplace.predict(x, kind="linear")
    assert max(sizes) <= vocabulary * width


class Positions(nn.Module):
    """Position embeddings as BERT has them: looked up once for all examples."""

    def __init__(self, *, by_hand: bool = False) -> None:
        super().__init__()
        self.words, self.places, self.head = nn.Embedding(7, 4), nn.Embedding(9, 4), nn.Linear(4, 3)
        self.by_hand = by_hand

    def forward(self, x: Tensor) -> Tensor:
        found = self.places(torch.arange(x.shape[1]).unsqueeze(0))
        if self.by_hand:  # which takes one row of tokens for granted
            found = found.reshape(x.shape[1], 4)
        return self.head((self.words(x) + found).tanh().mean(1))  # type: ignore[no-any-return]


def test_tables_that_all_examples_look_up_at_once_are_exact() -> None:
    laplace = check_exact(spread(Positions()), words())
    assert all(row.covered for row in laplace.coverage())


def test_where_that_cannot_be_they_are_held_fixed_with_a_reason() -> None:
    with pytest.warns(UserWarning, match="layer 'places' is held fixed: its inputs have the shape"):
        laplace = check_exact(spread(Positions(by_hand=True)), words())
    assert [row.parameter for row in laplace.coverage() if not row.covered] == ["places.weight"]
