"""Eigenvectors, supports and Grams of a Kronecker eigenbasis, against the products written out."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from infoform.curvature import eigenbasis
from infoform.curvature.eigenbasis import (
    SquaredWeights,
    coupled_diagonal,
    expanded_diagonal,
    gather_pairs,
    leading_pairs,
    promising_pairs,
    scatter_pairs,
    select_pairs,
    symmetric_eigh,
    weighted_gram,
)


def normal(*size: int, seed: int = 0) -> Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def orthonormal(size: int, columns: int, *, seed: int = 0) -> Tensor:  # (size, columns)
    vectors: Tensor = torch.linalg.qr(normal(size, size, seed=seed)).Q
    return vectors[:, :columns].contiguous()


def kept_columns(input_vectors: Tensor, gradient_vectors: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Return U_T (G * A, K), each column an explicit Kronecker product."""
    pairs = zip(rows.tolist(), columns.tolist(), strict=True)
    return torch.stack([torch.kron(gradient_vectors[:, r], input_vectors[:, c]) for r, c in pairs], 1)


# (G, A, g, a, pairs kept): fewer columns on either side, few pairs (gathered) and all of them (by matrix product)
GRAMS = {
    "all pairs, more input columns": (4, 6, 3, 5, 15),
    "all pairs, more output columns": (6, 4, 5, 3, 15),
    "few pairs, more input columns": (12, 14, 10, 13, 3),
    "few pairs, more output columns": (14, 12, 13, 10, 3),
    "one pair": (4, 6, 1, 1, 1),
    "one pair of many": (12, 14, 12, 14, 1),
    "whole basis": (3, 4, 3, 4, 12),
}


