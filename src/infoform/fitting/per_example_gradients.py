"""Per-example gradients ∇ (N, G, A) of one layer, and the sums of their products that the curvature is made of.

Where the weight is used once an example (S = 1), ∇ = g aᵀ is never formed: Σ ∇ᵀ∇ = Σ |g|² a aᵀ, Σ ∇² = (g²)ᵀ a².
Elsewhere ∇ = Σ_s g_s a_sᵀ, and what is cheaper is done: ∇ is formed for as many examples as the processor's cache
holds, or a product with it is taken through its two factors, Σ_s g_s (a_sᵀ x). Patches a_s are unfolded only where a
product needs them: a convolution's ∇ can be had without.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from infoform.common.matmul import aligned, along, selected, summed, summed_products, times

LARGE = 2**16  # weights from which ∇ is written to rows that begin at even addresses
AT_ONCE = 32  # examples whose residual of rank-one gradients is found at once, each with six vectors of its own
FEW = 8  # gradients that are added one by one, without a copy of all their squares


class Gradients(ABC):
    """The gradients of some examples; every method returns a sum over them."""

    patches: Tensor | cached_property[Tensor]  # (H, N, S, A): the layer's inputs by group, example and position
    positions: Tensor | cached_property[Tensor]  # (H, N, S, G / H): the gradients of its outputs

    @abstractmethod
    def input_moment(self) -> Tensor:  # (A, A)
        """Return Σ ∇ᵀ∇."""

    @abstractmethod
    def gradient_moment(self) -> Tensor:  # (G, G)
        """Return Σ ∇∇ᵀ."""

    @abstractmethod
    def input_sketch(self, vectors: Tensor) -> Tensor:  # (A, c) -> (A, c)
        """Return Σ ∇ᵀ∇ Ω."""

    @abstractmethod
    def gradient_sketch(self, vectors: Tensor) -> Tensor:  # (G, c) -> (G, c)
        """Return Σ ∇∇ᵀ Ω."""

    @abstractmethod
    def add_squares(self, total: Tensor) -> None:  # (G, A)
        """Add Σ ∇², element by element, in place."""

    @abstractmethod
    def measure(
        self,
        input_vectors: Tensor,
        gradient_vectors: Tensor,
        *,
        residual: Tensor | None = None,
        weights: Tensor | None = None,
        pairs: Tensor | None = None,
        core: Tensor | None = None,
    ) -> Tensor:  # (A, a), (G, g), (G, A), (N,), (2, M), (M, M) -> (g, a)
        """Return Σ (U_Gᵀ ∇ U_A)²; with weights w by example, add Σ w (∇ − U_G U_Gᵀ ∇ U_A U_Aᵀ)² to `residual`.

        With pairs, add Σ z zᵀ to `core`, with z the entries of U_Gᵀ ∇ U_A there.
        """

    @abstractmethod
    def block(self) -> Tensor:  # (G * A, G * A)
        """Return Σ vec(∇) vec(∇)ᵀ, row-major."""

    @abstractmethod
    def rows(self, chosen: Tensor) -> "Gradients":  # (n,)
        """Return the gradients of some of the examples."""

    @abstractmethod
    def patches_of(self, chosen: Tensor) -> Tensor:  # (n,) -> (H, n, S, A)
        """Return the patches of some of the examples, which are not needed of the others; a copy."""


@dataclass(frozen=True)
class OuterGradients(Gradients):
    """∇ = g aᵀ, kept as its two vectors."""

    inputs: Tensor  # (N, A)
    outputs: Tensor  # (N, G)

    @cached_property
    def patches(self) -> Tensor:  # type: ignore[override]
        return self.inputs[None, :, None]

    @cached_property
    def positions(self) -> Tensor:  # type: ignore[override]
        return self.outputs[None, :, None]

    def input_moment(self) -> Tensor:
        return (self.inputs * self._output_energy).T @ self.inputs

    def gradient_moment(self) -> Tensor:
        return (self.outputs * self._input_energy).T @ self.outputs

    def input_sketch(self, vectors: Tensor) -> Tensor:
        return self.inputs.T @ ((self.inputs @ vectors) * self._output_energy)

    def gradient_sketch(self, vectors: Tensor) -> Tensor:
        return self.outputs.T @ ((self.outputs @ vectors) * self._input_energy)

    def add_squares(self, total: Tensor) -> None:
        squares = torch.square(self.inputs, out=aligned(self.inputs, *self.inputs.shape))
        total.addmm_(self.outputs.square().T, squares)

    def measure(
        self,
        input_vectors: Tensor,
        gradient_vectors: Tensor,
        *,
        residual: Tensor | None = None,
        weights: Tensor | None = None,
        pairs: Tensor | None = None,
        core: Tensor | None = None,
    ) -> Tensor:
        a, g = along(self.inputs, input_vectors), along(self.outputs, gradient_vectors)
        squares = g.square().T @ a.square()
        if pairs is not None and core is not None:
            entries = g.index_select(1, pairs[0]).mul_(a.index_select(1, pairs[1]))
            core.addmm_(entries.T, entries)
        if weights is None or residual is None:
            return squares
        for chosen in weights.nonzero().squeeze(1).split(AT_ONCE):
            self._add_residual(residual, chosen, weights, (a, input_vectors), (g, gradient_vectors))
        return squares

    def _add_residual(
        self,
        residual: Tensor,  # (G, A)
        chosen: Tensor,  # (n,)
        weights: Tensor,  # (N,)
        of_inputs: tuple[Tensor, Tensor],  # â's coordinates (N, a), U_A
        of_outputs: tuple[Tensor, Tensor],  # ĝ's coordinates (N, g), U_G
    ) -> None:
        (a, input_vectors), (g, gradient_vectors) = of_inputs, of_outputs
        length, count = weights[chosen].sqrt().unsqueeze(1), len(chosen)
        # g aᵀ − ĝ âᵀ = (g − ĝ) aᵀ + ĝ (a − â)ᵀ, squared: no difference of large numbers
        by_output = aligned(self.outputs, 3 * count, self.outputs.shape[1])
        g_rest, mixed, g_kept = by_output.split(count)
        torch.mm(g[chosen], gradient_vectors.T, out=g_kept).mul_(length)
        torch.sub(torch.mul(self.outputs[chosen], length, out=g_rest), g_kept, out=g_rest)
        torch.mul(g_rest, 2, out=mixed).mul_(g_kept)
        by_input = aligned(self.inputs, 3 * count, self.inputs.shape[1])
        inputs, mixed, a_rest = by_input.split(count)
        torch.index_select(self.inputs, 0, chosen, out=inputs)
        torch.sub(inputs, torch.mm(a[chosen], input_vectors.T, out=a_rest), out=a_rest)
        torch.mul(inputs, a_rest, out=mixed)
        for part in (g_rest, g_kept, inputs, a_rest):  # all of it in two matrices, without copies
            part.square_()
        residual.addmm_(by_output.T, by_input)  # all three terms in one pass over the sum

    def block(self) -> Tensor:
        flat = torch.einsum("ng,na->nga", self.outputs, self.inputs).flatten(1)
        return flat.T @ flat

    def rows(self, chosen: Tensor) -> "OuterGradients":
        return OuterGradients(self.inputs[chosen], self.outputs[chosen])

    def patches_of(self, chosen: Tensor) -> Tensor:
        return self.inputs[chosen][None, :, None]

    @cached_property
    def _input_energy(self) -> Tensor:  # |a|² (N, 1)
        return _energy(self.inputs)

    @cached_property
    def _output_energy(self) -> Tensor:  # |g|² (N, 1)
        return _energy(self.outputs)


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

    def measure(
        self,
        input_vectors: Tensor,
        gradient_vectors: Tensor,
        *,
        residual: Tensor | None = None,
        weights: Tensor | None = None,
        pairs: Tensor | None = None,
        core: Tensor | None = None,
    ) -> Tensor:
        inner = self._project(input_vectors, gradient_vectors)
        squares = inner.square().sum(0)
        if pairs is not None and core is not None:
            entries = inner[:, pairs[0], pairs[1]]
            core.addmm_(entries.T, entries)
        if weights is None or residual is None:
            return squares
        chosen = weights.nonzero().squeeze(1).tolist()
        if len(chosen) > FEW:
            kept = gradient_vectors @ inner[chosen] @ input_vectors.T
            rest = self.matrices[chosen].sub_(kept).mul_(weights[chosen].sqrt()[:, None, None])
            residual += rest.square_().sum(0)
            return squares
        for index in chosen:  # one at a time: of a large layer the copies are what costs
            rest = torch.addmm(self.matrices[index], gradient_vectors @ inner[index], input_vectors.T, alpha=-1)
            residual.addcmul_(rest, rest, value=float(weights[index]))
        return squares

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

    def _project(self, input_vectors: Tensor, gradient_vectors: Tensor) -> Tensor:  # (N, g, a)
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


def _picked(x: Tensor, chosen: Tensor) -> Tensor:  # (H, N, S, p), (n,) -> (H, n, S, p)
    return selected(x[0], chosen).unsqueeze(0) if len(x) == 1 else torch.stack([selected(one, chosen) for one in x])


def _energy(rows: Tensor) -> Tensor:  # (N, p) -> (N, 1)
    length: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return length.square_()


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
