"""What a structure must tell: a Gaussian over one layer's weights with precision P, centred on the trained ones.

All linear maps take and give matrices of the layer's shape, `(..., G, A)`; `dense` is row-major over it.
A structure stores what does not depend on the prior; with another prior or data-set size it is the same object
with other numbers (`with_prior`), and what has to be computed from both is computed when first needed.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property
from typing import Any, ClassVar, TypeVar, overload

import torch
from torch import Tensor
from typing_extensions import Self

from infoform.common.randomness import normal
from infoform.curvature.curvature import Curvature
from infoform.likelihoods import DenseCovariance, OutputCovariance
from infoform.posteriors.jacobian_sums import JacobianSums, WholeJacobians
from infoform.priors import LayerPrior

_PREPARED = "prepared"  # whether an object has computed what it shares
_ORIGIN = "origin"  # where an object made by `with_prior` finds the one it was made from
Value = TypeVar("Value")


class shared_across_priors(cached_property[Value]):
    """A cached property that depends on neither prior nor data-set size: computed once for all that share it."""

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> Value: ...

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
        origin = None if instance is None else instance.__dict__.get(_ORIGIN)
        if origin is None or self.attrname is None or self.attrname in instance.__dict__:
            return super().__get__(instance, owner)
        value = instance.__dict__[self.attrname] = getattr(origin, self.attrname)
        return value


class LayerPosterior(ABC):
    """N(0, P⁻¹) over the deviation of a layer's weights from the trained ones.

    Final classes are frozen dataclasses whose first fields are `prior` and `num_data`; every tensor among their
    fields is stored, and free of the prior.

    Example:
        ```python
        layer = laplace.posterior().layers["0"]
        deviations = layer.sample(3)
        assert deviations.shape == (3, *layer.shape)
        ```
    """

    structure: ClassVar[str]
    differences: ClassVar[bool] = False  # whether output variances are differences of larger numbers
    tensor_shapes: ClassVar[Mapping[str, str]] = {}  # of stored tensors, in letters: "A a"; G, A and W = G A are known
    not_negative: ClassVar[tuple[str, ...]] = ()  # of those, the ones that cannot be negative

    prior: LayerPrior
    num_data: float

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Return (G, A)."""

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """Return the dtype that it computes in."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Return the device that it computes on."""

    @property
    def rank(self) -> int | None:
        """Return the number of kept eigenpairs; None for a structure that has no rank."""
        return None

    @property
    def kept_energy(self) -> float | None:
        """Return Σ Λ of the kept eigenpairs; None for a structure that has no rank."""
        return None

    @property
    def noise_shape(self) -> tuple[int, ...]:
        """Return the shape of the standard normal noise that `transform` takes for one sample."""
        return self.shape

    @property
    def width(self) -> int:
        """Return how many numbers `outer_covariance` holds for each example and each input or output of the layer."""
        return 1

    @property
    def output_width(self) -> int:
        """Return how many numbers `output_covariance` holds for each example and each output of the layer."""
        return self.shape[0]

    @abstractmethod
    def transform(self, noise: Tensor) -> Tensor:  # (..., *noise_shape) -> (..., G, A)
        """Return F · noise, with F Fᵀ = P⁻¹.

        Args:
            noise: Standard normal numbers (..., *noise_shape).

        Returns:
            Deviations from the trained weights (..., G, A).
        """

    def transform_(self, noise: Tensor) -> Tensor:
        """Return the same; the noise may be overwritten, since fresh memory costs more than numbers.

        Args:
            noise: Standard normal numbers (..., *noise_shape).

        Returns:
            Deviations from the trained weights (..., G, A).
        """
        return self.transform(noise)

    @property
    def alike(self) -> Hashable:
        """Return what layers have in common that `transform_alike` can take together; None for none at all."""
        return None

    @classmethod
    def transform_batched(cls, layers: Sequence[Self]) -> Callable[[Tensor], None]:
        """Return what does `transform_` in place for the noise of several layers at once.

        Args:
            layers: Layers whose `alike` is the same.

        Returns:
            A function of noise (L, G, A).
        """
        raise TypeError(f"layers of structure '{cls.structure}' are transformed one by one.")

    @abstractmethod
    def solve(self, x: Tensor) -> Tensor:  # (..., G, A) -> (..., G, A)
        """Return P⁻¹ x.

        Args:
            x: Matrices of the layer's shape (..., G, A).

        Returns:
            Matrices of the same shape.
        """

    @abstractmethod
    def quadratic_form(self, x: Tensor) -> Tensor:  # (..., G, A) -> (...)
        """Return xᵀ P x.

        Args:
            x: Matrices of the layer's shape (..., G, A).

        Returns:
            A number for each of them (...).
        """

    @abstractmethod
    def outer_covariance(self, inputs: Tensor, outputs: Tensor) -> Tensor:  # (N, A), (N, C, G) -> (N, C, C)
        """Return J_c P⁻¹ J_dᵀ for Jacobians J_c = g_c aᵀ, which are not formed.

        Args:
            inputs: The layer's inputs a (N, A).
            outputs: The gradients g_c of C outputs in the layer's outputs (N, C, G).

        Returns:
            Covariances of the outputs (N, C, C).
        """

    def output_covariance(self, inputs: Tensor) -> OutputCovariance:  # (N, A)
        """Return the covariance of the layer's own outputs W a; for a last layer, that of the network's outputs.

        A structure that knows better than G × G numbers an example overrides it.

        Args:
            inputs: The layer's inputs a (N, A). Where `differences` is set they may be of a wider dtype than the
                posterior, which the covariances are then computed in.

        Returns:
            Covariances of the G outputs of every example.
        """
        eye = torch.eye(self.shape[0], dtype=inputs.dtype, device=inputs.device)
        return DenseCovariance(self.outer_covariance(inputs, eye.expand(inputs.shape[0], -1, -1)))

    def covariance(self, jacobians: Tensor) -> Tensor:  # (N, C, G, A) -> (N, C, C)
        """Return J_c P⁻¹ J_dᵀ.

        Args:
            jacobians: Gradients of C outputs in the layer's weights (N, C, G, A).

        Returns:
            Covariances of the outputs (N, C, C).
        """
        return jacobians.flatten(2) @ self.solve(jacobians).flatten(2).mT

    @property
    def keeps_jacobians(self) -> bool:
        """Whether `jacobian_sums` holds the Jacobians of all examples at once."""
        return True

    def jacobian_sums(self) -> JacobianSums:
        """Return what takes Jacobians one example at a time, to give the same as `covariance` in the end.

        Returns:
            An object for the examples of one batch.
        """
        return WholeJacobians(self)

    def row_variances(self, rows: Tensor) -> Tensor:  # (R,) -> (R, A)
        """Return the variances of some rows of weights, where all weights are independent.

        Args:
            rows: Numbers of rows.

        Returns:
            Variances; 0 for weights that are held fixed.

        Raises:
            TypeError: If weights are not independent.
        """
        raise TypeError(f"the weights of a layer of structure '{self.structure}' are not independent.")

    def prepare(self, *, outer: bool = False) -> None:
        """Compute now what the first `covariance` would, with all threads: another number of them rounds otherwise.

        Args:
            outer: Whether it is `outer_covariance` that will be called.
        """
        done: set[bool] = self.__dict__.setdefault(_PREPARED, set())
        if outer in done:
            return
        zeros = torch.zeros(1, 1, *self.shape, dtype=self.dtype, device=self.device)
        if outer:
            self.outer_covariance(zeros[0, 0, :1], zeros[..., 0])
        else:
            self.covariance(zeros)
        done.add(outer)

    def prepare_export(self) -> None:
        """Compute now what `output_covariance` cannot compute inside an exported graph."""
        self.output_covariance(torch.zeros(1, self.shape[1], dtype=self.dtype, device=self.device))

    @abstractmethod
    def log_det(self) -> Tensor:
        """Return log det P, in float64.

        Returns:
            A number; weights that are held fixed for want of any precision do not count.
        """

    @abstractmethod
    def diagonal(self) -> Tensor:  # (G, A)
        """Return the diagonal of P.

        Returns:
            A matrix of the layer's shape (G, A).
        """

    @abstractmethod
    def dense(self) -> Tensor:  # (G * A, G * A)
        """Return P itself; for tests and small layers.

        Returns:
            A matrix (G * A, G * A), row-major.
        """

    def sample(
        self, count: int, *, generator: torch.Generator | None = None, out: Tensor | None = None
    ) -> Tensor:  # (count, G, A)
        """Draw deviations from the trained weights.

        Args:
            count: How many.
            generator: Of the random numbers; torch's own where not given.
            out: An earlier draw, whose memory is used where it will do.

        Returns:
            Deviations (count, G, A).
        """
        noise = normal((count, *self.noise_shape), generator=generator, dtype=self.dtype, out=out)
        return self.transform_(noise.to(self.device))

    def with_prior(self, prior: LayerPrior, num_data: float) -> Self:
        """Return the same posterior under another prior or data-set size; what depends on neither is shared.

        Args:
            prior: The prior precision of the layer.
            num_data: N, the number of examples that the posterior stands for.

        Returns:
            A posterior of the same structure.
        """
        other = replace(self, prior=prior, num_data=num_data)  # type: ignore[type-var]
        other.__dict__[_ORIGIN] = self.__dict__.get(_ORIGIN, self)
        return other

    @property
    def nbytes(self) -> int:
        """Return the bytes of all that is stored, the prior's share included."""
        return sum(tensor.nbytes for tensor in self.state_dict().values()) + self.prior.nbytes

    @property
    def note(self) -> str:
        """Return what a user should know of this layer, if anything."""
        return ""

    def state_dict(self) -> dict[str, Tensor]:
        """Return the stored tensors by name.

        Returns:
            All that a file must hold, besides `settings`.
        """
        values = {one.name: getattr(self, one.name) for one in fields(self)}  # type: ignore[arg-type]
        return {name: value for name, value in values.items() if isinstance(value, Tensor)}

    @classmethod
    def check_stored(cls, tensors: Mapping[str, Tensor], what: str) -> None:
        """Raise a ValueError if tensors of a file do not go together; their shapes are checked before.

        Args:
            tensors: The stored tensors by name.
            what: The layer and the file, for the sentence of an error.
        """
        return

    def settings(self) -> dict[str, Any]:
        """Return the stored plain values by name.

        Returns:
            All that a file must hold, besides `state_dict`.
        """
        values = {one.name: getattr(self, one.name) for one in fields(self)}  # type: ignore[arg-type]
        skipped = {"prior", "num_data"}
        return {
            name: value
            for name, value in values.items()
            if name not in skipped and value is not None and not isinstance(value, Tensor)
        }


def required(statistic: Tensor | None, what: str, curvature: Curvature) -> Tensor:
    """Return the statistic, or say how to get it."""
    if statistic is None:
        raise ValueError(
            f"this needs the {what} of layer '{curvature.name}', which the fit did not collect; "
            "fit with statistics='all', or with the structure that is wanted."
        )
    return statistic


def power(values: Tensor, exponent: float, *, floor: float = 0.0) -> Tensor:
    """Return values ** exponent, and 0 where a value is not above the floor: no precision, held fixed."""
    positive = values.clamp_min(floor or torch.finfo(values.dtype).tiny)
    return torch.where(values > floor, positive.rsqrt_() if exponent == -0.5 else positive**exponent, 0)
