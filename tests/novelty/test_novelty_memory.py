"""What novelty holds in a fit is what was planned for it, and counts within max_memory."""

import pytest
import torch
from torch import nn

from infoform import FitOptions, Laplace, plan
from infoform.likelihoods import get_likelihood
from infoform.network.batches import Batch
from infoform.network.probe import probe
from infoform.novelty.fit_sums import NoveltySums
from infoform.novelty.memory import novelty_memory

EXAMPLES, CLASSES = 3000, 4


def make_model() -> nn.Module:
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 6, 3), nn.Tanh(), nn.Flatten(), nn.Linear(384, 20), nn.Tanh(), nn.Linear(20, CLASSES))
    return nn.Sequential(*layers)


def test_the_sums_and_the_examples_left_out_take_what_is_planned() -> None:
    model = make_model()
    sums = NoveltySums(model, get_likelihood("classification"))
    x = torch.randn(EXAMPLES, 3, 10, 10)
    with sums.watching():
        for numbers in torch.arange(EXAMPLES).split(500):
            sums.begin(Batch((x[numbers],), {}, None))
            sums.add(model(x[numbers]), numbers % CLASSES, numbers)
    tensors, _ = sums.state()
    held = sum(one.nbytes for name, one in tensors.items() if not name.startswith("left.."))
    left = {name: one for name, one in tensors.items() if name.startswith("left..")}
    each = sum(one[0].nbytes for one in left.values())
    assert 400 < len(next(iter(left.values()))) <= 1000
    seen = probe(model, x[:8])
    assert seen.pooled == {"0": 6, "3": 384, "5": 20}
    assert novelty_memory(seen.pooled, outputs=seen.outputs) == held + 1000 * each
    assert novelty_memory({}, outputs=3) == 0


def test_a_budget_of_memory_counts_novelty() -> None:
    x = torch.randn(32, 3, 10, 10)
    data = [(x, torch.arange(32) % CLASSES)]
    with_it, without = (
        Laplace(make_model(), "classification", structure="diag", fit_options=FitOptions(novelty=novelty))
        for novelty in (True, False)
    )
    peaks = [plan(laplace, example=x).peak_bytes for laplace in (with_it, without)]
    assert peaks[0] is not None
    assert peaks[1] is not None
    seen = probe(make_model(), x)
    assert peaks[0] - peaks[1] == novelty_memory(seen.pooled, outputs=CLASSES)
    assert not plan(with_it, example=x, max_memory=peaks[0]).groups
    assert not plan(without, example=x, max_memory=peaks[1]).groups
    assert len(plan(with_it, example=x, max_memory=peaks[1]).groups) > 1  # one layer less beside novelty
    with pytest.raises(ValueError, match=r"for novelty\), got 1 B; use FitOptions\(novelty=False\)"):
        with_it.fit(data, max_memory=1, progress=False)
