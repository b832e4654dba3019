"""What a prior must tell: its precision on one layer's weights."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from typing_extensions import Self

from infoform.curvature.dimensions import Dimensions
from infoform.curvature.input_spectrum import InputSpectrum


@dataclass(frozen=True, eq=False)
class LayerPrior:
    """The prior precision of one layer, the same for every output row: Q = diag(precision) + W diag(values) Wᵀ.

    Over the whole layer, row-major, it is kron(I_G, Q). All of it pulls the weights to zero, or `pull` alone does and
    the rest holds them where they were trained.

    Args:
        precision: τ, or a precision for each input (A,).
        vectors: W (A, p), orthonormal columns; may be stored in bfloat16.
        values: Precisions along the columns of W (p,).
        pull: τ, where the rest of Q is centred at the trained weights.

    Example:
        ```python
        prior = infoform.LayerPrior(2.0)
        assert prior.isotropic and prior.rank == 0
        ```
    """

    precision: float | Tensor  # τ, or (A,): one for each column
    vectors: Tensor | None = None  # W (A, p); may be stored in bfloat16
    values: Tensor | None = None  # (p,)
    pull: float | None = None  # τ, where the rest of Q is centred at the trained weights

    @property
    def around_zero(self) -> "LayerPrior":
        """The part of the prior that is centred at zero; the rest is information, as the data's is."""
        return self if self.pull is None else LayerPrior(self.pull)

    @property
    def isotropic(self) -> bool:
        """Whether all inputs have the same precision."""
        return not isinstance(self.precision, Tensor)

    @property
    def rank(self) -> int:
        """Return p, the number of columns of W."""
        return 0 if self.values is None else len(self.values)

    @property
    def positive(self) -> bool:
        """Whether every weight has some prior precision."""
        return bool((torch.as_tensor(self.precision) > 0).all())

    @property
    def nbytes(self) -> int:
        """Return the bytes of all that is stored for it besides τ."""
        parts = (self.precision, self.vectors, self.values)
        return sum(part.nbytes for part in parts if isinstance(part, Tensor))

    def along(self, columns: Tensor) -> Tensor:  # (A, a) -> (a,)
        """Return uᵀ Q u for every column u.

        Args:
            columns: Vectors u as columns (A, a).

        Returns:
            Numbers (a,).
        """
        precision = torch.as_tensor(self.precision, dtype=columns.dtype, device=columns.device)
        along = (columns.square() * (precision if precision.dim() == 0 else precision.unsqueeze(1))).sum(0)
        if self.vectors is not None and self.values is not None:
            along = along + self.values.to(columns) @ (self.vectors.T.to(columns) @ columns).square()
        return along

    def log_det(self, size: int) -> Tensor:
        """Return log det Q, in float64.

        Args:
            size: The number of inputs A.

        Returns:
            A number.
        """
        precision = torch.as_tensor(self.precision, dtype=torch.float64).expand(size)
        total = precision.log().sum()
        if self.vectors is None or self.values is None:
            return total
        factor = self.vectors.double() * self.values.double().sqrt()
        inner = (factor.T @ (factor / precision.to(factor.device).unsqueeze(1))).cpu()
        extra: Tensor = torch.linalg.slogdet(torch.eye(self.rank, dtype=inner.dtype) + inner).logabsdet
        return total.cpu() + extra

    def quadratic_form(self, matrix: Tensor) -> Tensor:  # (G, A) -> ()
        """Return Σ_g w_gᵀ Q w_g over the rows of a weight matrix, in float64.

        Args:
            matrix: Weights (G, A).

        Returns:
            A number.
        """
        weights = matrix.double()
        total = (weights.square() * torch.as_tensor(self.precision).to(weights)).sum()
        if self.vectors is not None and self.values is not None:
            total = total + ((weights @ self.vectors.double()).square() * self.values.double()).sum()
        return total

    def dense(self, size: int, *, like: Tensor) -> Tensor:  # Q (A, A)
        """Return Q itself; for tests and small layers.

        Args:
            size: The number of inputs A.
            like: A tensor of the dtype and on the device that are wanted.

        Returns:
            A matrix (A, A).
        """
        precision = torch.as_tensor(self.precision, dtype=like.dtype, device=like.device).expand(size)
        dense = precision.diag()
        if self.vectors is not None and self.values is not None:
            vectors = self.vectors.to(like)
            dense = dense + vectors * self.values.to(like) @ vectors.T
        return dense


class Prior(ABC):
    """A Gaussian prior over all weights; immutable.

    A prior of your own is a subclass with a `name`, `needs_inputs` and four methods: `layer`, `with_precision`,
    `settings`, and `__init__`, which takes what `settings` returns.

    Attributes:
        name: Name in `infoform.priors.PRIORS` and in saved files.
        needs_inputs: Whether `layer` needs the spectrum of the layer's inputs.
        precision: τ, for all layers or by layer.
        rank: Eigenpairs of a layer's inputs that it uses; None for as many as a fit keeps.

    Example:
        ```python
        prior = infoform.Isotropic(2.0).with_precision(3.0)
        assert prior.layer("head", num_data=100, inputs=None).precision == 3.0
        ```
    """

    name: ClassVar[str]
    needs_inputs: ClassVar[bool]  # whether `layer` needs the spectrum of the layer's inputs

    precision: float | dict[str, float]  # τ, for all layers or by layer
    rank: int | None = None  # eigenpairs of a layer's inputs that it uses; None for as many as a fit keeps

    @abstractmethod
    def layer(self, name: str, *, num_data: float, inputs: InputSpectrum | None) -> LayerPrior:
        """Return the prior of one layer.

        Args:
            name: The layer's name.
            num_data: N, the number of examples that the posterior stands for.
            inputs: What the fit knows of the layer's inputs; None where `needs_inputs` is False, and for layers of
                which nothing but the diagonal is measured, such as norms and embeddings.

        Returns:
            Its precision.
        """

    @abstractmethod
    def with_precision(self, precision: Any) -> Self:
        """Return the same prior with another τ.

        Args:
            precision: τ, or a mapping from layer names to their τ.

        Returns:
            A new object.
        """

    def with_rank(self, rank: int) -> "Prior":
        """Return the same prior with another number of eigenpairs of a layer's inputs.

        Args:
            rank: How many.

        Returns:
            A new object.

        Raises:
            ValueError: If the prior does not look at inputs.
        """
        raise ValueError(f"the {self.name} prior has no rank, got {rank}; leave it out.")

    def planned_bytes(self, size: Dimensions) -> int:
        """Return the bytes that it stores for a layer besides τ.

        Args:
            size: The sizes of the layer.

        Returns:
            Bytes of a precision for each input and of the leading eigenpairs, where it looks at inputs.
        """
        if not self.needs_inputs or size.input_rank is None or size.only_diagonal:
            return 0
        pairs, item = min(size.input_rank, size.inputs), size.dtype.itemsize
        vectors = torch.bfloat16.itemsize if size.dtype == torch.float32 else item
        return item * (size.inputs + pairs) + vectors * pairs * size.inputs

    def tuned(self, *, by_evidence: bool) -> Self:
        """Return the prior whose τ is to be found by evidence, or on validation data.

        Args:
            by_evidence: Which of the two.

        Returns:
            The prior that the search begins with.
        """
        return self

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Return what the constructor needs to make this object again.

        Returns:
            Arguments by name, as JSON can hold them.
        """
