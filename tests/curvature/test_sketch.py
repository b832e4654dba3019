"""Leading eigenvectors from a sketch: those of the whole matrix where it has no more directions than the sketch."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import infoform
from dense import assert_close
from flat import flat_laplace
from infoform.curvature.curvature import Curvature
from infoform.curvature.eigenbasis import symmetric_eigh
from infoform.curvature.sketch import nystrom, random_columns
from infoform.curvature.subsampling import WHOLE_INPUTS, subsample_weights

SIZE = 40


def moment(values: Tensor) -> Tensor:  # (n,) -> (n, n)
    generator = torch.Generator().manual_seed(3)
    basis: Tensor = torch.linalg.qr(torch.randn(SIZE, SIZE, dtype=torch.float64, generator=generator)).Q
    return basis[:, : len(values)] * values @ basis[:, : len(values)].T


def sketched(matrix: Tensor, *, columns: int, width: int) -> Tensor:
    test = random_columns(len(matrix), columns=width, name="layer", seed=0).to(matrix)
    return nystrom(matrix @ test, test, columns=columns, name="layer")[1]


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_a_matrix_of_low_rank_gives_its_own_eigenvectors(scale: float) -> None:
    values = scale * torch.tensor([5.0, 3.0, 2.0, 0.5, 0.01], dtype=torch.float64)
    matrix = moment(values)
    found = sketched(matrix, columns=8, width=12)
    assert found.shape == (SIZE, 5)  # no more than there are
    assert_close(found.T @ found, torch.eye(5, dtype=torch.float64))
    torch.testing.assert_close(found.T @ matrix @ found / scale, values.diag() / scale, rtol=1e-7, atol=1e-9)


def test_leading_directions_are_kept_where_eigenvalues_fall_off() -> None:
    matrix = moment(2.0 ** -torch.arange(SIZE, dtype=torch.float64))
    found = sketched(matrix, columns=6, width=20)
    whole = symmetric_eigh(matrix, name="layer")[1][:, :6]
    overlap = torch.linalg.svdvals(whole.T @ found)
    assert float(overlap.min()) > 1 - 1e-3


def test_a_matrix_of_zeros_gives_any_orthonormal_columns() -> None:
    found = sketched(torch.zeros(SIZE, SIZE, dtype=torch.float64), columns=4, width=8)
    assert_close(found.T @ found, torch.eye(4, dtype=torch.float64))


def test_random_columns_depend_on_layer_and_seed_alone() -> None:
    torch.manual_seed(1)
    one = random_columns(SIZE, columns=4, name="a", seed=0)
    torch.manual_seed(2)
    assert torch.equal(random_columns(SIZE, columns=4, name="a", seed=0), one)
    assert not torch.equal(random_columns(SIZE, columns=4, name="b", seed=0), one)
    assert not torch.equal(random_columns(SIZE, columns=4, name="a", seed=1), one)


def test_an_overflowed_sketch_is_refused() -> None:
    test = random_columns(SIZE, columns=4, name="layer", seed=0)
    with pytest.raises(ValueError, match="'layer' overflow"):
        nystrom(test * torch.inf, test, columns=2, name="layer")


MODELS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "linear": (lambda: nn.Sequential(nn.Linear(150, 140), nn.Tanh(), nn.Linear(140, 3)), (150,)),
    "convolution": (lambda: nn.Sequential(nn.Conv1d(30, 140, 5), nn.Tanh(), nn.Flatten(), nn.Linear(420, 3)), (30, 7)),
    "many positions": (
        lambda: nn.Sequential(nn.Conv1d(30, 4, 5), nn.Tanh(), nn.Flatten(), nn.Linear(64, 3)),
        (30, 20),
    ),
}


def fit(case: str, batch_size: int, **options: Any) -> infoform.Laplace:
    torch.manual_seed(0)
    build, shape = MODELS[case]
    model = build().double()
    x = torch.randn(12, *shape, dtype=torch.float64)
    return flat_laplace(model, "classification", rank=9, **options).fit(list(x.split(batch_size)), progress=False)


@pytest.mark.parametrize("case", MODELS)
def test_a_fit_with_few_examples_loses_nothing_by_its_sketch(case: str) -> None:
    """12 examples span at most 12 directions a position: a sketch with more finds them all, and all eigenvalues."""
    small, whole = (fit(case, 12, basis_size=size, prior="isotropic") for size in (70, None))
    shape = small.curvature["0"].shape
    truncated = any(n > 128 for n in shape)
    assert truncated  # or nothing is tested
    for name, one in small.curvature.items():
        other = whole.curvature[name]
        assert other.diagonal is not None
        assert_close(one.diagonal, other.diagonal)
        top, expected = (leading(c) for c in (one, other))
        torch.testing.assert_close(top, expected, rtol=1e-6, atol=1e-12)
        posterior = small.posterior().layers[name]
        assert_close(posterior.diagonal(), 12 * other.diagonal + 1.0)


@pytest.mark.parametrize("case", MODELS)
def test_the_batch_size_does_not_change_a_sketch(case: str) -> None:
    one, other = fit(case, 12), fit(case, 5)
    for name in one.curvature:
        torch.testing.assert_close(leading(one.curvature[name]), leading(other.curvature[name]), rtol=1e-9, atol=1e-14)
        torch.testing.assert_close(
            one.posterior().layers[name].diagonal(), other.posterior().layers[name].diagonal(), rtol=1e-9, atol=0
        )


def leading(curvature: Curvature) -> Tensor:
    return curvature.bases["gradient"].eigenvalues.flatten().sort(descending=True).values[:9]


@pytest.mark.parametrize("prior_rank", [0, 5, 64])
@pytest.mark.parametrize("case", ["linear", "convolution"])
def test_the_prior_of_a_large_layer_is_that_of_its_whole_input_factor(case: str, prior_rank: int) -> None:
    """12 examples again: more directions than they span are not there to be lost; fewer are found approximately."""
    options: dict[str, Any] = {"prior": "activation", "prior_rank": prior_rank}
    small, whole = fit(case, 12, **options), fit(case, 12, statistics="all", block_limit=1, **options)
    assert small.curvature["0"].inputs is not None
    assert small.curvature["0"].input_factor is None
    found, expected = (one.posterior().layers["0"].prior for one in (small, whole))
    size = small.curvature["0"].shape[1]
    like = torch.zeros((), dtype=torch.float64)
    dense, exact = found.dense(size, like=like), expected.dense(size, like=like)
    assert_close(dense.diag(), exact.diag())
    if prior_rank != 5:
        torch.testing.assert_close(dense, exact, rtol=1e-6, atol=1e-7 * float(exact.max()))


def test_more_data_adds_to_a_large_layers_prior() -> None:
    torch.manual_seed(0)
    model = nn.Linear(150, 3).double()
    x = torch.randn(40, 150, dtype=torch.float64)
    laplace = flat_laplace(model, "classification", structure="diag", prior="activation", prior_rank=4)
    laplace.fit([x[:25]], progress=False)
    before = laplace.curvature[""].inputs
    laplace.fit([x[25:]], update=True, progress=False)
    after = laplace.curvature[""].inputs
    assert before is not None
    assert after is not None
    assert torch.equal(after.vectors, before.vectors)
    weights = subsample_weights(range(40), whole=WHOLE_INPUTS)
    rows = torch.cat([x, torch.ones(40, 1, dtype=torch.float64)], 1)
    assert_close(after.diagonal, weights @ rows.square() / weights.sum())
    first = weights[:25] @ (rows[:25] @ before.vectors).square() / weights[:25].sum()
    # the first part's values are Nyström's, not larger than what is measured along the vectors
    assert bool((before.values <= first * (1 + 1e-9)).all())
    second = weights[25:] @ (rows[25:] @ before.vectors).square()
    assert_close(after.values, (before.values * weights[:25].sum() + second) / weights.sum())
