"""Gradients ∇ = Σ_s g_s a_sᵀ of a weight that an example uses at several positions.

What is cheaper is done: ∇ is formed for as many examples as the processor's cache holds, or a product with it is taken
through its two factors, Σ_s g_s (a_sᵀ x). Patches a_s are unfolded only where a product needs them: a convolution's ∇
can be had without.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from infoform.common.matmul import aligned, along, selected, summed, summed_products, times
from infoform.fitting.per_example_gradients.base import Gradients, Projection

LARGE = 2**16  # weights from which ∇ is written to rows that begin at even addresses
FEW = 8  # gradients that are added one by one, without a copy of all their squares


class Inputs(Protocol):
    """What a shared weight was multiplied with."""

    @property
    def width(self) -> int:
        """Return A."""

    def patches(self) -> Tensor:  # (H, N, S, A)
        """Return the inputs, once for every position that uses them."""

    def matrices(self) -> Tensor | None:  # (N, G, A)
        """Return ∇, where there is a faster way than from patches."""

    def rows(self, chosen: Tensor) -> "Inputs":  # (n,)
        """Return those of some of the examples; copies."""


@dataclass(frozen=True)
class Unfolded:
    """Inputs that are there as patches."""

    given: Tensor  # (H, N, S, A)

    @property
    def width(self) -> int:
        return self.given.shape[-1]

    def patches(self) -> Tensor:
        return self.given

    def matrices(self) -> None:
        return None

    def rows(self, chosen: Tensor) -> "Unfolded":
        return Unfolded(_picked(self.given, chosen))


@dataclass(frozen=True)
class Formed:
    """Inputs of which nothing is known but ∇ itself."""

    formed: Tensor  # (N, G, A)

    @property
    def width(self) -> int:
        return self.formed.shape[2]

    def patches(self) -> Tensor:
        raise TypeError("nothing is known of the inputs of this weight.")

    def matrices(self) -> Tensor | None:
        return self.formed

    def rows(self, chosen: Tensor) -> "Formed":
        return Formed(self.formed[chosen])


@dataclass(frozen=True)
class SharedGradients(Gradients):
    """∇ = Σ_s g_s a_sᵀ: a weight that an example uses at several positions."""

    positions: Tensor  # (H, N, S, G / H)
    inputs: Inputs

    @cached_property
    def patches(self) -> Tensor:  # type: ignore[override]
        return self.inputs.patches()

    @cached_property
    def matrices(self) -> Tensor:  # (N, G, A)
        formed = self._known.matrices()
        if formed is not None:
            return formed
        groups, count, _, outputs = self.positions.shape
        if groups == 1 and outputs * self.inputs.width >= LARGE:
            memory = aligned(self.positions, count, outputs, self.inputs.width)
            return torch.bmm(self.positions[0].mT, self.patches[0], out=memory)
        return (self.positions.mT @ self.patches).transpose(0, 1).flatten(1, 2)

    def input_moment(self) -> Tensor:
        rows = self.matrices.flatten(0, 1)
        return rows.T @ rows

    def gradient_moment(self) -> Tensor:
        return summed(self.matrices, self.matrices.mT)

    def input_sketch(self, vectors: Tensor) -> Tensor:
        if self._through_factors(vectors.shape[1], dense_width=2 * vectors.shape[1]):
            a, g = self.patches[0], self.positions[0]
            return summed_products(a, _spread(g, times(a, vectors)))
        rows = self.matrices.flatten(0, 1)
        return rows.T @ (rows @ vectors)

    def gradient_sketch(self, vectors: Tensor) -> Tensor:
        if self._through_factors(vectors.shape[1], dense_width=2 * vectors.shape[1]):
            a, g = self.patches[0], self.positions[0]
            return summed_products(g, _spread(a, times(g, vectors)))
        return summed(self.matrices, self.matrices.mT @ vectors)

    def add_squares(self, total: Tensor) -> None:
        _add_squares(total, self.matrices)

    def project(self, input_vectors: Tensor, gradient_vectors: Tensor) -> "SharedProjection":
        coordinates = self._coordinates(input_vectors, gradient_vectors)
        return SharedProjection(self, input_vectors, gradient_vectors, coordinates)

    def block(self) -> Tensor:
        flat = self.matrices.flatten(1)
        return flat.T @ flat

    def rows(self, chosen: Tensor) -> "SharedGradients":
        picked = SharedGradients(_picked(self.positions, chosen), self._known.rows(chosen))
        if "matrices" in self.__dict__:  # formed already
            picked.__dict__["matrices"] = self.matrices[chosen]
        return picked

    def patches_of(self, chosen: Tensor) -> Tensor:
        return self._known.rows(chosen).patches()

    @property
    def _known(self) -> Inputs:
        """Return the inputs, as patches where those are there already."""
        return Unfolded(self.patches) if "patches" in self.__dict__ else self.inputs

    def _coordinates(self, input_vectors: Tensor, gradient_vectors: Tensor) -> Tensor:  # (N, g, a)
        a, g = input_vectors.shape[1], gradient_vectors.shape[1]
        num_inputs, num_outputs = len(input_vectors), len(gradient_vectors)
        inputs_first = num_outputs * a * (num_inputs + g)
        outputs_first = g * num_inputs * (num_outputs + a)
        work = min(inputs_first, outputs_first) / (num_inputs * num_outputs)
        if self._through_factors((a * num_inputs + g * num_outputs) / (num_inputs + num_outputs) / 2, dense_width=work):
            return times(self.positions[0], gradient_vectors).mT @ times(self.patches[0], input_vectors)
        if inputs_first <= outputs_first:
            return gradient_vectors.T @ along(self.matrices, input_vectors)
        return (gradient_vectors.T @ self.matrices) @ input_vectors

    def _through_factors(self, width: float, *, dense_width: float) -> bool:
        """Whether a product is cheaper with a and g than with ∇, whose forming counts where it is not there yet."""
        if len(self.positions) > 1:
            return False
        _, _, count, outputs = self.positions.shape
        inputs = self.inputs.width
        forming = 0 if "matrices" in self.__dict__ else count * outputs * inputs
        return 2 * count * (inputs + outputs) * width < forming + outputs * inputs * dense_width


@dataclass(frozen=True)
class SharedProjection(Projection):
    """The coordinates of the ∇ of a shared weight, a matrix an example."""

    gradients: SharedGradients
    input_vectors: Tensor  # U_A (A, a)
    gradient_vectors: Tensor  # U_G (G, g)
    coordinates: Tensor  # U_Gᵀ ∇ U_A (N, g, a)

    def squares(self) -> Tensor:
        return self.coordinates.square().sum(0)

    def entries(self, pairs: Tensor) -> Tensor:
        return self.coordinates[:, pairs[0], pairs[1]]

    def add_residual(self, total: Tensor, weights: Tensor) -> None:
        matrices, rows = self.gradients.matrices, weights.nonzero().squeeze(1).tolist()
        if len(rows) > FEW:
            within = self.gradient_vectors @ self.coordinates[rows] @ self.input_vectors.T
            rest = matrices[rows].sub_(within).mul_(weights[rows].sqrt()[:, None, None])
            total += rest.square_().sum(0)
            return
        for row in rows:  # one at a time: of a large layer the copies are what costs
            left = self.gradient_vectors @ self.coordinates[row]
            rest = torch.addmm(matrices[row], left, self.input_vectors.T, alpha=-1)
            total.addcmul_(rest, rest, value=float(weights[row]))


def _picked(x: Tensor, chosen: Tensor) -> Tensor:  # (H, N, S, p), (n,) -> (H, n, S, p)
    return selected(x[0], chosen).unsqueeze(0) if len(x) == 1 else torch.stack([selected(one, chosen) for one in x])


def _spread(x: Tensor, y: Tensor) -> Tensor:  # (N, S, p), (N, S, c) -> (N, S, c)
    """Return x xᵀ y, by the products of all positions where those are few."""
    _, positions, width = x.shape
    columns = y.shape[2]
    if positions * (width + columns) < 2 * width * columns:
        return (x @ x.mT) @ y
    return x @ (x.mT @ y)


def _add_squares(total: Tensor, matrices: Tensor) -> None:  # (G, A), (N, G, A)
    if len(matrices) > FEW:
        total += matrices.square().sum(0)
        return
    for matrix in matrices:
        total.addcmul_(matrix, matrix)
