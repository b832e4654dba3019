"""Output covariances of Jacobians that come one after the other, and the columns that cover the kept pairs."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from curvatures import make_curvature, random_gradients
from infoform.posteriors import InfPosterior
from infoform.posteriors.inf import jacobian_form
from infoform.posteriors.inf.jacobian_form import PairCover
from infoform.priors import LayerPrior

G, A, C, N = 7, 5, 3, 4


def normal(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def posterior_of(*, prior_rank: int, stiffness: float = 1.0, support: str = "top", **options: Any) -> InfPosterior:
    curvature = make_curvature(*random_gradients(examples=12, shape=(G, A), seed=0))
    vectors = torch.linalg.qr(normal(A, prior_rank)).Q if prior_rank else None
    values = stiffness * normal(prior_rank, seed=2).square() if prior_rank else None
    prior = LayerPrior(normal(A).square() + 0.1, vectors, values)
    rank = 8 if support == "top" else 6
    return InfPosterior.from_curvature(curvature, prior=prior, num_data=40.0, rank=rank, support=support, **options)


@pytest.mark.parametrize("together", [1, 2**20], ids=["one by one", "all at once"])
@pytest.mark.parametrize("row_cost", [0.001, 3, 1000], ids=["rows", "both", "columns"])
@pytest.mark.parametrize("support", ["top", "grid"])
@pytest.mark.parametrize("correction", ["scaled", "additive"])
@pytest.mark.parametrize("prior_rank", [0, 2])
def test_covariances_are_those_of_the_dense_precision(
    together: int, row_cost: float, support: str, correction: str, prior_rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jacobian_form, "TOGETHER", together)
    monkeypatch.setattr(jacobian_form, "ROW_COST", row_cost)
    monkeypatch.setattr(jacobian_form, "ALIGNMENT", 1)
    core = "full" if support == "top" and correction == "scaled" else "diagonal"
    posterior = posterior_of(prior_rank=prior_rank, support=support, correction=correction, core=core)
    jacobians = normal(N, C, G, A, seed=3)
    flat = jacobians.flatten(2)
    expected = flat @ torch.linalg.solve(posterior.dense(), flat.mT)
    assert_close(posterior.covariance(jacobians), expected, rtol=1e-9, atol=1e-12)
    sums = posterior.jacobian_sums()
    for one in jacobians:
        sums.add(one)
    assert_close(sums.covariance(), expected, rtol=1e-9, atol=1e-12)


def test_nothing_cancels_under_a_stiff_prior() -> None:
    posterior = posterior_of(prior_rank=2, stiffness=1e7)
    jacobians = normal(N, C, G, A, seed=3)
    flat = jacobians.flatten(2)
    expected = flat @ torch.linalg.solve(posterior.dense(), flat.mT)
    assert_close(posterior.covariance(jacobians), expected, rtol=1e-6, atol=1e-12)


@settings(deadline=None)
@given(st.sets(st.tuples(st.integers(0, 5), st.integers(0, 6)), min_size=1), st.sampled_from([0.01, 3, 100]))
def test_a_cover_has_every_pair_once(pairs: set[tuple[int, int]], row_cost: float) -> None:
    before, jacobian_form.ROW_COST = jacobian_form.ROW_COST, row_cost  # type: ignore[assignment]
    try:
        rows, columns = torch.tensor(sorted(pairs)).T
        cover = PairCover.of(rows, columns)
    finally:
        jacobian_form.ROW_COST = before
    assert cover.order.sort().values.tolist() == list(range(len(pairs)))
    first = [(int(row), int(cover.columns[place])) for place, row in zip(*cover.by_column, strict=True)]
    last = [(int(cover.rows[place]), int(column)) for place, column in zip(*cover.by_row, strict=True)]
    assert first + last == list(zip(rows[cover.order].tolist(), columns[cover.order].tolist(), strict=True))
    assert not {row for row, _ in first} & set(cover.rows.tolist()) or last


def test_few_columns_of_both_sides_cover_pairs_of_the_largest_products() -> None:
    pairs = [(row, column) for row in range(50) for column in range(50) if (row + 1) * (column + 1) <= 30]
    rows, columns = torch.tensor(pairs).T
    cover = PairCover.of(rows, columns)
    assert len(cover.columns) + len(cover.rows) < 20  # of 30 columns on either side
