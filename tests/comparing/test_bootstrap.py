"""The paired bootstrap against resampling by hand, closed forms, and scikit-learn."""

import math

import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch.testing import assert_close

from infoform import metrics
from infoform.comparing import bootstrap
from infoform.comparing.bootstrap import gain, resampled_counts, resampled_scores, separations
from infoform.comparing.measures import CLASSES


def test_counts_are_those_of_data_sets_of_the_same_size() -> None:
    counts = torch.cat(list(resampled_counts(50, resamples=400, seed=0)))
    assert counts.shape == (400, 50)
    assert bool((counts.sum(1) == 50).all())
    assert abs(float(counts.var()) - (1 - 1 / 50)) < 0.05


def test_counts_do_not_depend_on_how_many_are_held_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = torch.cat(list(resampled_counts(50, resamples=40, seed=0)))
    monkeypatch.setattr(bootstrap, "NUMBERS", 350)
    parts = list(resampled_counts(50, resamples=40, seed=0))
    assert len(parts) == 6
    assert torch.equal(torch.cat(parts), whole)


def test_a_mean_has_the_standard_error_of_a_mean() -> None:
    terms = torch.randn(2000, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    again = resampled_scores(CLASSES["nll"], terms, resamples=4000, seed=0)
    assert float(again.std()) == pytest.approx(float(terms.std()) / math.sqrt(2000), rel=0.05)


def test_a_difference_is_paired() -> None:
    terms = torch.randn(500, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    one, two = (resampled_scores(CLASSES["nll"], x, resamples=200, seed=3) for x in (terms + 0.01, terms))
    found = gain(float(terms.mean()) + 0.01, one, float(terms.mean()), two)
    assert (found.mean, found.low, found.high) == pytest.approx((0.01, 0.01, 0.01))
    assert not found.may_be_zero


@pytest.mark.parametrize("sizes", [(40, 70), (70, 40)])
def test_separations_are_those_of_scikit_learn_also_of_resampled_data_with_ties(
    sizes: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(0)
    known = torch.randint(8, (sizes[0],), generator=generator).double()
    unknown = 1 + torch.randint(8, (sizes[1],), generator=generator).double()
    monkeypatch.setattr(bootstrap, "NUMBERS", 400)  # several steps, of another length for either set
    auroc, fpr95, again = separations(known, unknown, resamples=30, seed=5)
    expected = metrics.ood(known, unknown)
    assert (auroc, fpr95) == pytest.approx((expected["auroc"], expected["fpr95"]))
    a = torch.cat(list(resampled_counts(sizes[0], resamples=30, seed=5)))
    b = torch.cat(list(resampled_counts(sizes[1], resamples=30, seed=6)))
    pairs = zip(a, b, strict=True)
    labels = torch.cat([torch.zeros(sizes[0]), torch.ones(sizes[1])])
    by_hand = [roc_auc_score(labels, torch.cat([known, unknown]), sample_weight=torch.cat(w)) for w in pairs]
    assert_close(again, torch.tensor(by_hand, dtype=torch.float64))
