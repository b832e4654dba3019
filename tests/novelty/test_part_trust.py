"""Distances are trusted where strange known inputs get unsure answers; else only their tails count."""

import math

import pytest
import torch
from scipy.stats import spearmanr  # type: ignore[import-untyped]
from torch.testing import assert_close

from infoform.novelty.calibration import Calibration, Scores
from infoform.novelty.trust import FEW, FULL, NONE, RARE, fisher_sum, rank_correlation, trust_of

NAMES = ("typicality", "head", "answer")


def test_the_rank_correlation_is_spearmans() -> None:
    generator = torch.Generator().manual_seed(0)
    one = torch.randn(200, generator=generator, dtype=torch.float64)
    for other in (one.exp(), -one, one + torch.randn(200, generator=generator), one.round()):
        assert rank_correlation(one, other) == pytest.approx(spearmanr(one, other).statistic, abs=1e-12)
    assert rank_correlation(one, torch.ones(200)) == 0


@pytest.mark.parametrize(("noise", "expected"), [(0.0, 1.0), (2.0, None), (100.0, 0.0)])
def test_trust_grows_with_the_correlation_of_head_and_answer(noise: float, expected: float | None) -> None:
    generator = torch.Generator().manual_seed(0)
    head, other = torch.randn(2, 4000, generator=generator)
    scores = {"typicality": other, "head": head, "answer": head + noise * other}
    found = trust_of(scores)
    if expected is None:
        assert found == pytest.approx((rank_correlation(head, scores["answer"]) - NONE) / (FULL - NONE))
        assert 0 < found < 1
    else:
        assert found == expected


def test_few_examples_and_parts_that_are_missing_leave_all_trusted() -> None:
    noise = torch.randn(2, 4000, generator=torch.Generator().manual_seed(0))
    assert trust_of({"head": noise[0], "answer": noise[1]}) == 0
    assert trust_of({"head": noise[0, : FEW - 1], "answer": noise[1, : FEW - 1]}) == 1
    assert trust_of({"head": noise[0], "typicality": noise[1]}) == 1


def test_the_sum_is_fishers_with_trust_and_of_tails_without() -> None:
    p = torch.tensor([[0.5, 0.2, 0.3], [1e-6, 0.04, 0.9]], dtype=torch.float64)
    logs = -p.log()
    full = 2 * (2 * logs[:, 0] + logs[:, 1] + logs[:, 2])
    tails = 2 * ((logs[:, :2] - RARE).clamp_min(0).sum(1) + logs[:, 2])
    assert tails[0] == 2 * logs[0, 2]
    for trust in (0.0, 0.25, 1.0):
        found = fisher_sum(p.log(), NAMES, trust).squeeze(1)
        expected = 2 * logs[:, 2] + trust * (full - 2 * logs[:, 2]) + (1 - trust) * (tails - 2 * logs[:, 2])
        assert_close(found, expected, rtol=1e-12, atol=0)
    assert math.exp(-RARE) == pytest.approx(0.05)


def test_trust_is_kept_in_a_file_and_in_a_calibration_of_more_examples() -> None:
    generator = torch.Generator().manual_seed(1)
    scores = Scores({name: torch.randn(500, generator=generator) for name in NAMES}, torch.randn(500, 2))
    one = Calibration.of(scores, ("a", "b"), source="here")
    assert one.trust == 0
    tensors, plain = one.pack()
    assert Calibration.unpack(tensors, plain, ("a", "b")).trust == 0
    del plain["trust"]
    assert Calibration.unpack(tensors, plain, ("a", "b")).trust == 1
    assert one.joined(one).trust == 0
    fresh = Scores({name: torch.randn(4000, generator=generator) for name in NAMES}, torch.randn(4000, 2))
    novelty = one.novelty(fresh, dtype=torch.float64).novelty
    assert abs(float((novelty > 0.95).double().mean()) - 0.05) < 0.035  # 500 known examples: 3.5 standard errors
