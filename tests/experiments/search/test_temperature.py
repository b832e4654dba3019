import pytest
import torch
from torch.nn import functional

from infoform.experiments.search.temperature import LARGEST, find_temperature


@pytest.mark.parametrize("factor", [0.2, 1.0, 7.0])
def test_the_temperature_has_the_least_nll(factor: float) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(300, 5, generator=generator, dtype=torch.float64)
    targets = logits.softmax(-1).multinomial(1, generator=generator)[:, 0]
    found = find_temperature(factor * logits, targets)
    inverse = torch.tensor(1 / found, dtype=torch.float64, requires_grad=True)
    functional.cross_entropy(inverse * factor * logits, targets).backward()
    assert inverse.grad is not None
    assert abs(float(inverse.grad)) < 1e-9
    assert found == pytest.approx(factor, rel=0.3)


def test_answers_that_are_all_right_have_the_smallest_temperature_and_all_wrong_the_largest() -> None:
    logits = torch.eye(4)
    assert find_temperature(logits, torch.arange(4)) == pytest.approx(1 / LARGEST)
    assert find_temperature(logits, torch.arange(4).roll(1)) == pytest.approx(LARGEST)
