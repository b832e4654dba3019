import torch
from hypothesis import given
from hypothesis import strategies as st

from infoform.conformal import Conformal
from infoform.export.guaranteed import within


@given(st.integers(2, 8), st.integers(0, 100), st.sampled_from([0.5, 0.9]))
def test_the_sets_of_a_graph_are_those_of_a_prediction(classes: int, seed: int, level: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    probs = torch.randn(60, classes, generator=generator).mul(2).round().softmax(1)  # with ties
    probs[:, 0] += 1e-3 * torch.rand(60, generator=generator)  # of which the largest is unique
    targets = torch.randint(classes, (60,), generator=generator)
    conformal = Conformal.of_classes(probs[:30], targets[:30])
    threshold = torch.tensor(conformal.threshold(level), dtype=torch.float64) + 1e-12
    expected = conformal.set(probs[30:], level)
    found = within(probs[30:], threshold)
    unique = (probs[30:] == probs[30:].amax(1, keepdim=True)).sum(1) == 1
    assert bool((found == expected)[unique].all())
