"""The scores of calibration examples, and the sets and intervals that they promise: a frozen value.

    set(x)        {y : score(x, y) ≤ threshold}
    interval(x)   mean(x) ± threshold · std(x),   score = |y − mean(x)| / std(x)

The threshold is one for all examples, or one for each class or each group of novelty (Mondrian conformal prediction):
then the promise holds within every class, or within every group.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from infoform.common.checks import check_choice
from infoform.conformal.score import SET_SCORES
from infoform.conformal.threshold import threshold

NOVELTY_EDGES = (0.5, 0.8, 0.95)  # between groups of novelty; the last holds the strangest 5 % of known inputs
SCALES = ("std", "constant")  # of intervals


@dataclass(frozen=True, eq=False)
class Conformal:
    """What makes prediction sets and intervals with a finite-sample guarantee.

    Args:
        scores: of n calibration examples: for classes (n,) by the names of `SET_SCORES`, for numbers (n, C) by "std"
            (deviations in standard deviations) and "constant" (deviations).
        classes: the right class of every calibration example, (n,); None for numbers.
        novelty: of every calibration example, (n,), where it is known.
        num_outputs: C.
        source: which examples these are, in a few words.
        made_by: how their predictions were made, by the names of the options.
        examples: the example of every score, (n,), where an example has several, as at its positions. The promise is
            then for a position, drawn at random, of a fresh example.

    Example:
        ```python
        import torch
        from infoform import Conformal
        probs = torch.softmax(torch.randn(200, 3), 1)
        classes = torch.multinomial(probs, 1).squeeze(1)
        conformal = Conformal.of_classes(probs[:100], classes[:100])
        sets = conformal.set(probs[100:], 0.9)  # (100, 3): whether each class is in
        assert sets.gather(1, classes[100:, None]).float().mean() > 0.7
        ```
    """

    scores: Mapping[str, Tensor]
    classes: Tensor | None  # (n,)
    novelty: Tensor | None  # (n,)
    num_outputs: int
    source: str = "data that was given for it"
    made_by: Mapping[str, Any] | None = None
    examples: Tensor | None = None  # (n,)

    @classmethod
    def of_classes(cls, probs: Tensor, classes: Tensor, *, novelty: Tensor | None = None) -> "Conformal":
        """Return the calibration of a classifier.

        Args:
            probs: probabilities of n calibration examples, (n, C).
            classes: their right classes, (n,).
            novelty: their novelty, (n,), for groups of it.

        Returns:
            What makes prediction sets.

        Raises:
            ValueError: If there are no examples, or a probability is not finite.
        """
        _check_examples(probs)
        right = classes.to(probs.device).long().unsqueeze(1)
        scores = {name: score(probs).gather(1, right).squeeze(1).cpu() for name, score in SET_SCORES.items()}
        return cls(scores, right.squeeze(1).cpu(), _on_cpu(novelty), probs.shape[1])

    @classmethod
    def of_numbers(cls, mean: Tensor, std: Tensor, targets: Tensor, *, novelty: Tensor | None = None) -> "Conformal":
        """Return the calibration of a regression.

        Args:
            mean: predicted numbers of n calibration examples, (n, C).
            std: their standard deviations, (n, C).
            targets: their targets, (n, C).
            novelty: their novelty, (n,), for groups of it.

        Returns:
            What makes intervals.

        Raises:
            ValueError: If there are no examples, a mean is not finite, or a standard deviation is not positive.
        """
        _check_examples(mean)
        if not bool((std > 0).all() and std.isfinite().all()):
            raise ValueError(
                "intervals are scaled by the standard deviation of every prediction, which must be positive and "
                f"finite, got {float(std.min()):g} to {float(std.max()):g}; set a noise above 0."
            )
        away = (targets.reshape(mean.shape).to(mean) - mean).abs().double()
        scores = {"std": (away / std.double()).cpu(), "constant": away.cpu()}
        return cls(scores, None, _on_cpu(novelty), mean.shape[1])

    @property
    def count(self) -> int:
        """Return the number of calibration examples."""
        return len(next(iter(self.scores.values()))) if self.examples is None else len(self.examples.unique())

    @property
    def nbytes(self) -> int:
        """Return the bytes of all scores."""
        return sum(one.nbytes for one in self.pack()[0].values())

    def threshold(self, level: float, *, score: str = "adaptive") -> float:
        """Return the score that a class must not exceed to be in a set, the same for all classes and inputs.

        Args:
            level: share of sets that are to hold the right class, between 0 and 1.
            score: one of `SET_SCORES`.

        Returns:
            The threshold: a set holds the classes with `SET_SCORES[score](probs) <= threshold`.

        Raises:
            ValueError: If there are too few calibration examples for the level, or the score is unknown.
        """
        return float(threshold(self._set_scores(score), level, examples=self.examples))

    def set(
        self,
        probs: Tensor,
        level: float,
        *,
        score: str = "adaptive",
        by: str | None = None,
        novelty: Tensor | None = None,
        allow_empty: bool = False,
    ) -> Tensor:  # (N, C) -> (N, C)
        """Return which classes are in the prediction set of each input.

        Args:
            probs: probabilities, (N, C).
            level: share of sets that are to hold the right class, between 0 and 1.
            score: one of `SET_SCORES`.
            by: None for one promise over all inputs, "class" for one within every class, "novelty" for one within
                every group of novelty.
            novelty: of the inputs, (N,), for groups of it.
            allow_empty: whether a set may be empty; otherwise the most probable class is always in.

        Returns:
            Whether each class is in, (N, C).

        Raises:
            ValueError: If there are too few calibration examples for the level, or an argument is not as it must be.
        """
        check_choice("by", by, (None, "class", "novelty"))
        known = self._set_scores(score)
        if by == "class":
            assert self.classes is not None
            names = [f" of class {i}" for i in self._range]
            limits = _by_group(known, self.classes, self.num_outputs, level, names, self.examples)
        elif by == "novelty":
            limits = self._by_novelty(known, level, novelty).unsqueeze(1)
        else:
            limits = threshold(known, level, examples=self.examples)
        sets = SET_SCORES[score](probs) <= limits.to(probs.device)
        if not allow_empty:
            sets.scatter_(1, probs.argmax(1, keepdim=True), True)
        return sets

    def interval(
        self,
        mean: Tensor,
        std: Tensor,
        level: float,
        *,
        scale: str = "std",
        by: str | None = None,
        novelty: Tensor | None = None,
        joint: bool = False,
    ) -> tuple[Tensor, Tensor]:  # (N, C), (N, C) -> (N, C), (N, C)
        """Return the interval of each number of each input.

        Args:
            mean: predicted numbers, (N, C).
            std: their standard deviations, (N, C).
            level: share of intervals that are to hold the target, between 0 and 1.
            scale: "std" for widths in proportion to the standard deviation, "constant" for the same width everywhere.
            by: None for one promise over all inputs, "novelty" for one within every group of novelty.
            novelty: of the inputs, (N,), for groups of it.
            joint: whether all C numbers of an input are to be in their intervals at once, with that share; otherwise
                the promise is for each of the C numbers by itself.

        Returns:
            Lower and upper ends, (N, C) each.

        Raises:
            ValueError: If there are too few calibration examples for the level, or an argument is not as it must be.
        """
        check_choice("scale", scale, SCALES)
        check_choice("by (of intervals)", by, (None, "novelty"))
        if self.classes is not None:
            raise ValueError("intervals are of regression predictions, and the calibration is of classes; use set.")
        known = self.scores[scale]
        if joint:
            known = known.amax(1, keepdim=True).expand_as(known)
        limits = (
            threshold(known, level, examples=self.examples) if by is None else self._by_novelty(known, level, novelty)
        )
        half = limits.to(mean.device) * (std.double() if scale == "std" else 1.0)
        half = half.expand_as(mean)
        return (mean.double() - half).to(mean.dtype), (mean.double() + half).to(mean.dtype)

    def scaled(self, scale: Tensor) -> "Conformal":  # (C,)
        """Return the calibration of numbers in other units.

        Args:
            scale: what one standardised unit of each number is in the new units, (C,).

        Returns:
            The same promise: deviations in standard deviations stay, plain ones grow.
        """
        if self.classes is not None:
            return self
        return replace(self, scores=dict(self.scores) | {"constant": self.scores["constant"] * scale.double().cpu()})

    def without_novelty(self) -> "Conformal":
        """Return the same without groups of novelty.

        Returns:
            A calibration that refuses `by="novelty"`.
        """
        return replace(self, novelty=None)

    def pack(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return all of it for a file.

        Returns:
            Tensors by name, and what JSON can hold.
        """
        tensors = {f"scores/{name}": one for name, one in self.scores.items()}
        others = {"classes": self.classes, "novelty": self.novelty, "examples": self.examples}
        tensors |= {name: one for name, one in others.items() if one is not None}
        made_by = None if self.made_by is None else dict(self.made_by)
        return tensors, {"num_outputs": self.num_outputs, "source": self.source, "made_by": made_by}

    @classmethod
    def unpack(cls, tensors: Mapping[str, Tensor], plain: Mapping[str, Any]) -> "Conformal":
        """Undo `pack`.

        Args:
            tensors: by name, as `pack` returned them.
            plain: what JSON held.

        Returns:
            The calibration.

        Raises:
            ValueError: If something is missing, or of another length.
        """
        scores = {name.removeprefix("scores/"): one for name, one in tensors.items() if name.startswith("scores/")}
        others = [tensors[name] for name in ("classes", "novelty", "examples") if name in tensors]
        named = {*SET_SCORES} if "classes" in tensors else {*SCALES}
        whole = {*scores} == named and {*plain} == {"num_outputs", "source", "made_by"}
        if not whole or len({len(one) for one in (*scores.values(), *others) if one.dim()}) != 1:
            raise ValueError("the conformal calibration of a file is damaged; save the posterior again.")
        return cls(scores, tensors.get("classes"), tensors.get("novelty"), **plain, examples=tensors.get("examples"))

    def _set_scores(self, score: str) -> Tensor:  # (n,)
        check_choice("score", score, tuple(SET_SCORES))
        if self.classes is None:
            raise ValueError("prediction sets are of classes, and the calibration is of a regression; use interval.")
        return self.scores[score]

    def _by_novelty(self, known: Tensor, level: float, novelty: Tensor | None) -> Tensor:  # (n, ...) -> (N, ...)
        """Return the threshold of the group that each input is in."""
        if novelty is None or self.novelty is None:
            raise ValueError(
                "by='novelty' needs the novelty of the inputs and of the calibration examples; fit with novelty, and "
                "calibrate after the last calibrate_novelty."
            )
        bounds = [0.0, *NOVELTY_EDGES, 1.0]
        names = [f" of novelty {low:g} to {high:g}" for low, high in pairwise(bounds)]
        limits = _by_group(known, _groups(self.novelty), len(names), level, names, self.examples)
        return limits.to(novelty.device)[_groups(novelty)]

    @property
    def _range(self) -> range:
        return range(self.num_outputs)


def _by_group(
    scores: Tensor, groups: Tensor, count: int, level: float, names: list[str], examples: Tensor | None
) -> Tensor:
    """Return the threshold of every group of calibration examples: (n, ...), (n,) -> (count, ...)."""
    found = []
    for group in range(count):
        own = groups == group
        of = None if examples is None else examples[own]
        found.append(threshold(scores[own], level, what=names[group], examples=of))
    return torch.stack(found)


def _groups(novelty: Tensor) -> Tensor:  # (n,) -> (n,)
    edges = torch.tensor(NOVELTY_EDGES, dtype=torch.float64, device=novelty.device)
    return torch.bucketize(novelty.double(), edges)


def _check_examples(values: Tensor) -> None:
    if len(values) == 0:
        raise ValueError("a conformal calibration needs examples, got none; check the data.")
    bad = int((~values.isfinite()).any(1).sum())
    if bad:
        raise ValueError(
            f"a conformal calibration needs finite predictions, got others for {bad} of {len(values)} examples; look "
            "for missing values (NaN) in the data."
        )


def _on_cpu(values: Tensor | None) -> Tensor | None:
    return None if values is None else values.detach().cpu()
