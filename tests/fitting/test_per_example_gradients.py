"""Sums over per-example gradients: rank-one and shared ones agree with each other and with the definition."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dense import Reference, assert_close
from infoform.common.matmul import ALIGNMENT
from infoform.fitting.per_example_gradients import (
    AT_ONCE,
    FEW,
    Gradients,
    OuterGradients,
    RowGradients,
    SharedGradients,
    Unfolded,
)

G, A = 3, 4


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def orthonormal(rows: int, columns: int) -> Tensor:
    basis: Tensor = torch.linalg.qr(random(rows, rows, seed=rows)).Q
    return basis[:, :columns].contiguous()


def outer(n: int) -> OuterGradients:
    return OuterGradients(random(n, A), random(n, G, seed=1))


def shared(n: int, s: int, *, groups: int = 1, transposed: bool = False) -> SharedGradients:
    patches, positions = random(groups, n, s, A), random(groups, n, s, G, seed=1)
    if transposed:  # positions innermost in memory, as convolutions have them
        patches, positions = patches.mT.contiguous().mT, positions.mT.contiguous().mT
    return SharedGradients(positions, Unfolded(patches))


def matrices(gradients: Gradients) -> Tensor:  # (N, G, A)
    patches, positions = gradients.patches, gradients.positions
    assert isinstance(patches, Tensor)
    assert isinstance(positions, Tensor)
    return torch.stack(
        [torch.cat([g[i].T @ a[i] for a, g in zip(patches, positions, strict=True)]) for i in range(positions.shape[1])]
    )


def every_kind(n: int) -> dict[str, Gradients]:
    return {
        "outer": outer(n),
        "few positions": shared(n, 2),
        "many positions": shared(n, 40),
        "positions innermost": shared(n, 2, transposed=True),
        "grouped": shared(n, 2, groups=2),
    }


@pytest.mark.parametrize("n", [1, 5, FEW + 3])
@pytest.mark.parametrize("kind", every_kind(1))
@pytest.mark.parametrize("first", ["sketch", "squares"])  # what was formed before decides over the cheaper way
def test_every_sum_is_its_definition(kind: str, n: int, first: str) -> None:
    for kept in [(A, G), (2, 2), (1, G), (A, 1)]:
        gradients = every_kind(n)[kind]
        expected = matrices(gradients)
        outputs = expected.shape[1]
        reference = Reference(expected.unsqueeze(1), [], [])
        u_a, u_g = orthonormal(A, kept[0]), orthonormal(outputs, kept[1])
        total = random(outputs, A, seed=2)
        before = total.clone()
        if first == "squares":
            gradients.add_squares(total)
        assert_close(gradients.input_sketch(u_a) / n, reference.input_moment @ u_a)
        assert_close(gradients.gradient_sketch(u_g) / n, reference.gradient_moment @ u_g)
        if first == "sketch":
            gradients.add_squares(total)
        assert_close((total - before) / n, reference.diagonal)
        assert_close(gradients.input_moment() / n, reference.input_moment)
        assert_close(gradients.gradient_moment() / n, reference.gradient_moment)
        assert_close(gradients.block() / n, reference.block)
        weights = torch.ones(n, dtype=torch.float64)
        residual = torch.zeros_like(reference.diagonal)
        projection = gradients.project(u_a, u_g)
        squares = projection.squares()
        projection.add_residual(residual, weights)
        assert_close(squares / n, reference.eigenvalues(u_a, u_g))
        atol = 1e-12 * float(reference.diagonal.max())
        torch.testing.assert_close(residual / n, reference.residual(u_a, u_g), rtol=1e-9, atol=atol)
        assert_close(gradients.project(u_a, u_g).squares(), squares)
        pairs = torch.tensor([[0, 0, kept[1] - 1], [0, kept[0] - 1, kept[0] - 1]])
        inner = u_g.T @ expected @ u_a
        assert_close(projection.entries(pairs), inner[:, pairs[0], pairs[1]])


@pytest.mark.parametrize("kind", every_kind(1))
@pytest.mark.parametrize("n", [5, 4 * FEW, 2 * AT_ONCE])
def test_residuals_are_weighted_by_example(kind: str, n: int) -> None:
    gradients = every_kind(n)[kind]
    weights = torch.arange(n, dtype=torch.float64) % 3
    chosen = matrices(gradients) * weights.sqrt()[:, None, None]
    reference = Reference(chosen.unsqueeze(1), [], [])
    u_a, u_g = orthonormal(A, 2), orthonormal(chosen.shape[1], 2)
    residual = torch.zeros_like(reference.diagonal)
    gradients.project(u_a, u_g).add_residual(residual, weights)
    assert_close(residual / n, reference.residual(u_a, u_g))


@pytest.mark.parametrize("columns", [256, 257])
def test_a_large_gradient_lies_in_aligned_rows(columns: int) -> None:
    a, g = random(1, 2, 3, columns), random(1, 2, 3, 256, seed=1)
    formed = SharedGradients(g, Unfolded(a)).matrices
    assert_close(formed, torch.einsum("nsg,nsa->nga", g[0], a[0]))
    assert formed.stride(1) % ALIGNMENT == 0


class Counted:
    """Inputs that know ∇ without patches, and count how often those are asked for."""

    def __init__(self, patches: Tensor, positions: Tensor, asked: list[int]) -> None:
        self._patches, self._positions, self._asked = patches, positions, asked
        self.width = patches.shape[-1]

    def patches(self) -> Tensor:
        self._asked.append(self._patches.shape[1])
        return self._patches

    def matrices(self) -> Tensor:
        return (self._positions.mT @ self._patches)[0]

    def rows(self, chosen: Tensor) -> "Counted":
        return Counted(self._patches[:, chosen], self._positions[:, chosen], self._asked)


def test_patches_are_unfolded_only_where_a_product_needs_them() -> None:
    n, asked = 5, list[int]()
    plain = shared(n, 40)
    lazy = SharedGradients(plain.positions, Counted(plain.patches, plain.positions, asked))
    total, expected = torch.zeros(G, A).double(), torch.zeros(G, A).double()
    chosen = torch.tensor([1, 3])
    lazy.add_squares(total)
    plain.add_squares(expected)
    assert_close(total, expected)
    assert_close(
        lazy.project(orthonormal(A, 2), orthonormal(G, 2)).squares(),
        plain.project(orthonormal(A, 2), orthonormal(G, 2)).squares(),
    )
    assert_close(lazy.rows(chosen).input_moment(), plain.rows(chosen).input_moment())
    assert asked == []
    assert_close(lazy.patches_of(chosen), plain.patches_of(chosen))
    assert asked == [2]
    assert_close(lazy.patches, plain.patches)
    assert_close(lazy.patches_of(chosen), plain.patches_of(chosen))
    assert_close(lazy.rows(chosen).patches, plain.rows(chosen).patches)
    assert asked == [2, n]


@settings(deadline=None)
@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 3))
def test_gradients_are_formed_group_by_group(groups: int, n: int, s: int) -> None:
    formed = shared(n, s, groups=groups)
    assert_close(formed.matrices, matrices(formed))


def test_a_small_residual_of_rank_one_gradients_is_not_lost_in_rounding() -> None:
    n = 5
    a, g = random(n, A), random(n, G, seed=1)
    a[:, 0] = 1e-7 * a[:, 0]  # all that the basis leaves out
    basis = torch.eye(A, dtype=torch.float64)[:, 1:], torch.eye(G).double()
    residual = torch.zeros(G, A, dtype=torch.float64)
    OuterGradients(a, g).project(*basis).add_residual(residual, torch.ones(n, dtype=torch.float64))
    assert_close(residual[:, 0], g.square().T @ a[:, 0].square())
    assert not residual[:, 1:].any()


@pytest.mark.parametrize("chosen", [[0], [1, 3], [3, 0], []])
def test_some_examples_of_a_table_have_their_rows_and_no_others(chosen: list[int]) -> None:
    examples, indices = torch.tensor([0, 0, 1, 3, 3, 3]), torch.tensor([2, 5, 2, 0, 5, 1])
    values = random(6, A)
    whole = torch.zeros(4, 6, A, dtype=torch.float64).index_put((examples, indices), values)  # (N, G, A)
    total = torch.zeros(6, A, dtype=torch.float64)
    RowGradients(examples, indices, values).rows(torch.tensor(chosen, dtype=torch.int64)).add_squares(total)
    assert_close(total, whole[chosen].square().sum(0))
