"""The outputs of a network before they become a prediction: the temperature and the noise are still free.

linear            f ~ N(plain, covariance), the covariance being there or known from the last layer's inputs
mc, linear-mc     f_1, ..., f_M of sampled networks

Outputs at several positions of an example are rows here, one a position: N stands for rows.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from infoform.likelihoods import DenseCovariance
from infoform.posteriors import LayerPosterior


@dataclass(frozen=True, eq=False)
class RawOutputs:
    """What the network puts out for N examples, as one of these."""

    plain: Tensor  # (N, C): of the trained network
    covariance: Tensor | None = None  # (N, C, C)
    samples: Tensor | None = None  # (M, N, C)
    inputs: Tensor | None = None  # (N, A): of the last layer, where it alone has a posterior
    layer: LayerPosterior | None = None  # that posterior, where it is not the predictor's own
    kind: str = ""  # how they were had
    reason: str = ""  # and why so
    positions: tuple[int, ...] = ()  # *P of the rows of an example, which follow each other; none where there are none
    mask: Tensor | None = None  # (N,) rows that are no padding, where it is known
    examples: Tensor | None = None  # (N,) the example of every row, where only some of its positions are there
    form: DenseCovariance | None = field(default=None, repr=False)  # of a multiple of other outputs' covariance

    def __len__(self) -> int:
        return len(self.plain)

    @property
    def num_examples(self) -> int:
        """Return the number of examples, all of whose positions are there."""
        return len(self) // math.prod(self.positions)

    @property
    def arranged(self) -> Tensor:  # (N, *P, C)
        """Return the trained network's outputs with the positions of an example together."""
        return self.plain.unflatten(0, (-1, *self.positions)) if self.positions else self.plain

    @property
    def spread(self) -> Tensor:  # (1, N, C * C) or (M, N, C)
        """Return how the outputs differ from the trained network's: their covariance, or deviations of networks."""
        if self.samples is not None:
            return self.samples - self.plain
        assert self.covariance is not None
        return self.covariance.flatten(1).unsqueeze(0)

    def with_spread(self, spread: Tensor) -> "RawOutputs":
        """Return outputs of the same trained network that differ from it in this way."""
        if self.samples is not None:
            return replace(self, samples=self.plain + spread)
        assert self.covariance is not None
        return replace(self, covariance=spread[0].view_as(self.covariance))

    @cached_property
    def covariances(self) -> DenseCovariance:
        """Return the covariances; what draws need of them is found once, also for all multiples."""
        assert self.covariance is not None
        if self.form is not None and self.form.matrices is self.covariance:  # not of other examples, or another spread
            return self.form
        return DenseCovariance(self.covariance)

    @staticmethod
    def combined(weights: Tensor, parts: "Sequence[RawOutputs]") -> "RawOutputs":  # (K,)
        """Return outputs whose spread is the weighted sum of these parts'; the trained network is the same in all."""
        if len(parts) == 1 and parts[0].covariance is not None and weights[0] > 0:
            form = parts[0].covariances.times(float(weights[0]))
            return replace(parts[0], covariance=form.matrices, form=form)
        spread = sum(weight * part.spread for weight, part in zip(weights.tolist(), parts, strict=True))
        assert isinstance(spread, torch.Tensor)
        return parts[0].with_spread(spread)
