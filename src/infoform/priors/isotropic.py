"""The isotropic prior of the paper: precision τ I, with one τ for all layers or one for each."""

from collections.abc import Mapping
from typing import Any, ClassVar

from infoform.curvature.input_spectrum import InputSpectrum
from infoform.priors.base import LayerPrior, Prior
from infoform.priors.precision import check_precision, layer_precision


class Isotropic(Prior):
    """τ I, the prior of the paper.

    Args:
        precision: τ, or a mapping from layer names to their τ.

    Raises:
        ValueError: If τ is negative or not finite.

    Example:
        ```python
        laplace = infoform.Laplace(model, "classification", prior=infoform.Isotropic(10.0))
        ```
    """

    name: ClassVar[str] = "isotropic"
    needs_inputs: ClassVar[bool] = False

    def __init__(self, precision: float | Mapping[str, float] = 1.0) -> None:
        self.precision = check_precision(precision)

    def layer(self, name: str, *, num_data: float, inputs: InputSpectrum | None) -> LayerPrior:
        return LayerPrior(layer_precision(self.precision, name))

    def with_precision(self, precision: float | Mapping[str, float]) -> "Isotropic":
        return Isotropic(precision)

    def settings(self) -> dict[str, Any]:
        return {"precision": self.precision}
