"""Sums over per-example gradients: rank-one and dense ones agree with each other and with the definition."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dense import Reference, assert_close
from infoform.gradients import DenseGradients, Gradients, OuterGradients, form_gradients

N, G, A = 5, 3, 4


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def orthonormal(rows: int, columns: int) -> Tensor:
    basis: Tensor = torch.linalg.qr(random(rows, rows, seed=rows)).Q
    return basis[:, :columns].contiguous()


def outer() -> OuterGradients:
    return OuterGradients(random(N, A), random(N, G, seed=1))


def matrices(gradients: Gradients) -> Tensor:  # (N, G, A)
    if isinstance(gradients, OuterGradients):
        return torch.stack([torch.outer(g, a) for g, a in zip(gradients.outputs, gradients.inputs, strict=True)])
    assert isinstance(gradients, DenseGradients)
    return gradients.matrices


@pytest.mark.parametrize("gradients", [outer(), DenseGradients(random(N, G, A))], ids=lambda g: type(g).__name__)
@pytest.mark.parametrize("kept", [(A, G), (2, 2), (1, G), (A, 1)])
def test_every_sum_is_its_definition(gradients: Gradients, kept: tuple[int, int]) -> None:
    reference = Reference(matrices(gradients).unsqueeze(1), [], [])
    u_a, u_g = orthonormal(A, kept[0]), orthonormal(G, kept[1])
    assert_close(gradients.input_moment() / N, reference.input_moment)
    assert_close(gradients.gradient_moment() / N, reference.gradient_moment)
    assert_close(gradients.squares() / N, reference.diagonal)
    assert_close(gradients.block() / N, reference.block)
    assert_close(gradients.project(u_a, u_g).squares() / N, reference.eigenvalues(u_a, u_g))
    residual = gradients.residual_squares(u_a, u_g)
    atol = 1e-12 * float(reference.diagonal.max())
    torch.testing.assert_close(residual / N, reference.residual(u_a, u_g), rtol=1e-9, atol=atol)
    assert (residual >= 0).all()


@settings(deadline=None)
@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 3), st.integers(1, 4), st.integers(1, 3))
def test_gradients_are_formed_group_by_group(groups: int, n: int, s: int, a: int, g: int) -> None:
    inputs, outputs = random(groups, n, s, a), random(groups, n, s, g, seed=1)
    formed = form_gradients(inputs, outputs)
    assert isinstance(formed, OuterGradients) == (groups == 1 and s == 1)
    expected = torch.stack([torch.cat([outputs[h, i].T @ inputs[h, i] for h in range(groups)]) for i in range(n)])
    assert_close(matrices(formed), expected)


def test_a_small_residual_of_rank_one_gradients_is_not_lost_in_rounding() -> None:
    a, g = random(N, A), random(N, G, seed=1)
    a[:, 0] = 1e-7 * a[:, 0]  # all that the basis leaves out
    residual = OuterGradients(a, g).residual_squares(torch.eye(A, dtype=torch.float64)[:, 1:], torch.eye(G).double())
    assert_close(residual[:, 0], g.square().T @ a[:, 0].square())
    assert not residual[:, 1:].any()
