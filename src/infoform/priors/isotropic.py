"""The isotropic prior of the paper: precision τ I, with one τ for all layers or one for each."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

from infoform.priors.base import LayerPrior, Prior


class Isotropic(Prior):
    """τ I; `precision` is τ, or a mapping from layer names to their τ."""

    name: ClassVar[str] = "isotropic"

    def __init__(self, precision: float | Mapping[str, float] = 1.0) -> None:
        values = precision if isinstance(precision, Mapping) else {"": precision}
        for value in values.values():
            if not 0 <= value < math.inf:
                raise ValueError(f"prior_precision must be finite and not negative, got {value}.")
        self.precision = dict(precision) if isinstance(precision, Mapping) else float(precision)

    def layer(self, name: str) -> LayerPrior:
        if not isinstance(self.precision, dict):
            return LayerPrior(self.precision)
        if name not in self.precision:
            raise ValueError(
                f"prior_precision must have a value for each layer, got none for '{name}'; add it or give one number."
            )
        return LayerPrior(float(self.precision[name]))

    def settings(self) -> dict[str, Any]:
        return {"precision": self.precision}