@pytest.mark.parametrize("case", GRAMS)
def test_the_weighted_gram_is_that_of_the_explicit_columns(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    outputs, inputs, g, a, kept = GRAMS[case]
    weights = normal(outputs, inputs).abs()
    u_a, u_g = orthonormal(inputs, a, seed=1), orthonormal(outputs, g, seed=2)
    order = torch.randperm(g * a, generator=torch.Generator().manual_seed(3))[:kept]
    rows, columns = order // a, order % a
    explicit = kept_columns(u_a, u_g, rows, columns)
    expected = explicit.T @ (weights.flatten()[:, None] * explicit)
    gathered: list[int] = []
    add = eigenbasis._add_wanted_pairs

    def watched(gram: Tensor, *operands: Tensor) -> None:
        gathered.append(len(gram))
        add(gram, *operands)

    monkeypatch.setattr(eigenbasis, "_add_wanted_pairs", watched)
    assert_close(weighted_gram(weights, u_a, u_g, rows, columns), expected, rtol=1e-9, atol=1e-12)
    few = case.startswith("few") or case == "one pair of many"
    assert bool(gathered) == few, "the case does not take the route that it is meant for"


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("case", GRAMS)
def test_squared_weights_are_computed_some_at_a_time(case: str, scaled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SquaredWeights, "PART", 10)
    monkeypatch.setattr(eigenbasis, "NARROWEST", 1)
    outputs, inputs, g, a, kept = GRAMS[case]
    root, scale = normal(outputs, inputs, seed=7), normal(outputs, inputs, seed=8) if scaled else None
    u_a, u_g = orthonormal(inputs, a, seed=1), orthonormal(outputs, g, seed=2)
    order = torch.randperm(g * a, generator=torch.Generator().manual_seed(3))[:kept]
    s = torch.ones(outputs, inputs).double() if scale is None else scale
    weights = SquaredWeights(root, scale)
    explicit = kept_columns(u_a, u_g, order // a, order % a)
    expected = explicit.T @ ((root.square() * s.square()).flatten()[:, None] * explicit)
    assert_close(weighted_gram(weights, u_a, u_g, order // a, order % a), expected, rtol=1e-9, atol=1e-12)
    for times in (0, 1, 2):
        assert_close(weights.times(u_a, times=times), (root.square() * s**times) @ u_a, rtol=1e-9, atol=1e-12)


@settings(deadline=None)
@given(st.integers(1, 5), st.integers(1, 5), st.data())
def test_the_weighted_gram_holds_for_any_pairs(outputs: int, inputs: int, data: st.DataObject) -> None:
    g, a = data.draw(st.integers(1, outputs)), data.draw(st.integers(1, inputs))
    index = data.draw(st.lists(st.integers(0, g * a - 1), min_size=1, max_size=g * a, unique=True))
    order = torch.tensor(index)
    weights = normal(outputs, inputs, seed=4)  # of any sign
    u_a, u_g = normal(inputs, a, seed=5), normal(outputs, g, seed=6)  # not even orthonormal
    explicit = kept_columns(u_a, u_g, order // a, order % a)
    expected = explicit.T @ (weights.flatten()[:, None] * explicit)
    assert_close(weighted_gram(weights, u_a, u_g, order // a, order % a), expected, rtol=1e-9, atol=1e-12)


def test_the_expanded_diagonal_is_that_of_the_whole_matrix() -> None:
    u_a, u_g = orthonormal(6, 4, seed=1), orthonormal(5, 3, seed=2)
    eigenvalues = normal(3, 4).square()
    basis = torch.kron(u_g, u_a)
    expected = (basis * eigenvalues.flatten() @ basis.T).diag().reshape(5, 6)
    assert_close(expanded_diagonal(u_a, u_g, eigenvalues), expected, rtol=1e-9, atol=0)


def test_the_papers_toy_example_keeps_three_and_completes_them_to_four() -> None:
    # six eigenvalues in descending order over U_A (3 columns) and U_G (2 columns); the paper counts U_G fastest
    eigenvalues = torch.tensor([6.0, 5.0, 4.0, 3.0, 2.0, 1.0]).reshape(3, 2).T  # (g, a)
    rows, columns = select_pairs(eigenvalues, rank=3, support="top")
    assert list(zip(columns.tolist(), rows.tolist(), strict=True)) == [(0, 0), (0, 1), (1, 0)]
    rows, columns = select_pairs(eigenvalues, rank=3, support="grid")
    assert sorted(set(columns.tolist())) == [0, 1]  # U_A 1:2
    assert sorted(set(rows.tolist())) == [0, 1]  # U_G 1:2
    assert sorted(gather_pairs(eigenvalues, rows, columns).tolist(), reverse=True) == [6.0, 5.0, 4.0, 3.0]  # Λ 1:4


def test_definition_two_is_off_by_one_where_m_divides_the_index_and_ours_is_not() -> None:
    m, n = 2, 3
    eigenvalues = torch.arange(m * n, 0, -1.0).reshape(n, m).T  # (g, a), largest first in the paper's order
    for i in range(1, m * n + 1):  # the paper counts from 1
        beta, zeta = (i - 1) // m + 1, (i - 1) % m + 1
        assert m * (beta - 1) + zeta == i
        rows, columns = select_pairs(eigenvalues, rank=i, support="top")
        assert (int(columns[-1]) + 1, int(rows[-1]) + 1) == (beta, zeta)
        printed = i // m + 1
        assert (printed != beta) == (i % m == 0)


@settings(deadline=None)
@given(st.integers(1, 5), st.integers(1, 5), st.data())
def test_the_top_support_keeps_the_largest_and_the_grid_completes_it(g: int, a: int, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.integers(0, 3), min_size=g * a, max_size=g * a))  # many ties
    eigenvalues = torch.tensor(values, dtype=torch.float64).reshape(g, a)
    rank = data.draw(st.integers(1, g * a))
    rows, columns = select_pairs(eigenvalues, rank=rank, support="top")
    top = set(zip(rows.tolist(), columns.tolist(), strict=True))
    assert len(top) == rank, "ties do not bring more pairs, nor one pair twice"
    left = [eigenvalues[i, j] for i in range(g) for j in range(a) if (i, j) not in top]
    assert all(eigenvalues[pair] >= other for pair in top for other in left)
    grid_rows, grid_columns = select_pairs(eigenvalues, rank=rank, support="grid")
    grid = list(zip(grid_rows.tolist(), grid_columns.tolist(), strict=True))
    assert grid == sorted({(i, j) for i, _ in top for _, j in top})
    assert top <= set(grid)


def test_ties_are_broken_in_row_major_order() -> None:
    rows, columns = select_pairs(torch.ones(3, 4), rank=5, support="top")
    assert rows.tolist() == [0, 0, 0, 0, 1]
    assert columns.tolist() == [0, 1, 2, 3, 0]


def test_gathering_undoes_scattering() -> None:
    values = normal(2, 3, 4)
    rows, columns = torch.tensor([0, 2, 1, 2]), torch.tensor([3, 0, 1, 2])
    matrix = scatter_pairs(values, rows, columns, (3, 4))
    assert matrix.shape == (2, 3, 3, 4)
    assert torch.equal(gather_pairs(matrix, rows, columns), values)
    assert_close(matrix.sum((-2, -1)), values.sum(-1), rtol=1e-9, atol=1e-12)


def check_eigh(matrix: Tensor, *, rtol: float = 1e-12) -> None:
    values, vectors = symmetric_eigh(matrix, name="layer")
    assert values.dtype == vectors.dtype == matrix.dtype
    assert vectors.is_contiguous()
    assert (values >= 0).all()
    assert (values.diff() <= 0).all(), "largest first"
    assert_close(vectors.T @ vectors, torch.eye(len(matrix), dtype=matrix.dtype), rtol=0, atol=rtol)
    scale = float(matrix.abs().max()) or 1.0
    assert_close((vectors * (values / scale)) @ vectors.T, matrix / scale, rtol=0, atol=rtol * len(matrix))


def test_the_zero_matrix_has_the_unit_vectors() -> None:
    check_eigh(torch.zeros(5, 5, dtype=torch.float64))


def test_a_rank_deficient_matrix_has_no_negative_eigenvalues() -> None:
    rows = normal(3, 40)
    check_eigh(rows.T @ rows)
    check_eigh((rows.T @ rows).float(), rtol=1e-5)


@pytest.mark.parametrize("exponent", [15, -15])
def test_a_badly_scaled_matrix_is_decomposed(exponent: int) -> None:
    scales = torch.logspace(-15, 15, 20, dtype=torch.float64)  # entries from 1e-30 to 1e30
    rows = normal(30, 20) * scales
    check_eigh(rows.T @ rows)
    check_eigh(torch.eye(7, dtype=torch.float64) * 10.0 ** (20 * exponent))  # squares would overflow, or vanish


def test_only_the_leading_vectors_are_returned_when_asked_for() -> None:
    rows = normal(30, 8)
    moment = rows.T @ rows
    values, whole = leading_pairs(moment, columns=None, name="layer")
    some, leading = leading_pairs(moment, columns=3, name="layer")
    assert torch.equal(leading, whole[:, :3])
    assert torch.equal(some, values[:3])
    assert whole.shape == (8, 8)
    assert_close(moment @ whole, whole * values)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_statistics_that_are_not_finite_name_the_layer(bad: float) -> None:
    matrix = torch.eye(4, dtype=torch.float64)
    matrix[1, 2] = matrix[2, 1] = bad
    with pytest.raises(ValueError, match=r"'encoder\.3'"):
        symmetric_eigh(matrix, name="encoder.3")


def test_the_largest_factor_of_resnet18_is_decomposed_in_float32() -> None:
    size, rank = 4608, 300  # inputs of a 3 × 3 convolution over 512 channels
    rows = normal(rank, size).float() * torch.logspace(-6, 6, size)  # far fewer directions than inputs, badly scaled
    factor = rows.T @ rows
    values, vectors = symmetric_eigh(factor, name="layer4.1.conv2")
    assert values.dtype == vectors.dtype == torch.float32
    assert values.isfinite().all()
    assert vectors.isfinite().all()
    assert (values >= 0).all()
    assert (values.diff() <= 0).all()
    some = torch.randperm(size, generator=torch.Generator().manual_seed(0))[:200]
    assert_close(vectors[:, some].T @ vectors[:, some], torch.eye(200), rtol=0, atol=1e-5)
    x = normal(size, 5).float()
    reconstructed = vectors @ (values[:, None] * (vectors.T @ x))
    norm = float(values[0]) * x.norm(dim=0)  # |factor| |x|
    assert ((reconstructed - factor @ x).norm(dim=0) <= 1e-5 * norm).all()


@pytest.mark.parametrize(("outputs", "inputs"), [(3, 7), (7, 3)])
def test_the_diagonal_of_a_core_is_that_of_the_dense_product(outputs: int, inputs: int) -> None:
    u_a, u_g, half = normal(inputs, 4), normal(outputs, 3), normal(5, 5)
    core = half @ half.T
    rows, columns = torch.tensor([0, 2, 1, 0, 2]), torch.tensor([1, 1, 0, 3, 2])
    kept = (u_g[:, None, rows] * u_a[None, :, columns]).flatten(0, 1)
    expected = (kept @ core @ kept.T).diag().reshape(outputs, inputs)
    assert_close(coupled_diagonal(u_a, u_g, rows, columns, core), expected)


def test_promising_pairs_have_the_largest_products() -> None:
    g, a = torch.tensor([5.0, 1.0]), torch.tensor([4.0, 3.0, 0.5])
    assert promising_pairs(g, a, count=3).T.tolist() == [[0, 0], [0, 1], [1, 0]]
    assert promising_pairs(g, a, count=100).shape == (2, 6)


def test_pairs_that_are_to_be_first_are_first_and_sorted() -> None:
    eigenvalues = torch.tensor([[9.0, 1.0], [5.0, 7.0]])
    first = torch.tensor([[1, 0], [0, 1]])
    rows, columns = select_pairs(eigenvalues, rank=3, support="top", first=first)
    assert list(zip(rows.tolist(), columns.tolist(), strict=True)) == [(1, 0), (0, 1), (0, 0)]
    rows, columns = select_pairs(eigenvalues, rank=1, support="grid", first=torch.tensor([[1], [1]]))
    assert (rows.tolist(), columns.tolist()) == ([1], [1])
