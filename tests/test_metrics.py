"""Measures against closed forms, naive sums and numerical integration."""

import dataclasses
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.distributions import Normal

from infoform import metrics
from infoform.likelihoods import Classification, MultiLabel, Regression


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def classes(examples: int = 200, count: int = 4) -> tuple[Tensor, Tensor]:
    probs = (2 * normal(examples, count)).softmax(1)
    targets = torch.multinomial(probs, 1, generator=torch.Generator().manual_seed(1)).squeeze(1)
    return probs, targets


def labels(examples: int = 200, count: int = 3) -> tuple[Tensor, Tensor]:
    probs = normal(examples, count).sigmoid()
    return probs, (normal(examples, count, seed=1) < 0.3).long()


def gaussians(examples: int = 50, outputs: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    mean, variance = normal(examples, outputs), normal(examples, outputs, seed=1).exp()
    return mean, variance, mean + variance.sqrt() * normal(examples, outputs, seed=2)


def test_nll_and_brier_are_their_naive_sums() -> None:
    probs, targets = classes()
    pairs = list(zip(probs, targets.tolist(), strict=True))
    expected_nll = sum(-math.log(float(row[label])) for row, label in pairs) / len(pairs)
    expected_brier = sum(sum((float(p) - (c == label)) ** 2 for c, p in enumerate(row)) for row, label in pairs) / len(
        pairs
    )
    assert metrics.nll(probs, targets) == pytest.approx(expected_nll, rel=1e-12)
    assert metrics.brier(probs, targets) == pytest.approx(expected_brier, rel=1e-12)


def test_measures_of_labels_are_averaged_over_labels() -> None:
    probs, targets = labels()
    for measure in (metrics.nll, metrics.brier, metrics.ece, metrics.accuracy):
        each = [measure(probs[:, [c]], targets[:, c]) for c in range(probs.shape[1])]
        assert measure(probs, targets) == pytest.approx(sum(each) / len(each), rel=1e-6)  # torchmetrics' float32
    right = torch.where(targets == 1, probs, 1 - probs)
    assert metrics.nll(probs, targets) == pytest.approx(float(-right.log().mean()), rel=1e-12)
    assert metrics.brier(probs, targets) == pytest.approx(float((1 - right).square().mean()), rel=1e-12)


def test_ece_is_the_weighted_gap_of_the_reliability_diagram() -> None:
    probs, targets = classes()
    probs[0] = torch.tensor([0, 1.0, 0, 0])  # certainty belongs to the last bin
    for bins in (1, 5, 15):
        diagram = metrics.reliability(probs, targets, bins)
        assert int(diagram.count.sum()) == len(probs)
        assert metrics.ece(probs, targets, bins=bins) == pytest.approx(diagram.error, abs=1e-6)  # float32 there


def test_reliability_is_counted_bin_by_bin() -> None:
    probs = torch.tensor([[0.9, 0.1], [0.95, 0.05], [0.3, 0.7], [0.45, 0.55]], dtype=torch.float64)
    diagram = metrics.reliability(probs, torch.tensor([0, 1, 1, 0]), 10)
    assert diagram.count.tolist() == [0, 0, 0, 0, 0, 1, 0, 1, 0, 2]
    assert diagram.confidence[9] == pytest.approx(0.925)
    assert diagram.accuracy[[5, 7, 9]].tolist() == [0, 1, 0.5]
    assert bool(diagram.accuracy[0].isnan())


def test_adaptive_ece_is_the_gap_in_sorted_chunks() -> None:
    probs, targets = classes(examples=150)
    confidence, labels_ = probs.max(1)
    order = confidence.argsort()
    right = (labels_ == targets).double()
    chunks = [order[i : i + 10] for i in range(0, 150, 10)]
    expected = sum(float((confidence[c].mean() - right[c].mean()).abs()) for c in chunks) / 15
    assert metrics.adaptive_ece(probs, targets, bins=15) == pytest.approx(expected, rel=1e-12)


def test_adaptive_ece_does_not_depend_on_the_order_of_equal_confidences() -> None:
    probs = torch.tensor([[0.8, 0.2]], dtype=torch.float64).expand(100, 2)
    targets = (torch.arange(100) >= 70).long()
    shuffled = targets[torch.randperm(100, generator=torch.Generator().manual_seed(0))]
    assert metrics.adaptive_ece(probs, targets) == pytest.approx(0.1)
    assert metrics.adaptive_ece(probs, shuffled) == pytest.approx(0.1)


def test_a_calibrated_forecaster_has_almost_no_calibration_error() -> None:
    probs, targets = classes(examples=100_000)
    assert metrics.ece(probs, targets) < 0.01
    assert metrics.adaptive_ece(probs, targets) < 0.01


def test_an_entropy_histogram_counts_and_integrates_to_one() -> None:
    histogram = metrics.entropy_histogram(torch.tensor([0.0, 0.1, 0.6, 1.0]), bins=2)
    assert histogram.edges.tolist() == [0, 0.5, 1]
    assert histogram.count.tolist() == [2, 2]
    assert float((histogram.density * histogram.edges.diff()).sum()) == pytest.approx(1)


def test_auroc_is_the_share_of_pairs_in_the_right_order() -> None:
    known, unknown = normal(40), 50 + 30 * normal(30, seed=1).round()
    above = (unknown[:, None] > known).double() + 0.5 * (unknown[:, None] == known).double()
    assert metrics.ood(known, unknown)["auroc"] == pytest.approx(float(above.mean()), rel=1e-12)


def test_ood_of_scores_in_a_known_order() -> None:
    known = torch.arange(100.0)
    assert metrics.ood(known, known + 1000) == {"auroc": 1.0, "aupr": 1.0, "fpr95": 0.0}
    # 95 of the 100 unknown are found above 4.5, and so are 95 of the known
    assert metrics.ood(known, known - 0.5 + 1e-3)["fpr95"] == pytest.approx(0.95, abs=0.011)
    # one unknown between two known: precision 1/2 at the threshold that finds it
    assert metrics.ood(torch.tensor([0.0, 2.0]), torch.tensor([1.0]))["aupr"] == pytest.approx(0.5)


def test_the_gaussian_log_likelihood_sums_over_outputs() -> None:
    mean, variance, targets = gaussians()
    density = -0.5 * (2 * math.pi * variance).log() - (targets - mean).square() / (2 * variance)
    assert metrics.gaussian_log_likelihood(mean, variance, targets) == pytest.approx(float(density.sum(1).mean()))
    assert metrics.rmse(mean, targets) == pytest.approx(float((mean - targets).square().mean().sqrt()), rel=1e-12)


def test_intervals_cover_what_a_gaussian_puts_in_them() -> None:
    quantiles = (torch.arange(10_000, dtype=torch.float64) + 0.5) / 10_000
    targets = 3 + 2 * Normal(0.0, 1.0).icdf(quantiles)
    mean, variance = torch.full_like(targets, 3), torch.full_like(targets, 4)
    for level in (0.5, 0.9, 0.95):
        assert metrics.interval_coverage(mean, variance, targets, level=level) == pytest.approx(level, abs=2e-4)


def test_crps_is_the_integral_of_the_squared_gap_of_distributions() -> None:
    mean, variance, targets = gaussians(examples=5, outputs=1)
    scores = []
    for m, v, y in zip(mean.flatten(), variance.flatten(), targets.flatten(), strict=True):
        parts = []
        for ends, step in (((m - 12 * v.sqrt(), y), 0), ((y, m + 12 * v.sqrt()), 1)):
            x = torch.linspace(float(ends[0]), float(ends[1]), 200_001, dtype=torch.float64)
            parts.append(torch.trapezoid((Normal(m, v.sqrt()).cdf(x) - step).square(), x))
        scores.append(sum(parts, start=torch.zeros(())))
    assert metrics.crps_gaussian(mean, variance, targets) == pytest.approx(float(sum(scores)) / 5, rel=1e-8)


def test_evaluate_gives_the_measures_of_each_likelihood() -> None:
    logits = normal(7, 30, 3)
    targets = torch.arange(30) % 3
    prediction = Classification().from_samples(logits, logits[0], noise=None)
    scores = metrics.evaluate(prediction, targets)
    assert set(scores) == {"accuracy", "nll", "brier", "ece", "adaptive_ece", "entropy_nats"}
    assert prediction.probs is not None
    assert scores["nll"] == metrics.nll(prediction.probs, targets)
    assert scores["accuracy"] == pytest.approx(float((prediction.labels == targets).double().mean()))
    assert scores["entropy_nats"] == pytest.approx(float(prediction.entropy.mean()))

    multilabel = MultiLabel().from_samples(logits, logits[0], noise=None)
    assert set(metrics.evaluate(multilabel, (logits[1] > 0).double())) == {
        "accuracy",
        "nll",
        "brier",
        "ece",
        "entropy_nats",
    }
    single = MultiLabel().from_samples(logits[..., :1], logits[0, :, :1], noise=None)
    assert set(metrics.evaluate(single, (logits[1, :, 0] > 0).long())) == {
        "accuracy",
        "nll",
        "brier",
        "ece",
        "entropy_nats",
    }

    regression = Regression(noise=0.5).from_samples(logits, logits[0], noise=0.5)
    scores = metrics.evaluate(regression, normal(30, 3, seed=3))
    assert set(scores) == {"rmse", "log_likelihood", "nll", "coverage_50", "coverage_90", "coverage_95", "crps"}
    assert scores["coverage_50"] <= scores["coverage_90"] <= scores["coverage_95"]


def test_half_precision_is_taken() -> None:
    probs, targets = classes()
    assert metrics.brier(probs.bfloat16(), targets) == pytest.approx(metrics.brier(probs, targets), rel=0.02)
    assert math.isfinite(metrics.nll(torch.tensor([[0.0, 1.0]]), torch.tensor([0])))


PROBS, TARGETS = torch.full((4, 2), 0.5), torch.tensor([0, 1, 0, 1])
MEAN = torch.zeros(4, 1)
BAD: dict[str, tuple[Callable[[], object], str]] = {
    "a target too few": (lambda: metrics.nll(PROBS, TARGETS[:3]), r"got \(3,\); check that both"),
    "no examples": (lambda: metrics.ece(PROBS[:0], TARGETS[:0]), "at least one of each"),
    "NaN": (lambda: metrics.brier(PROBS * math.nan, TARGETS), "between 0 and 1, got nan"),
    "logits": (lambda: metrics.nll(PROBS * 9, TARGETS), "got 4.5; apply softmax"),
    "unnormalised": (lambda: metrics.nll(PROBS / 2, TARGETS), "must sum to 1, got 0.5"),
    "a class too many": (lambda: metrics.accuracy(PROBS, TARGETS + 1), "between 0 and 1, got 2"),
    "float classes": (lambda: metrics.nll(PROBS, TARGETS.float()), "must be integers"),
    "soft labels": (lambda: metrics.ece(PROBS, PROBS), "labels must be 0 or 1, got 0.5"),
    "no bins": (lambda: metrics.ece(PROBS, TARGETS, bins=0), "bins must be a whole number"),
    "one class": (lambda: metrics.auroc(torch.rand(4), torch.zeros(4)), "both classes, 0 and 1, got labels 0;"),
    "three classes": (lambda: metrics.auroc(torch.rand(3), torch.arange(3)), "got labels 0, 1, 2;"),
    "labels too few": (lambda: metrics.auroc(torch.rand(3), torch.arange(2)), "3 scores need as many labels"),
    "nothing unknown": (lambda: metrics.ood(torch.rand(4), torch.rand(0)), "unknown scores must be one number"),
    "infinite scores": (lambda: metrics.ood(torch.rand(4) / 0, torch.rand(4)), "known scores must be finite"),
    "raw entropies": (lambda: metrics.entropy_histogram(torch.tensor([2.0])), "between 0 and 1, got 2 to 2"),
    "other means": (lambda: metrics.rmse(MEAN, torch.zeros(3, 1)), "of the means' shape"),
    "missing targets": (lambda: metrics.rmse(MEAN, MEAN * math.nan), "targets must be finite"),
    "no variance": (lambda: metrics.crps_gaussian(MEAN, MEAN, MEAN), "must be positive and finite, got 0"),
    "variances too few": (lambda: metrics.crps_gaussian(MEAN, MEAN[:2] + 1, MEAN), "a variance is needed for each"),
    "a level of 95": (lambda: metrics.interval_coverage(MEAN, MEAN + 1, MEAN, level=95), "between 0 and 1, got 95"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gets_one_sentence(case: str) -> None:
    call, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        call()


def test_evaluate_tells_one_hot_rows_from_labels() -> None:
    logits = normal(7, 30, 3)
    one_hot = torch.eye(3)[torch.arange(30) % 3]
    with pytest.raises(ValueError, match="needs class indices"):
        metrics.evaluate(Classification().from_samples(logits, logits[0], noise=None), one_hot)
    with pytest.raises(ValueError, match="needs targets of shape"):
        metrics.evaluate(MultiLabel().from_samples(logits, logits[0], noise=None), torch.arange(30) % 3)


def test_measures_are_those_of_torchmetrics_and_scikit_learn() -> None:
    from sklearn.metrics import average_precision_score, brier_score_loss, roc_auc_score, roc_curve
    from torchmetrics.functional import classification, mean_squared_error

    probs, targets = classes()
    assert metrics.accuracy(probs, targets) == pytest.approx(
        float(classification.multiclass_accuracy(probs, targets, num_classes=4, average="micro"))
    )
    for bins in (1, 5, 15):
        theirs = classification.multiclass_calibration_error(probs, targets, num_classes=4, n_bins=bins)
        assert metrics.ece(probs, targets, bins=bins) == pytest.approx(float(theirs), abs=1e-6)  # theirs in float32
    theirs = brier_score_loss(targets.numpy(), probs.numpy(), labels=list(range(4)), scale_by_half=False)
    assert metrics.brier(probs, targets) == pytest.approx(theirs, rel=1e-12)
    yes, answers = labels()
    assert metrics.accuracy(yes, answers) == pytest.approx(float(classification.binary_accuracy(yes, answers)))
    columns = list(zip(yes.T.contiguous(), answers.T.contiguous(), strict=True))
    each = [float(classification.binary_calibration_error(p, y, n_bins=15)) for p, y in columns]
    assert metrics.ece(yes, answers) == pytest.approx(sum(each) / 3, abs=1e-6)
    known, unknown = (2 * normal(200)).round(), (2 * normal(150, seed=1) + 1).round()  # with ties
    scores, which = torch.cat([known, unknown]).numpy(), torch.cat([known * 0, unknown * 0 + 1]).numpy()
    false, found, _ = roc_curve(which, scores, drop_intermediate=False)
    ours = metrics.ood(known, unknown)
    assert ours["auroc"] == pytest.approx(roc_auc_score(which, scores), rel=1e-12)
    assert ours["aupr"] == pytest.approx(average_precision_score(which, scores), rel=1e-12)
    assert ours["fpr95"] == pytest.approx(false[found >= 0.95 - 1e-12].min(), rel=1e-12)
    mean, _, truth = gaussians()
    assert metrics.rmse(mean, truth) == pytest.approx(float(mean_squared_error(mean, truth, squared=False)))


def test_entropies_are_in_nats() -> None:
    probs, targets = classes()
    scores = metrics.evaluate(Classification().plain_prediction(probs.log(), noise=None), targets)
    assert scores["entropy_nats"] == pytest.approx(float(-(probs * probs.log()).sum(1).mean()), rel=1e-9)
    assert "entropy" not in scores


def test_results_cannot_be_changed() -> None:
    diagram = metrics.reliability(PROBS, TARGETS)
    with pytest.raises(dataclasses.FrozenInstanceError):
        diagram.count = TARGETS  # type: ignore[misc]
