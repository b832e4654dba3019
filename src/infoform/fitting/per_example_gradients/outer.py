"""Rank-one gradients ∇ = g aᵀ: of a weight that every example uses once."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from infoform.common.matmul import aligned, along
from infoform.fitting.per_example_gradients.base import Gradients, Projection

AT_ONCE = 32  # examples whose residual is found at once, each with six vectors of its own


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

    def project(self, input_vectors: Tensor, gradient_vectors: Tensor) -> "OuterProjection":
        a, g = along(self.inputs, input_vectors), along(self.outputs, gradient_vectors)
        return OuterProjection(self, input_vectors, gradient_vectors, a, g)

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


@dataclass(frozen=True)
class OuterProjection(Projection):
    """The coordinates of g aᵀ: those of g times those of a."""

    gradients: OuterGradients
    input_vectors: Tensor  # U_A (A, a)
    gradient_vectors: Tensor  # U_G (G, g)
    of_inputs: Tensor  # U_Aᵀ a (N, a)
    of_outputs: Tensor  # U_Gᵀ g (N, g)

    def squares(self) -> Tensor:
        return self.of_outputs.square().T @ self.of_inputs.square()

    def entries(self, pairs: Tensor) -> Tensor:
        return self.of_outputs.index_select(1, pairs[0]).mul_(self.of_inputs.index_select(1, pairs[1]))

    def add_residual(self, total: Tensor, weights: Tensor) -> None:
        for rows in weights.nonzero().squeeze(1).split(AT_ONCE):
            self._add_residual_of(rows, total, weights)

    def _add_residual_of(self, rows: Tensor, total: Tensor, weights: Tensor) -> None:  # (n,), (G, A), (N,)
        all_inputs, outputs = self.gradients.inputs, self.gradients.outputs
        length, count = weights[rows].sqrt().unsqueeze(1), len(rows)
        # g aᵀ − ĝ âᵀ = (g − ĝ) aᵀ + ĝ (a − â)ᵀ, squared: no difference of large numbers
        by_output = aligned(outputs, 3 * count, outputs.shape[1])
        g_rest, mixed, g_kept = by_output.split(count)
        torch.mm(self.of_outputs[rows], self.gradient_vectors.T, out=g_kept).mul_(length)
        torch.sub(torch.mul(outputs[rows], length, out=g_rest), g_kept, out=g_rest)
        torch.mul(g_rest, 2, out=mixed).mul_(g_kept)
        by_input = aligned(all_inputs, 3 * count, all_inputs.shape[1])
        inputs, mixed, a_rest = by_input.split(count)
        torch.index_select(all_inputs, 0, rows, out=inputs)
        torch.sub(inputs, torch.mm(self.of_inputs[rows], self.input_vectors.T, out=a_rest), out=a_rest)
        torch.mul(inputs, a_rest, out=mixed)
        for part in (g_rest, g_kept, inputs, a_rest):  # all of it in two matrices, without copies
            part.square_()
        total.addmm_(by_output.T, by_input)  # all three terms in one pass over the sum


def _energy(rows: Tensor) -> Tensor:  # (N, p) -> (N, 1)
    length: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return length.square_()
