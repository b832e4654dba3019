"""A prior from outside the package: twice τ in every layer."""

from collections.abc import Mapping
from typing import Any, ClassVar

from infoform import LayerPrior, Prior
from infoform.curvature.input_spectrum import InputSpectrum


class Twice(Prior):
    """2 τ I."""

    name: ClassVar[str] = "toy-prior"
    needs_inputs: ClassVar[bool] = False

    def __init__(self, precision: float | Mapping[str, float] = 1.0) -> None:
        self.precision = dict(precision) if isinstance(precision, Mapping) else precision

    def layer(self, name: str, *, num_data: float, inputs: InputSpectrum | None) -> LayerPrior:
        own = self.precision[name] if isinstance(self.precision, dict) else self.precision
        return LayerPrior(2.0 * own)

    def with_precision(self, precision: float | Mapping[str, float]) -> "Twice":
        return Twice(precision)

    def settings(self) -> dict[str, Any]:
        return {"precision": self.precision}
