"""The derivative of outputs along a deviation of the weights: by forward mode, or by two backward passes.

Some operators (torch's LSTM in float32, custom functions) have no forward mode. The gradient uᵀ J is linear in u, and
its derivative in u along a deviation t is J t.
"""

import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import jvp, vjp

Outputs = Callable[[Mapping[str, Tensor]], Tensor]


@dataclass
class DirectionalDerivative:
    """Outputs and their derivatives; where forward mode is once found missing, it is not tried again."""

    missing: str = ""  # why, as torch says it: with the operator's name

    def __call__(
        self, outputs: Outputs, at: Mapping[str, Tensor], tangents: Mapping[str, Tensor]
    ) -> tuple[Tensor, Tensor]:  # (N, C) each
        """Return the outputs at some weights, and J t.

        Args:
            outputs: the outputs as a function of weights.
            at: the weights.
            tangents: the deviation t.
        """
        if not self.missing:
            try:
                with warnings.catch_warnings():  # torch scripts its own rules at the first call, and warns of that
                    warnings.filterwarnings("ignore", message=".*torch.jit.script", category=DeprecationWarning)
                    result = jvp(outputs, (dict(at),), (dict(tangents),))
                return result[0], result[1]
            except RuntimeError as error:  # of which NotImplementedError is one
                if not _is_missing(error):
                    raise
                self.missing = str(error).splitlines()[0]
                warnings.warn(
                    f"torch has no forward-mode derivative of {_operator(self.missing)}: kind='linear-mc' takes two "
                    "backward passes in its place, with the same result in more time.",
                    stacklevel=2,
                )
        value, pull_back, *_ = vjp(outputs, dict(at))
        push = vjp(lambda vector: pull_back(vector)[0], torch.zeros_like(value))[1]
        return value, push(dict(tangents))[0]


def _operator(told: str) -> str:
    """Return the operator that torch names, or all that it says."""
    named = re.search(r"forward AD with (\S+)", told)
    return named[1] if named else f"an operator of this model ({told})"


def _is_missing(error: RuntimeError) -> bool:
    told = str(error)
    return "forward AD" in told or "jvp" in told or "forward mode" in told.lower()
