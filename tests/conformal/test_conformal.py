"""Sets and intervals: as MAPIE makes them, by class, by novelty and jointly, kept, and refused in a sentence."""

import math
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from infoform.conformal import NOVELTY_EDGES, Conformal

with warnings.catch_warnings():  # of its own imports
    warnings.simplefilter("ignore")
    from mapie.classification import SplitConformalClassifier
    from mapie.conformity_scores import APSConformityScore, ResidualNormalisedScore
    from mapie.regression import SplitConformalRegressor

LEVELS = (0.5, 0.8, 0.9, 0.95)


class Column:
    """A fitted estimator of scikit-learn's kind that returns columns of its input."""

    _estimator_type = "classifier"

    def __init__(self, first: int, last: int) -> None:
        self.first, self.last = first, last
        self.classes_, self.n_features_in_ = np.arange(last - first), last
        self.is_fitted_ = True

    def fit(self, *_: Any) -> "Column":
        return self

    def predict(self, x: Any) -> Any:
        found = np.asarray(x)[:, self.first : self.last]
        return found.argmax(1) if found.shape[1] > 1 else found[:, 0]

    def predict_proba(self, x: Any) -> Any:
        return np.asarray(x)[:, self.first : self.last]

    def __sklearn_is_fitted__(self) -> bool:
        return True


def classes(examples: int, *, seed: int = 0, width: int = 5) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    probs = torch.softmax(1.5 * torch.randn(examples, width, generator=generator, dtype=torch.float64), 1)
    return probs, torch.multinomial(probs.sqrt(), 1, generator=generator).squeeze(1)


