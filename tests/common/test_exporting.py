import pytest
import torch
from torch.testing import assert_close

from infoform.common.exporting import (
    entropy_terms,
    log_det,
    places_among,
    softplus,
    split_unless_exporting,
)


@pytest.fixture(autouse=True)
def tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.compiler, "is_exporting", lambda: True)


def test_places_are_those_of_a_search_also_among_equal_points() -> None:
    points = torch.tensor([[0.0, 1.0, 1.0, 2.0], [-1.0, 0.0, 3.0, 4.0]], dtype=torch.float64)
    x = torch.tensor([[-1.0, 0.0, 1.0, 1.5, 9.0], [4.0, 3.0, -2.0, 0.5, 5.0]], dtype=torch.float64)
    assert places_among(points, x).tolist() == torch.searchsorted(points, x).tolist()


def test_entropy_terms_are_zero_at_zero() -> None:
    probs = torch.tensor([0.0, 1e-300, 0.3, 1.0], dtype=torch.float64)
    assert_close(entropy_terms(probs), torch.special.entr(probs))


def test_softplus_neither_overflows_nor_vanishes() -> None:
    x = torch.tensor([-700.0, -3.0, 0.0, 3.0, 800.0], dtype=torch.float64)
    assert_close(softplus(x), torch.logaddexp(x, torch.zeros_like(x)), rtol=1e-12, atol=0)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_eliminations_give_the_determinant(size: int) -> None:
    torch.manual_seed(0)
    root = torch.randn(4, size, size + 1, dtype=torch.float64)
    matrices = root @ root.mT
    assert_close(log_det(matrices), torch.linalg.slogdet(matrices).logabsdet, rtol=1e-9, atol=1e-9)


def test_a_traced_batch_stays_in_one_part() -> None:
    assert [part.shape[0] for part in split_unless_exporting(torch.zeros(5, 2), 2)] == [5]
