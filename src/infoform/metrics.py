"""How good predictions are, and how well they know it; nothing but torch is needed.

nll, brier          proper scores of probabilities (the Brier score summed over classes, between 0 and 2)
ece, adaptive_ece   gap between confidence and accuracy, in bins of equal width or of equal mass
ood                 how well a score tells unknown inputs from known ones; unknown ones are the positives

For probabilities (N, C), targets (N,) are class indices and targets (N, C) of zeros and ones are labels; measures of
labels are taken for each label and averaged. Probabilities (N, *P, C) of positions, tokens or pixels, count as one
example a position, but for those whose target is −100. All sums are in float64.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributions import Normal
from torch.nn import functional

from infoform.common.checks import check_whole
from infoform.common.ignored import counting
from infoform.prediction import Prediction

BINS = 15
LEVELS = (0.5, 0.9, 0.95)  # of the intervals whose coverage `evaluate` tells


@dataclass(frozen=True, eq=False)
class Reliability:
    """A reliability diagram: confidence and accuracy, bin by bin; NaN where a bin is empty.

    Args:
        confidence: mean confidence of each bin, (bins,).
        accuracy: share of right answers of each bin, (bins,).
        count: number of examples of each bin, (bins,).

    Example:
        ```python
        import torch
        from infoform.metrics import Reliability
        diagram = Reliability(torch.tensor([0.5, 0.9]), torch.tensor([0.5, 0.8]), torch.tensor([1, 1]))
        assert 0.04 < diagram.error < 0.06
        ```
    """

    confidence: Tensor  # (bins,): mean confidence
    accuracy: Tensor  # (bins,): share of right answers
    count: Tensor  # (bins,): examples

    @property
    def error(self) -> float:
        """Return the expected calibration error: the mean gap, weighted by the examples in each bin."""
        gaps = (self.confidence - self.accuracy).abs().nan_to_num(0)
        return float((gaps * self.count).sum() / self.count.sum())


@dataclass(frozen=True, eq=False)
class EntropyHistogram:
    """How many examples have an entropy between two edges.

    Args:
        edges: ends of the bins, (bins + 1,).
        count: number of examples of each bin, (bins,).

    Example:
        ```python
        import torch
        from infoform.metrics import EntropyHistogram
        assert EntropyHistogram(torch.tensor([0.0, 0.5, 1.0]), torch.tensor([3, 1])).density.tolist() == [1.5, 0.5]
        ```
    """

    edges: Tensor  # (bins + 1,)
    count: Tensor  # (bins,)

    @property
    def density(self) -> Tensor:  # (bins,)
        """Return the share of examples by width of the bin, with integral 1."""
        return self.count / (self.count.sum() * self.edges.diff())


def evaluate(prediction: Prediction, targets: Tensor) -> dict[str, float]:
    """Return the measures that suit what the prediction answers: a class, labels or numbers.

    Args:
        prediction: prediction of N examples.
        targets: class indices (N,), labels of zeros and ones (N, C), or numbers (N, C).

    Returns:
        Measures by name: "accuracy", "nll", "brier", "ece", "entropy_nats" (and "adaptive_ece" of classes), or, for
        numbers, "rmse", "log_likelihood", "nll", "coverage_50", "coverage_90", "coverage_95", "crps".

    Raises:
        ValueError: if targets and prediction do not fit each other.

    Example:
        ```python
        import torch
        from infoform import Classification, metrics
        prediction = Classification().plain_prediction(torch.tensor([[2.0, 0.0], [0.0, 1.0]]), noise=None)
        assert metrics.evaluate(prediction, torch.tensor([0, 1]))["accuracy"] == 1
        ```
    """
    prediction, targets = as_rows(prediction, targets)
    return _MEASURES[prediction.answer](prediction, targets)


def as_rows(prediction: Prediction, targets: Tensor) -> tuple[Prediction, Tensor]:
    """Return prediction and targets with an example for every position that has a target.

    Args:
        prediction: prediction of N examples, at positions or not.
        targets: their targets; at positions (N, *P) or (N, *P, C), −100 (or NaN) where a position does not count.

    Returns:
        Both without positions; as they are, where there are none.

    Raises:
        ValueError: if targets and prediction do not fit each other, or no position has a target.

    Example:
        ```python
        import torch
        from infoform import Classification, metrics
        prediction = Classification().plain_prediction(torch.randn(6, 3), noise=None).at_positions([2])
        rows, targets = metrics.as_rows(prediction, torch.tensor([[0, 1], [2, -100], [0, 0]]))
        assert len(rows) == len(targets) == 5
        ```
    """
    if not prediction.positions:
        return prediction, targets
    places = (len(prediction), *prediction.positions)
    if tuple(targets.shape[: len(places)]) != places:
        raise ValueError(
            f"a prediction at {'×'.join(map(str, places[1:]))} positions of {places[0]} examples needs targets of "
            f"shape {places}, or with the numbers of a position last, got {tuple(targets.shape)}."
        )
    there = counting(targets, len(places))
    if not bool(there.any()):
        raise ValueError("a score needs positions with a target, and all of them are marked as not counting.")
    rows, kept = prediction.as_rows(there)
    return rows, targets.flatten(0, len(places) - 1).index_select(0, kept.to(targets.device))


def accuracy(probs: Tensor, targets: Tensor) -> float:
    """Return the share of right answers.

    Args:
        probs: probabilities, (N, C).
        targets: class indices (N,), or labels of zeros and ones (N, C).

    Returns:
        The share, between 0 and 1; of labels, over all labels of all examples.

    Raises:
        ValueError: if shapes or values of probabilities and targets are not as said.

    Example:
        ```python
        import torch
        from infoform import metrics
        probs, targets = torch.tensor([[0.9, 0.1], [0.4, 0.6]]), torch.tensor([0, 0])
        assert metrics.accuracy(probs, targets) == 0.5
        ```
    """
    probs, targets = _checked(probs, targets)
    right = probs.argmax(1) == targets if targets.dim() == 1 else (probs > 0.5) == (targets == 1)
    return float(right.double().mean())


def nll(probs: Tensor, targets: Tensor) -> float:
    """Return the mean of −log p(target), in nats.

    Args:
        probs: probabilities, (N, C).
        targets: class indices (N,), or labels of zeros and ones (N, C).

    Returns:
        The mean over examples (and labels).

    Raises:
        ValueError: if shapes or values of probabilities and targets are not as said.

    Example:
        ```python
        import torch
        from infoform import metrics
        probs, targets = torch.tensor([[0.9, 0.1], [0.4, 0.6]]), torch.tensor([0, 0])
        assert 0.5 < metrics.nll(probs, targets) < 0.52
        ```
    """
    # scikit-learn's log_loss cuts probabilities at 1e-16, above what an overconfident network says
    least = torch.finfo(probs.dtype).tiny if probs.is_floating_point() else 0.0
    probs, targets = _checked(probs, targets)
    if targets.dim() == 1:
        return float(functional.nll_loss(probs.clamp_min(least).log(), targets))
    right = torch.where(targets == 1, probs, 1 - probs)
    return float(-right.clamp_min(least).log().mean())


def brier(probs: Tensor, targets: Tensor) -> float:
    """Return the mean squared distance of the probabilities from the answer, summed over classes.

    Args:
        probs: probabilities, (N, C).
        targets: class indices (N,), or labels of zeros and ones (N, C).

    Returns:
        The score, between 0 and 2 for classes, and between 0 and 1 for labels.

    Raises:
        ValueError: if shapes or values of probabilities and targets are not as said.

    Example:
        ```python
        import torch
        from infoform import metrics
        probs, targets = torch.tensor([[0.9, 0.1], [0.4, 0.6]]), torch.tensor([0, 0])
        assert 0.36 < metrics.brier(probs, targets) < 0.38
        ```
    """
    probs, targets = _checked(probs, targets)
    if targets.dim() == 1:
        return float((probs - functional.one_hot(targets, probs.shape[1])).square().sum(1).mean())
    return float((probs - targets).square().mean())


def ece(probs: Tensor, targets: Tensor, *, bins: int = BINS) -> float:
    """Return the expected calibration error over bins of equal width.

    Args:
        probs: probabilities, (N, C).
        targets: class indices (N,), or labels of zeros and ones (N, C).
        bins: number of bins.

    Returns:
        The mean gap between confidence and accuracy; of labels, its mean over labels.

    Raises:
        ValueError: if shapes or values of probabilities and targets are not as said.

    Example:
        ```python
        import torch
        from infoform import metrics
        probs, targets = torch.tensor([[0.9, 0.1], [0.4, 0.6]]), torch.tensor([0, 0])
        assert 0.34 < metrics.ece(probs, targets) < 0.36
        ```
    """
    probs, targets = _checked(probs, targets)
    check_whole("bins", bins)
    if targets.dim() == 1:
        return reliability(probs, targets, bins).error
    columns = zip(probs.T, targets.T.double(), strict=True)  # of labels: the probability itself, not that of the answer
    return math.fsum(_reliability(p, y, _even_bins(p, bins), bins).error for p, y in columns) / probs.shape[1]


def adaptive_ece(probs: Tensor, targets: Tensor, *, bins: int = BINS) -> float:
    """Return the expected calibration error over bins of equal mass, of the most probable class.

    Args:
        probs: probabilities, (N, C).
        targets: class indices (N,), or labels of zeros and ones (N, C).
        bins: number of bins.

    Returns:
        The mean gap between confidence and accuracy.

    Raises:
        ValueError: if shapes or values of probabilities and targets are not as said.

    Example:
        ```python
        import torch
        from infoform import metrics
        probs, targets = torch.tensor([[0.9, 0.1], [0.4, 0.6]]), torch.tensor([0, 0])
        assert 0.34 < metrics.adaptive_ece(probs, targets) < 0.36
        ```
    """
    confidence, right = _answers(probs, targets)
    check_whole("bins", bins)
    _, place, ties = confidence.unique(return_inverse=True, return_counts=True)
    first = ties.cumsum(0) - ties  # equal confidences share a bin, so that the order of the examples is no matter
    return _reliability(confidence, right, first[place] * bins // len(confidence), bins).error


def reliability(probs: Tensor, targets: Tensor, bins: int = BINS) -> Reliability:
    """Return confidence, accuracy and count of the most probable class in bins of equal width.

    Args:
        probs: probabilities, (N, C).
        targets: class indices (N,), or labels of zeros and ones (N, C).
        bins: number of bins.

    Returns:
        The reliability diagram.

    Raises:
        ValueError: if shapes or values of probabilities and targets are not as said.

    Example:
        ```python
        import torch
        from infoform import metrics
        probs, targets = torch.tensor([[0.9, 0.1], [0.4, 0.6]]), torch.tensor([0, 0])
        assert metrics.reliability(probs, targets, bins=2).count.tolist() == [0, 2]
        ```
    """
    confidence, right = _answers(probs, targets)
    check_whole("bins", bins)
    return _reliability(confidence, right, _even_bins(confidence, bins), bins)


def entropy_histogram(
    entropy: Tensor, *, bins: int = 20, span: tuple[float, float] = (0.0, 1.0)
) -> EntropyHistogram:  # (N,)
    """Count entropies in bins of equal width.

    Args:
        entropy: entropies of N predictions, (N,); normalised ones, unless `span` says otherwise.
        bins: number of bins.
        span: lower end of the first bin, upper end of the last.

    Returns:
        The histogram.

    Raises:
        ValueError: if an entropy is not finite, or lies outside of `span`.

    Example:
        ```python
        import torch
        from infoform import metrics
        assert metrics.entropy_histogram(torch.tensor([0.1, 0.2, 0.9]), bins=2).count.tolist() == [2, 1]
        ```
    """
    values = _scores("entropies", entropy)
    check_whole("bins", bins)
    low, high = span
    slack = 1e-6 * (high - low)  # rounding; anything farther out is a mistake
    if bool((values < low - slack).any()) or bool((values > high + slack).any()):
        raise ValueError(
            f"entropies must lie between {low:g} and {high:g}, got {values.min():g} to {values.max():g}; "
            "give prediction.normalised_entropy, or another span."
        )
    counted = torch.histogram(values.clamp(low, high).cpu(), bins, range=span)
    return EntropyHistogram(counted.bin_edges, counted.hist.long())


def auroc(scores: Tensor, labels: Tensor) -> float:  # (N,), (N,) of zeros and ones
    """Return the probability that a positive example scores above a negative one.

    Args:
        scores: one score for each example, (N,).
        labels: 1 for positive examples, 0 for negative ones, (N,).

    Returns:
        The area under the ROC curve, between 0 and 1.

    Raises:
        ValueError: if a score is not finite, or a class has no example.

    Example:
        ```python
        import torch
        from infoform import metrics
        assert metrics.auroc(torch.tensor([0.1, 0.4, 0.3, 0.8]), torch.tensor([0, 0, 1, 1])) == 0.75
        ```
    """
    false, found = _roc(*_scored(scores, labels))
    return float(torch.trapezoid(found / found[-1], false / false[-1]))


def ood(known_scores: Tensor, unknown_scores: Tensor) -> dict[str, float]:  # (N,), (M,)
    """Tell how well scores, larger for stranger inputs (entropies, say), separate unknown from known data.

    Args:
        known_scores: scores of data like the training data, (N,).
        unknown_scores: scores of other data, (M,).

    Returns:
        "auroc", "aupr" and "fpr95", the share of known data taken for unknown at the threshold that finds 95 % of the
        unknown.

    Raises:
        ValueError: if there are no scores, or one is not finite.

    Example:
        ```python
        import torch
        from infoform import metrics
        assert metrics.ood(torch.tensor([0.1, 0.2]), torch.tensor([0.5, 0.9]))["auroc"] == 1
        ```
    """
    known, unknown = _scores("known scores", known_scores), _scores("unknown scores", unknown_scores)
    scores, labels = _scored(torch.cat([known, unknown]), torch.cat([known * 0, unknown * 0 + 1]))
    false, found = _roc(scores, labels)
    precision = found[1:] / (found + false)[1:]
    return {
        "auroc": auroc(scores, labels),
        "aupr": float((found.diff() / found[-1] * precision).sum()),
        "fpr95": float((false / false[-1])[found / found[-1] >= 0.95 - 1e-12].min()),
    }


def rmse(mean: Tensor, targets: Tensor) -> float:
    """Return the root mean squared error, over examples and outputs.

    Args:
        mean: predicted means, (N, C).
        targets: true values, (N, C).

    Returns:
        The error.

    Raises:
        ValueError: if the shapes differ, or a value is not finite.

    Example:
        ```python
        import torch
        from infoform import metrics
        assert metrics.rmse(torch.zeros(2, 1), torch.tensor([[3.0], [-3.0]])) == 3
        ```
    """
    mean, targets = _same_shape(mean, targets)
    return float((mean - targets).square().mean().sqrt())


def gaussian_log_likelihood(mean: Tensor, variance: Tensor, targets: Tensor) -> float:
    """Return the mean log density of the targets, summed over outputs.

    Args:
        mean: predicted means, (N, C).
        variance: their variances, (N, C).
        targets: true values, (N, C).

    Returns:
        The mean over examples.

    Raises:
        ValueError: if the shapes differ, a value is not finite, or a variance is not positive.

    Example:
        ```python
        import torch
        from infoform import metrics
        mean, variance, targets = torch.zeros(3, 1), torch.ones(3, 1), torch.tensor([[0.0], [1.0], [-3.0]])
        assert metrics.gaussian_log_likelihood(mean, variance, targets) < -2.5
        ```
    """
    density, targets = _gaussian(mean, variance, targets)
    return float(density.log_prob(targets).sum(1).mean())


def interval_coverage(mean: Tensor, variance: Tensor, targets: Tensor, *, level: float = 0.95) -> float:
    """Return the share of targets in the central interval that should hold this share of them.

    Args:
        mean: predicted means, (N, C).
        variance: their variances, (N, C).
        targets: true values, (N, C).
        level: share that the interval should hold, between 0 and 1.

    Returns:
        The share that it holds.

    Raises:
        ValueError: if the shapes differ, a value is not finite, a variance is not positive, or `level` is not between
            0 and 1.

    Example:
        ```python
        import torch
        from infoform import metrics
        mean, variance, targets = torch.zeros(3, 1), torch.ones(3, 1), torch.tensor([[0.0], [1.0], [-3.0]])
        assert 0.6 < metrics.interval_coverage(mean, variance, targets, level=0.95) < 0.7
        ```
    """
    if not 0 < level < 1:
        raise ValueError(f"the level of an interval must be between 0 and 1, got {level}.")
    density, targets = _gaussian(mean, variance, targets)
    half_width = density.stddev * Normal(0.0, 1.0).icdf(torch.tensor((1 + level) / 2, dtype=torch.float64))
    return float(((targets - density.mean).abs() <= half_width).double().mean())


def crps_gaussian(mean: Tensor, variance: Tensor, targets: Tensor) -> float:
    """Return the continuous ranked probability score, σ (z (2 Φ(z) − 1) + 2 φ(z) − 1/√π); Gneiting et al. 2005.

    Args:
        mean: predicted means, (N, C).
        variance: their variances, (N, C).
        targets: true values, (N, C).

    Returns:
        The mean over examples and outputs; 0 is best.

    Raises:
        ValueError: if the shapes differ, a value is not finite, or a variance is not positive.

    Example:
        ```python
        import torch
        from infoform import metrics
        mean, variance, targets = torch.zeros(3, 1), torch.ones(3, 1), torch.tensor([[0.0], [1.0], [-3.0]])
        assert metrics.crps_gaussian(mean, variance, targets) > 1
        ```
    """
    density, targets = _gaussian(mean, variance, targets)
    z = (targets - density.mean) / density.stddev
    phi = (-z.square() / 2).exp() / math.sqrt(2 * math.pi)
    score = density.stddev * (z * (2 * torch.special.ndtr(z) - 1) + 2 * phi - 1 / math.sqrt(math.pi))
    return float(score.mean())


def _measure_numbers(prediction: Prediction, targets: Tensor) -> dict[str, float]:
    assert prediction.mean is not None
    mean, variance = prediction.mean, prediction.variance
    log_likelihood = gaussian_log_likelihood(mean, variance, targets)
    return {
        "rmse": rmse(mean, targets),
        "log_likelihood": log_likelihood,
        "nll": -log_likelihood,  # the same under the name that it has for classifiers
        **{f"coverage_{100 * p:.0f}": interval_coverage(mean, variance, targets, level=p) for p in LEVELS},
        "crps": crps_gaussian(mean, variance, targets),
    }


def _measure_class(prediction: Prediction, targets: Tensor) -> dict[str, float]:
    assert prediction.probs is not None
    if targets.dim() != 1:
        raise ValueError(
            f"a classification prediction needs class indices of shape ({len(prediction)},), "
            f"got targets of shape {tuple(targets.shape)}; use targets.argmax(1) for one-hot rows."
        )
    scores = _measure_probs(prediction.probs, targets)
    scores["adaptive_ece"] = adaptive_ece(prediction.probs, targets)
    return scores | {"entropy_nats": _mean_entropy(prediction)}


def _measure_labels(prediction: Prediction, targets: Tensor) -> dict[str, float]:
    assert prediction.probs is not None
    shape = tuple(prediction.probs.shape)
    if targets.dim() != 2 and shape[1] > 1:
        raise ValueError(
            f"a multilabel prediction needs targets of shape {shape}, got {tuple(targets.shape)}; "
            "give a zero or one for each label."
        )
    return _measure_probs(prediction.probs, targets) | {"entropy_nats": _mean_entropy(prediction)}


def _measure_probs(probs: Tensor, targets: Tensor) -> dict[str, float]:
    return {
        "accuracy": accuracy(probs, targets),
        "nll": nll(probs, targets),
        "brier": brier(probs, targets),
        "ece": ece(probs, targets),
    }


def _mean_entropy(prediction: Prediction) -> float:
    return float(prediction.entropy.double().mean())


_MEASURES: dict[str, Callable[[Prediction, Tensor], dict[str, float]]] = {
    "class": _measure_class,
    "labels": _measure_labels,
    "numbers": _measure_numbers,
}


def _answers(probs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:  # -> (N,), (N,)
    """Return the confidence of the most probable class, and whether it is right; each label is an example."""
    probs, targets = _checked(probs, targets)
    if targets.dim() == 2:
        probs, targets = torch.stack([1 - probs, probs], dim=-1).flatten(0, 1), targets.flatten()
    confidence, labels = probs.max(1)
    return confidence, (labels == targets).double()


def _even_bins(values: Tensor, bins: int) -> Tensor:  # (N,) -> (N,)
    """Return the place of each value among bins of equal width between 0 and 1; 1 belongs to the last."""
    edges = torch.linspace(0, 1, bins + 1, dtype=values.dtype, device=values.device)
    return (torch.bucketize(values.contiguous(), edges, right=True) - 1).clamp(0, bins - 1)


def _reliability(confidence: Tensor, right: Tensor, place: Tensor, bins: int) -> Reliability:  # (N,) each
    count = torch.bincount(place, minlength=bins)
    sums = (torch.bincount(place, weights=values, minlength=bins) for values in (confidence, right))
    mean_confidence, mean_right = (total / count for total in sums)
    return Reliability(mean_confidence, mean_right, count)


def _checked(probs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return probabilities (N, C) in float64 and targets, class indices (N,) or labels (N, C)."""
    if probs.dim() > 2 and targets.shape[: probs.dim() - 1] == probs.shape[:-1]:
        there = counting(targets, probs.dim() - 1).to(probs.device)
        probs, targets = probs[there], targets[there.to(targets.device)]
    if probs.dim() != 2 or 0 in probs.shape:
        raise ValueError(
            f"probabilities must have the shape (examples, classes), with at least one of each, "
            f"got {tuple(probs.shape)}."
        )
    count, classes = probs.shape
    if targets.dim() == 1 and classes == 1:
        targets = targets.unsqueeze(1)
    if targets.shape not in ((count,), (count, classes)):
        raise ValueError(
            f"probabilities of shape {tuple(probs.shape)} need targets of shape ({count},) or {tuple(probs.shape)}, "
            f"got {tuple(targets.shape)}; check that both come from the same data."
        )
    probs, targets = probs.detach().double(), targets.detach().to(probs.device)
    if not bool(((probs >= -1e-6) & (probs <= 1 + 1e-6)).all()):  # false for NaN, too
        bad = probs[~((probs >= -1e-6) & (probs <= 1 + 1e-6))][0]
        raise ValueError(f"probabilities must be between 0 and 1, got {bad:g}; apply softmax to logits first.")
    probs = probs.clamp(0, 1)
    if targets.dim() == 2:
        if not bool(((targets == 0) | (targets == 1)).all()):
            raise ValueError(
                f"labels must be 0 or 1, got {targets[(targets != 0) & (targets != 1)][0]:g}; round soft ones."
            )
        return probs, targets.long()
    total = probs.sum(1, keepdim=True)
    worst = float(total[(total - 1).abs().argmax()])
    if abs(worst - 1) > 0.02:  # half precision is good for about a hundredth
        raise ValueError(
            f"the probabilities of an example must sum to 1, got {worst:g}; apply softmax to logits first."
        )
    if targets.is_floating_point() or targets.dtype == torch.bool:
        raise ValueError(f"class indices must be integers, got {targets.dtype}; use targets.long().")
    low, high = (int(bound) for bound in targets.aminmax())
    if low < 0 or high >= classes:
        raise ValueError(f"class indices must be between 0 and {classes - 1}, got {low if low < 0 else high}.")
    return (probs / total).clamp_max(1), targets.long()


