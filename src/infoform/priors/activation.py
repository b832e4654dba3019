"""The activation prior: stiff along the input directions that the data use, free elsewhere.

    Q = τ I + ε A,    A = E Σ_s a aᵀ,    ε = strength · √(N τ)

A well-fitted classifier has tiny output gradients, so N·I is small in every direction, and an isotropic τ large
enough to keep known data sharp also silences the directions that only unknown data would excite. This prior needs
inputs only, no labels, and is the cross term √(N τ) A ⊗ I of KFAC's factored damping, for every structure.
A enters by its diagonal and its leading eigenpairs, which all output rows share. Of layers of which nothing but the
diagonal is measured (norms, embeddings, single parameters) A is taken to be I.

Only τ I is centred at zero. The other term says that outputs on the data stay as they were trained, so it is centred
at the trained weights: it narrows the posterior, and its evidence counts it as information, as KFAC's damping is.

How wide the answers to known inputs are is set by ε, and how wide those to unknown ones by τ. Measured with τ from
held-out data, a strength of 30 was better than 1 (docs/experiments/mnist.md). Evidence does not know ε: the more is
counted as information the lower it is, and its τ, which comes from the size of the weights, needs a strength of 1.
"""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

from infoform.common.checks import check_whole
from infoform.curvature.input_spectrum import InputSpectrum
from infoform.priors.base import LayerPrior, Prior
from infoform.priors.precision import check_precision, layer_precision

STRENGTH = 30.0
STRENGTH_BY_EVIDENCE = 1.0


class Activation(Prior):
    """τ I + strength √(N τ) A: stiff along the input directions that the data use.

    Args:
        precision: τ, or a mapping from layer names to their τ.
        rank: Eigenpairs of A that it uses; where not given, as many as the fit keeps, which are 8.
        strength: How stiff it is; where not given 30, and 1 for a τ that was tuned by evidence.
        by_evidence: Whether τ was tuned by evidence.

    Raises:
        ValueError: If a number is negative or not finite.

    Example:
        ```python
        laplace = infoform.Laplace(model, "classification", prior=infoform.Activation(rank=16, strength=30))
        ```
    """

    name: ClassVar[str] = "activation"
    needs_inputs: ClassVar[bool] = True

    def __init__(
        self,
        precision: float | Mapping[str, float] = 1.0,
        *,
        rank: int | None = None,
        strength: float | None = None,
        by_evidence: bool = False,
    ) -> None:
        self.precision = check_precision(precision)
        if rank is not None:
            check_whole("rank", rank, least=0)
        self.rank = rank
        if strength is not None and not 0 <= strength < math.inf:
            raise ValueError(f"the strength of the activation prior must be finite and not negative, got {strength}.")
        self.given = None if strength is None else float(strength)
        self.by_evidence = by_evidence

    @property
    def strength(self) -> float:
        """Return the strength, given or default."""
        if self.given is not None:
            return self.given
        return STRENGTH_BY_EVIDENCE if self.by_evidence else STRENGTH

    def layer(self, name: str, *, num_data: float, inputs: InputSpectrum | None) -> LayerPrior:
        precision = layer_precision(self.precision, name)
        epsilon = self.strength * math.sqrt(num_data * precision)
        if inputs is None:  # A = I: what a norm has put out has a mean square of 1
            return LayerPrior(precision + epsilon, pull=precision)
        diagonal = precision + epsilon * inputs.remainder
        if len(inputs.values) == 0:
            return LayerPrior(diagonal, pull=precision)
        return LayerPrior(diagonal, inputs.vectors, epsilon * inputs.values, pull=precision)

    def with_precision(self, precision: float | Mapping[str, float]) -> "Activation":
        return self._with(precision=precision)

    def with_rank(self, rank: int) -> "Activation":
        return self._with(rank=rank)

    def tuned(self, *, by_evidence: bool) -> "Activation":
        return self._with(by_evidence=by_evidence)

    def settings(self) -> dict[str, Any]:
        own = {"precision": self.precision, "strength": self.given, "by_evidence": self.by_evidence}
        return own if self.rank is None else own | {"rank": self.rank}

    def _with(self, **changed: Any) -> "Activation":
        return Activation(**self.settings() | changed)