def numbers(examples: int, *, seed: int = 0, width: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    mean = torch.randn(examples, width, generator=generator, dtype=torch.float64)
    std = 0.2 + torch.rand(examples, width, generator=generator, dtype=torch.float64)
    return mean, std, mean + 2 * std * torch.randn(examples, width, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("level", LEVELS)
def test_least_ambiguous_sets_are_those_of_mapie(level: float) -> None:
    (probs, right), (fresh, _) = classes(157), classes(60, seed=1)
    peer = SplitConformalClassifier(Column(0, 5), confidence_level=level, conformity_score="lac", prefit=True)
    expected = peer.conformalize(probs.numpy(), right.numpy()).predict_set(fresh.numpy())[1][:, :, 0]
    found = Conformal.of_classes(probs, right).set(fresh, level, score="least-ambiguous", allow_empty=True)
    assert torch.equal(found, torch.from_numpy(expected))


def test_adaptive_scores_are_those_of_aps_in_mapie_with_minus_one_for_its_random_number() -> None:
    probs, right = classes(157)
    mass, _ = APSConformityScore.get_true_label_cumsum_proba(right.numpy(), probs.numpy(), np.arange(5))
    expected = torch.from_numpy(mass).squeeze(1) - 2 * probs.gather(1, right[:, None]).squeeze(1)
    assert_close(Conformal.of_classes(probs, right).scores["adaptive"], expected)


@pytest.mark.parametrize("scale", ["std", "constant"])
@pytest.mark.parametrize("level", LEVELS)
def test_intervals_are_those_of_mapie(scale: str, level: float) -> None:
    (mean, std, targets), (fresh_mean, fresh_std, _) = numbers(157), numbers(40, seed=1)
    x, fresh = torch.cat([mean, std], 1).numpy(), torch.cat([fresh_mean, fresh_std], 1).numpy()
    score = ResidualNormalisedScore(Column(1, 2), prefit=True, sym=True) if scale == "std" else "absolute"
    peer = SplitConformalRegressor(Column(0, 1), confidence_level=level, conformity_score=score, prefit=True)
    expected = peer.conformalize(x, targets[:, 0].numpy()).predict_interval(fresh)[1][:, :, 0]
    low, high = Conformal.of_numbers(mean, std, targets).interval(fresh_mean, fresh_std, level, scale=scale)
    assert_close(torch.cat([low, high], 1), torch.from_numpy(expected))


def test_sets_by_class_have_the_threshold_of_each_class_alone() -> None:
    (probs, right), (fresh, _) = classes(400), classes(60, seed=1)
    found = Conformal.of_classes(probs, right).set(fresh, 0.8, by="class", allow_empty=True)
    for label in range(5):
        alone = Conformal.of_classes(probs[right == label], right[right == label])
        assert torch.equal(found[:, label], alone.set(fresh, 0.8, allow_empty=True)[:, label])


@pytest.mark.parametrize("answer", ["classes", "numbers"])
def test_by_novelty_every_group_is_calibrated_by_itself(answer: str) -> None:
    novelty, strange = torch.rand(400, generator=torch.Generator().manual_seed(2)), torch.linspace(0, 1, 50)
    group, own = (torch.bucketize(one, torch.tensor(NOVELTY_EDGES)) for one in (novelty, strange))
    for place in range(len(NOVELTY_EDGES) + 1):
        inside = group == place
        if answer == "classes":
            (probs, right), (fresh, _) = classes(400), classes(50, seed=1)
            found = Conformal.of_classes(probs, right, novelty=novelty).set(fresh, 0.7, by="novelty", novelty=strange)
            alone = Conformal.of_classes(probs[inside], right[inside]).set(fresh, 0.7)
        else:
            (mean, std, y), (fresh, wide, _) = numbers(400, width=2), numbers(50, seed=1, width=2)
            conformal = Conformal.of_numbers(mean, std, y, novelty=novelty)
            found = conformal.interval(fresh, wide, 0.7, by="novelty", novelty=strange)[1]
            alone = Conformal.of_numbers(mean[inside], std[inside], y[inside]).interval(fresh, wide, 0.7)[1]
        assert torch.equal(found[own == place], alone[own == place])


def test_joint_intervals_hold_all_numbers_at_once_and_single_ones_each_by_itself() -> None:
    held: dict[bool, list[Tensor]] = {True: [], False: []}
    mean, std, y = numbers(900, width=3)
    for seed in range(100):
        order = torch.randperm(900, generator=torch.Generator().manual_seed(seed))
        a, b = order[:400], order[400:]
        conformal = Conformal.of_numbers(mean[a], std[a], y[a])
        for joint in held:
            low, high = conformal.interval(mean[b], std[b], 0.9, joint=joint)
            held[joint].append(((low <= y[b]) & (y[b] <= high)).double())
    error = 3.5 * math.sqrt(0.9 * 0.1 * (1 / 400 + 1 / 500) / 100)
    together = torch.stack(held[True]).amin(2).mean()
    each = torch.stack(held[False]).mean((0, 1))
    promised = math.ceil(401 * 0.9) / 401
    assert abs(float(together) - promised) < error
    assert bool(((each - promised).abs() < error).all())


def test_a_set_has_a_class_unless_it_may_be_empty() -> None:
    probs, right = classes(300)
    conformal = Conformal.of_classes(probs, probs.argmax(1))  # a network that is always right
    assert bool(conformal.set(probs, 0.5).any(1).all())
    empty = ~conformal.set(probs, 0.5, allow_empty=True).any(1)
    assert 0.4 < float(empty.double().mean()) < 0.6
    assert float(probs[empty].amax(1).max()) <= float(probs[~empty].amax(1).min())  # the least sure ones
    most = probs.argmax(1, keepdim=True)
    assert bool(Conformal.of_classes(probs, right).set(probs, 0.95).gather(1, most).all())


@pytest.mark.parametrize("answer", ["classes", "numbers"])
def test_a_calibration_is_kept_bit_for_bit(answer: str) -> None:
    novelty = torch.rand(50)
    if answer == "classes":
        conformal = Conformal.of_classes(*classes(50), novelty=novelty)
    else:
        conformal = Conformal.of_numbers(*numbers(50), novelty=novelty)
    again = Conformal.unpack(*conformal.pack())
    for (name, one), (other, two) in zip(conformal.pack()[0].items(), again.pack()[0].items(), strict=True):
        assert name == other
        assert torch.equal(one, two)
    assert again.pack()[1] == conformal.pack()[1]
    assert again.count == 50


@pytest.mark.parametrize("missing", ["scores/adaptive", "num_outputs"])
def test_a_damaged_calibration_is_refused(missing: str) -> None:
    tensors, plain = Conformal.of_classes(*classes(50)).pack()
    kept, facts = ({key: one for key, one in part.items() if key != missing} for part in (tensors, plain))
    with pytest.raises(ValueError, match="calibration of a file is damaged"):
        Conformal.unpack(kept, facts)
    with pytest.raises(ValueError, match="calibration of a file is damaged"):
        Conformal.unpack({**tensors, "classes": tensors["classes"][:3]}, plain)


def test_too_few_examples_are_told_by_class_and_by_group() -> None:
    probs, right = classes(200)
    conformal = Conformal.of_classes(probs, right.clamp_max(3), novelty=torch.zeros(200))
    with pytest.raises(ValueError, match="needs 99 or more calibration examples, got 50"):
        Conformal.of_classes(probs[:50], right[:50]).set(probs, 0.99)
    with pytest.raises(ValueError, match="needs 9 or more calibration examples of class 4, got 0"):
        conformal.set(probs, 0.9, by="class")
    with pytest.raises(ValueError, match=r"needs 9 or more calibration examples of novelty 0\.5 to 0\.8, got 0"):
        conformal.set(probs, 0.9, by="novelty", novelty=torch.rand(200))


def test_what_makes_no_sense_is_refused() -> None:
    probs, right = classes(50)
    mean, std, y = numbers(50)
    sets, intervals = Conformal.of_classes(probs, right), Conformal.of_numbers(mean, std, y)
    with pytest.raises(ValueError, match="sets are of classes"):
        intervals.set(probs, 0.9)
    with pytest.raises(ValueError, match="intervals are of regression"):
        sets.interval(mean, std, 0.9)
    with pytest.raises(ValueError, match="score must be one of 'adaptive'"):
        sets.set(probs, 0.9, score="raps")
    with pytest.raises(ValueError, match="by must be one of None, 'class', 'novelty'"):
        sets.set(probs, 0.9, by="label")
    with pytest.raises(ValueError, match=r"by \(of intervals\) must be one of None, 'novelty'"):
        intervals.interval(mean, std, 0.9, by="class")
    with pytest.raises(ValueError, match="scale must be one of 'std', 'constant'"):
        intervals.interval(mean, std, 0.9, scale="wide")
    with pytest.raises(ValueError, match="by='novelty' needs the novelty of the inputs and of the calibration"):
        sets.set(probs, 0.9, by="novelty", novelty=torch.rand(50))
    with pytest.raises(ValueError, match="must be positive and finite, got 0 to 0"):
        Conformal.of_numbers(mean, 0 * std, y)
    with pytest.raises(ValueError, match="got others for 1 of 50 examples"):
        Conformal.of_classes(probs.index_fill(0, torch.tensor([3]), math.nan), right)
    with pytest.raises(ValueError, match="needs examples, got none"):
        Conformal.of_classes(probs[:0], right[:0])
