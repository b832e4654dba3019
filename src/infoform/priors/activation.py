"""The activation prior: stiff along the input directions that the data use, free elsewhere.

    Q = τ I + ε A,    A = E Σ_s a aᵀ,    ε = strength · √(N τ)

A well-fitted classifier has tiny output gradients, so N·I is small in every direction, and an isotropic τ large
enough to keep known data sharp also silences the directions that only unknown data would excite. This prior needs
inputs only, no labels, and is the cross term √(N τ) A ⊗ I of KFAC's factored damping, for every structure.
A enters by its diagonal and its leading eigenpairs, which all output rows share.

Only τ I is centred at zero. The other term says that outputs on the data stay as they were trained, so it is centred
at the trained weights: it narrows the posterior, and its evidence counts it as information, as KFAC's damping is.

How wide the answers to known inputs are is set by ε, and how wide those to unknown ones by τ. Measured with τ from
held-out data, a strength of 30 was better than 1 (docs/experiments/mnist.md). Evidence does not know ε: the more is
counted as information the lower it is, and its τ, which comes from the size of the weights, needs a strength of 1.
"""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

from infoform.curvature.input_spectrum import InputSpectrum
from infoform.priors.base import LayerPrior, Prior
from infoform.priors.precision import check_precision, layer_precision

STRENGTH = 30.0
STRENGTH_BY_EVIDENCE = 1.0


class Activation(Prior):
    """τ I + strength √(N τ) A; `precision` is τ, or a mapping from layer names to their τ.

    Where it is not given, the strength is 30, and 1 for a τ that was tuned by evidence.
    """

    name: ClassVar[str] = "activation"
    needs_inputs: ClassVar[bool] = True

    def __init__(
        self,
        precision: float | Mapping[str, float] = 1.0,
        *,
        strength: float | None = None,
        by_evidence: bool = False,
    ) -> None:
        self.precision = check_precision(precision)
        if strength is not None and not 0 <= strength < math.inf:
            raise ValueError(f"the strength of the activation prior must be finite and not negative, got {strength}.")
        self.given = None if strength is None else float(strength)
        self.by_evidence = by_evidence

    @property
    def strength(self) -> float:
        if self.given is not None:
            return self.given
        return STRENGTH_BY_EVIDENCE if self.by_evidence else STRENGTH

    def layer(self, name: str, *, num_data: float, inputs: InputSpectrum | None) -> LayerPrior:
        assert inputs is not None
        precision = layer_precision(self.precision, name)
        epsilon = self.strength * math.sqrt(num_data * precision)
        diagonal = precision + epsilon * inputs.remainder
        if len(inputs.values) == 0:
            return LayerPrior(diagonal, pull=precision)
        return LayerPrior(diagonal, inputs.vectors, epsilon * inputs.values, pull=precision)

    def with_precision(self, precision: float | Mapping[str, float]) -> "Activation":
        return Activation(precision, strength=self.given, by_evidence=self.by_evidence)

    def tuned(self, *, by_evidence: bool) -> "Activation":
        return Activation(self.precision, strength=self.given, by_evidence=by_evidence)

    def settings(self) -> dict[str, Any]:
        return {"precision": self.precision, "strength": self.given, "by_evidence": self.by_evidence}
