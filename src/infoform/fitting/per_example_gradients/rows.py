"""Gradients of a table of which an example uses a few rows: those rows, and nothing of vocabulary size an example."""

from dataclasses import dataclass

from torch import Tensor

from infoform.fitting.per_example_gradients.base import Gradients, Projection


@dataclass(frozen=True)
class RowGradients(Gradients):
    """∇ (G, A) as some of its rows; of such a layer the diagonal is all that is measured."""

    examples: Tensor  # (P,)
    indices: Tensor  # (P,): the row of the table; none twice for one example
    values: Tensor  # (P, A)

    @property
    def positions(self) -> Tensor:  # type: ignore[override]
        return self.values

    @property
    def patches(self) -> Tensor:  # type: ignore[override]
        raise TypeError(_ONLY)

    def add_squares(self, total: Tensor) -> None:
        total.index_add_(0, self.indices, self.values.square())

    def rows(self, chosen: Tensor) -> "RowGradients":
        kept = (self.examples.unsqueeze(1) == chosen.to(self.examples)).any(1)
        return RowGradients(self.examples[kept], self.indices[kept], self.values[kept])

    def input_moment(self) -> Tensor:
        raise TypeError(_ONLY)

    def gradient_moment(self) -> Tensor:
        raise TypeError(_ONLY)

    def input_sketch(self, vectors: Tensor) -> Tensor:
        raise TypeError(_ONLY)

    def gradient_sketch(self, vectors: Tensor) -> Tensor:
        raise TypeError(_ONLY)

    def project(self, input_vectors: Tensor, gradient_vectors: Tensor) -> Projection:
        raise TypeError(_ONLY)

    def block(self) -> Tensor:
        raise TypeError(_ONLY)

    def patches_of(self, chosen: Tensor) -> Tensor:
        raise TypeError(_ONLY)


_ONLY = "of the rows of a table nothing but the diagonal is measured."