def _scores(name: str, values: Tensor) -> Tensor:  # -> (N,)
    if values.dim() != 1 or len(values) == 0:
        raise ValueError(
            f"{name} must be one number for each of at least one example, got shape {tuple(values.shape)}."
        )
    if not bool(values.isfinite().all()):
        raise ValueError(f"{name} must be finite, got NaN or infinity; look at the predictions they come from.")
    return values.detach().double()


def _scored(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    scores = _scores("scores", scores)
    if labels.shape != scores.shape:
        raise ValueError(f"{len(scores)} scores need as many labels, got labels of shape {tuple(labels.shape)}.")
    seen = labels.unique().tolist()
    if not set(seen) <= {0, 1} or len(seen) < 2:
        shown = ", ".join(f"{value:g}" for value in seen[:5])
        raise ValueError(
            f"AUROC needs examples of both classes, 0 and 1, got labels {shown}; add examples of the missing class."
        )
    return scores, labels.detach().long()


def _roc(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:  # (N,), (N,) -> (T + 1,), (T + 1,)
    """Return how many negative and positive examples reach each threshold, from none of them to all of them."""
    order = scores.argsort(descending=True)
    scores, labels = scores[order], labels[order].double()
    last = torch.cat([scores.diff() != 0, scores.new_ones(1, dtype=torch.bool)])  # of equal scores
    counts = torch.stack([(1 - labels).cumsum(0), labels.cumsum(0)])[:, last]  # whole numbers: exact
    false, found = torch.cat([counts.new_zeros(2, 1), counts], dim=1)
    return false, found


def _same_shape(mean: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:  # -> (N, C), (N, C)
    mean, targets = mean.detach().double(), targets.detach().to(mean.device).double()
    shape = mean.shape
    mean, targets = (x.unsqueeze(1) if x.dim() == 1 else x for x in (mean, targets))
    if mean.dim() != 2 or mean.shape != targets.shape or mean.numel() == 0:
        raise ValueError(
            f"a regression needs targets of the means' shape {tuple(shape)} and at least one, "
            f"got {tuple(targets.shape)}; reshape the targets."
        )
    for name, values in (("means", mean), ("targets", targets)):
        if not bool(values.isfinite().all()):
            raise ValueError(f"{name} must be finite, got NaN or infinity; look where they come from.")
    return mean, targets


def _gaussian(mean: Tensor, variance: Tensor, targets: Tensor) -> tuple[Normal, Tensor]:
    mean, targets = _same_shape(mean, targets)
    variance = variance.detach().double()
    variance = variance.unsqueeze(1) if variance.dim() == 1 else variance
    if variance.shape != mean.shape:
        raise ValueError(
            f"a variance is needed for each of the means {tuple(mean.shape)}, got {tuple(variance.shape)}."
        )
    if not bool(((variance > 0) & variance.isfinite()).all()):
        bad = variance[~((variance > 0) & variance.isfinite())][0]
        raise ValueError(f"variances must be positive and finite, got {bad:g}; give the likelihood a noise above 0.")
    return Normal(mean, variance.sqrt()), targets
