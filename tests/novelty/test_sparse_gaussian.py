"""Distances against dense inverses; merged Gaussians against those of all data."""

import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from infoform.novelty.moments import EXACT, MomentSums
from infoform.novelty.sparse_gaussian import FLOOR, SparseGaussian, merge_gaussians


def data(columns: int, examples: int = 400, classes: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(columns)
    mixing = torch.randn(columns, columns, generator=generator, dtype=torch.float64) / columns**0.5
    labels = torch.arange(examples) % classes
    centres = 3 * torch.randn(classes, columns, generator=generator, dtype=torch.float64)
    x = torch.randn(examples, columns, generator=generator, dtype=torch.float64) @ mixing
    return x + centres[labels] + 1, labels


def fitted(x: Tensor, labels: Tensor | None = None, classes: int = 1, **options: int) -> SparseGaussian:
    sums = MomentSums(classes)
    sums.add(x, torch.ones(len(x), dtype=torch.float64), labels)
    return sums.gaussian(**{"rank": 4, "class_rank": classes - 1, **options})


@pytest.mark.parametrize("classes", [1, 4])
@pytest.mark.parametrize("columns", [1, 6, 30, EXACT + 4])
def test_distances_are_those_of_the_dense_inverse(columns: int, classes: int) -> None:
    x, labels = data(columns, classes=classes)
    found = fitted(x, labels, classes)
    means, covariance = found.dense()
    inverse = torch.linalg.inv(covariance)
    for new in (2 * x[:20] - 1, (2 * x[:20] - 1).float()):  # no digit of either is lost
        away = new.double()[:, None] - means  # (N, C, D)
        expected = torch.einsum("ncd,de,nce->nc", away, inverse, away).amin(1)
        assert_close(found.log_distance(new), (expected / columns).log(), rtol=1e-7, atol=1e-7)


def test_all_pairs_give_the_covariance_but_for_the_rounding_to_bytes() -> None:
    x, _ = data(8)
    _, covariance = fitted(x, rank=8).dense()
    expected = x.T.cov(correction=0)
    scale = expected.diagonal().sqrt()
    assert_close(covariance / scale / scale[:, None], expected / scale / scale[:, None], rtol=0, atol=0.02)
    assert_close(covariance.diagonal(), expected.diagonal(), rtol=1e-2, atol=0)
    few = fitted(x, rank=3)
    assert float(few.remainder().min()) > FLOOR
    assert_close(few.dense()[1].diagonal(), expected.diagonal(), rtol=1e-6, atol=0)


def test_what_never_varied_and_changes_is_as_strange_as_can_be() -> None:
    x, _ = data(5)
    for constant in (0.0, 7.0):
        known = torch.cat([x, torch.full((len(x), 1), constant, dtype=torch.float64)], dim=1)
        found = fitted(known)
        usual = found.log_distance(known)
        changed = known.clone()
        changed[:, -1] += 1
        assert bool(usual.isfinite().all())
        assert float(found.log_distance(changed).min()) > float(usual.max()) + math.log(1e3)


def test_data_that_are_all_the_same_have_finite_distances() -> None:
    for known in (torch.zeros(50, 3), torch.ones(50, 3)):
        found = fitted(known)
        assert bool(found.log_distance(known).isfinite().all())
        assert float(found.log_distance(known + 1).min()) > float(found.log_distance(known).max()) + 5


def test_columns_that_repeat_each_other_have_a_remainder() -> None:
    x, _ = data(3)
    found = fitted(torch.cat([x, x], dim=1), rank=6)
    assert float(found.remainder().min()) >= FLOOR
    assert bool(found.log_distance(torch.cat([x, x], dim=1)).isfinite().all())


def test_numbers_that_are_not_finite_are_infinitely_strange() -> None:
    x, _ = data(4)
    assert fitted(x).log_distance(torch.tensor([[math.nan, 0, 0, 0], [math.inf, 0, 0, 0]])).tolist() == [math.inf] * 2


def test_a_class_without_examples_is_nobodys_nearest() -> None:
    x, labels = data(4, classes=2)
    two, three = fitted(x, labels, 2), fitted(x, labels, 3, class_rank=1)
    assert_close(two.log_distance(x), three.log_distance(x), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("classes", [1, 3])
def test_two_sets_become_one(classes: int) -> None:
    x, labels = data(6, examples=500, classes=classes)
    x[300:] += 0.5
    whole = fitted(x, labels, classes, rank=6)
    one, other = (fitted(x[part], labels[part], classes, rank=6) for part in (slice(0, 300), slice(300, None)))
    merged = merge_gaussians(one, other)
    assert torch.equal(merged.counts, whole.counts)
    assert_close(merged.mean, whole.mean, rtol=1e-5, atol=1e-5)
    assert_close(merged.deviation, whole.deviation, rtol=1e-3, atol=1e-5)
    assert_close(merged.means(), whole.means(), rtol=5e-3, atol=5e-3)
    scale = whole.deviation.double()
    assert_close(
        merged.dense()[1] / scale / scale[:, None], whole.dense()[1] / scale / scale[:, None], rtol=0, atol=0.03
    )
