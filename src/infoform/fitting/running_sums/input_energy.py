"""What the activation prior knows of a large layer's inputs, whose second moment is too large to be held."""

import torch
from torch import Tensor

from infoform.common.matmul import summed_products, times
from infoform.curvature.dimensions import Dimensions
from infoform.curvature.input_spectrum import InputSpectrum
from infoform.curvature.sketch import nystrom, random_columns, sketch_width
from infoform.curvature.subsampling import STRIDE, WHOLE_INPUTS, subsample_weights
from infoform.fitting.per_example_gradients import Gradients
from infoform.fitting.running_sums.base import Operations, Sums, added


class InputEnergy(Sums):
    """Σ_s a², and Σ_s a aᵀ along some directions.

    The directions are those of a random Ω, from which leading eigenvectors are found, or, in an update, the
    eigenvectors that an earlier fit has found. Inputs vary little from example to example beside gradients, so that a
    part of the examples tells enough.
    """

    summed = ("diagonal", "along")
    of_squares = ("diagonal",)
    forms_gradients = False

    def __init__(self, size: int, *, rank: int, name: str, seed: int, known: Tensor | None = None) -> None:
        self._size, self._rank, self._name, self._seed = size, rank, name, seed
        self._known = known  # (A, p)
        self.directions: Tensor | None = known  # Ω (A, c), drawn with the first example, or those that are known
        self.diagonal: Tensor | None = None  # (A,)
        self.along: Tensor | None = None  # Σ_s a aᵀ Ω (A, c), or Σ_s (a w)² (p,)

    def add(self, gradients: Gradients, *, numbers: Tensor, first: bool) -> None:
        weights = subsample_weights(numbers, whole=WHOLE_INPUTS).to(gradients.positions)
        if not first or (self.diagonal is not None and not bool(weights.any())):
            return
        self.directions = self._directions(weights)
        chosen = weights.nonzero().squeeze(1)
        counts = weights[chosen].div(len(gradients.positions))
        for patches in gradients.patches_of(chosen):  # (n, S, A)
            energies = torch.linalg.vector_norm(patches, dim=1).square_()
            self.diagonal = added(self.diagonal, counts @ energies)
            inner = times(patches, self.directions)
            weighted = inner * counts[:, None, None]
            along = summed_products(patches, weighted) if self._known is None else inner.mul_(weighted).sum((0, 1))
            self.along = added(self.along, along)

    def totals(self) -> list[Tensor | None]:
        return [None if self.diagonal is None else self.diagonal.unsqueeze(0)]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        directions = (self._size, self._width)
        along = directions if self._known is None else (self._width,)
        return {"directions": directions, "diagonal": (self._size,), "along": along}

    def operations(self, size: Dimensions) -> Operations:
        each = 2 * size.groups * size.uses * self._size * (1 + 2 * self._width)
        return Operations(per_example=each // STRIDE, unformed=0)

    def spectrum(self, numbers: range) -> InputSpectrum | None:
        """Return the averages over all examples, which have these numbers."""
        if self.diagonal is None or self.along is None:
            return None
        count = max(1.0, float(subsample_weights(numbers, whole=WHOLE_INPUTS).sum()))
        diagonal, along = self.diagonal / count, self.along / count
        if self._known is not None:
            return InputSpectrum(diagonal, self._known, along)
        if self._rank == 0:
            return InputSpectrum(diagonal, along, along.new_zeros(0))
        values, vectors = nystrom(along, self._directions(along), columns=self._rank, name=self._name)
        return InputSpectrum(diagonal, vectors, values)

    @property
    def _width(self) -> int:
        if self._known is not None:
            return self._known.shape[1]
        return sketch_width(self._size, self._rank) if self._rank else 0

    def _directions(self, like: Tensor) -> Tensor:
        if self.directions is None:
            self.directions = random_columns(self._size, columns=self._width, name=self._name, seed=self._seed)
        return self.directions.to(like)
