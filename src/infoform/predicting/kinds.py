"""Ways of predicting, and which one `kind="auto"` takes.

mc          mean over M networks with sampled weights (the paper)                                  sampled_networks.py
linear      f(x) ~ N(f*, J Σ Jᵀ) in closed form                                                            linear.py
linear-mc   f* + J (θ_m − θ*) by forward-mode differentiation on sampled weights: any number of outputs

`linear` sends every output back through the network, and its cost grows with their number; that of `linear-mc` grows
with the samples alone. On ResNet-20 the two cost the same at some 50 to 70 outputs and 100 samples. For the last layer
alone `linear` is one forward pass, whatever the number of outputs. Outputs at positions, tokens or pixels, count
together: 64 is less than 7 classes at 10 tokens.
"""

from collections.abc import Collection
from dataclasses import dataclass

KINDS = ("linear", "mc", "linear-mc")
AUTO = "auto"
KINDS_AND_AUTO = (AUTO, *KINDS)
MANY_OUTPUTS = 64  # up to so many "auto" is linear, and C × C covariances are held


@dataclass(frozen=True)
class KindChoice:
    """A way of predicting, and why it was taken."""

    kind: str  # one of KINDS
    reason: str


ASKED = "asked for"
LAST = "one forward pass: the last layer alone has a posterior"


def may_be_last(shapes: Collection[tuple[int, int]], num_outputs: int | None) -> bool:  # (G, A) by layer
    """Whether one layer alone has a posterior, with as many outputs as the network, where that number is known.

    Args:
        shapes: of the layers with a posterior.
        num_outputs: number C of the network's outputs; None where it is not known.
    """
    return len(shapes) == 1 and all(num_outputs in (None, outputs) for outputs, _ in shapes)


def choose_kind(num_outputs: int | None, positions: int = 1) -> KindChoice:
    """Return what `kind="auto"` is, for a posterior over more than the last layer.

    Args:
        num_outputs: number C of the network's outputs; None where it is not known.
        positions: number P of positions of an example: every one of P · C outputs is sent back.
    """
    if positions > 1 and num_outputs is not None:
        count = f"{num_outputs} outputs at {positions} positions"
        if num_outputs * positions <= MANY_OUTPUTS:
            return KindChoice("linear", f"closed form: {count}, together at most {MANY_OUTPUTS}")
        return KindChoice("linear-mc", f"sampled: {count}, together more than the {MANY_OUTPUTS} of the closed form")
    if num_outputs is None or num_outputs <= MANY_OUTPUTS:
        count = "few outputs" if num_outputs is None else f"{num_outputs} outputs"
        return KindChoice("linear", f"closed form: {count}, at most {MANY_OUTPUTS}")
    return KindChoice("linear-mc", f"sampled: {num_outputs} outputs, more than the {MANY_OUTPUTS} of the closed form")
