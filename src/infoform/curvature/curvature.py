"""The curvature of every layer: what a fit is asked for, and what it returns.

I = E_n Σ_v vec(∇) vec(∇)ᵀ,    an average over examples, free of prior and data-set size
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from torch import Tensor

from infoform.curvature.eigenbasis import Eigenbasis
from infoform.curvature.input_spectrum import InputSpectrum
from infoform.curvature.request import BASES
from infoform.likelihoods import DataSummary
from infoform.novelty.known_inputs import KnownInputs


@dataclass(frozen=True)
class Curvature:
    """Statistics of one layer, each an average over examples; None where the fit was not asked for it.

    Args:
        name: The layer's name.
        shape: (G, A), outputs and inputs of the layer; a bias is one more input.
        positions: How often an example uses the weight, on average.
        input_factor: E Σ_s a aᵀ (A, A), averaged over the groups of a grouped convolution.
        inputs: The spectrum of the input factor, where that is not kept whole.
        gradient_factor: E Σ_v,s g gᵀ (G, G).
        diagonal: E Σ_v ∇² (G, A), the exact diagonal of the information.
        bases: Eigenbases by name, "gradient" or "activation".
        block: The exact information matrix (G * A, G * A), row-major.
        only_diagonal: Whether the layer is one of which the diagonal alone is ever measured: a norm or an embedding.

    Example:
        ```python
        curvature = laplace.curvature["0"]
        assert curvature.diagonal.shape == curvature.shape
        ```
    """

    name: str
    shape: tuple[int, int]  # (G, A)
    positions: float | None = None  # E[S]: how often an example uses the weight
    input_factor: Tensor | None = None  # (A, A): E Σ_s a aᵀ, averaged over the groups of a grouped convolution
    inputs: InputSpectrum | None = None  # of the input factor, where that is not kept whole
    gradient_factor: Tensor | None = None  # (G, G): E Σ_v,s g gᵀ
    diagonal: Tensor | None = None  # f (G, A): E Σ_v ∇²
    bases: Mapping[str, Eigenbasis] = field(default_factory=dict)  # by its name in BASES
    block: Tensor | None = None  # (G * A, G * A): the exact information matrix, row-major
    only_diagonal: bool = False  # whether nothing else is ever measured of such a layer


TENSORS = ("input_factor", "gradient_factor", "diagonal", "block")  # the tensors of a Curvature besides its bases


@dataclass(frozen=True)
class Fit:
    """The result of a fit: the curvature by layer, and why a layer that was asked for has none."""

    curvature: Mapping[str, Curvature]
    summary: DataSummary
    unreached: Mapping[str, str]
    novelty: KnownInputs | None = None  # where it was collected
    odd: frozenset[str] = frozenset()  # the unreached layers whose captured gradients are wrong


def pack_curvature(curvature: Curvature) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return a layer's curvature as flat tensors and plain values, for a file."""
    tensors = {key: getattr(curvature, key) for key in TENSORS}
    for basis, eigen in curvature.bases.items():
        tensors |= {f"{basis}.{one.name}": getattr(eigen, one.name) for one in fields(eigen)}
    if curvature.inputs is not None:
        tensors |= {f"inputs.{one.name}": getattr(curvature.inputs, one.name) for one in fields(curvature.inputs)}
    settings: dict[str, Any] = {
        "name": curvature.name,
        "shape": list(curvature.shape),
        "positions": curvature.positions,
    }
    if curvature.only_diagonal:
        settings["only_diagonal"] = True
    return {key: value for key, value in tensors.items() if value is not None}, settings


def unpack_curvature(tensors: Mapping[str, Tensor], settings: Mapping[str, Any]) -> Curvature:
    """Undo `pack_curvature`."""
    bases = {}
    for basis in BASES:
        parts = {one.name: tensors.get(f"{basis}.{one.name}") for one in fields(Eigenbasis)}
        if parts["eigenvalues"] is not None:
            bases[basis] = Eigenbasis(**parts)  # type: ignore[arg-type]
    parts = {one.name: tensors.get(f"inputs.{one.name}") for one in fields(InputSpectrum)}
    inputs = None if parts["diagonal"] is None else InputSpectrum(**parts)  # type: ignore[arg-type]
    whole: dict[str, Any] = {key: value for key, value in tensors.items() if "." not in key}
    return Curvature(**{**settings, "shape": tuple(settings["shape"])}, **whole, inputs=inputs, bases=bases)
