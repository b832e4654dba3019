"""Where the examples of a batch are in what a layer gets in and puts out; a self-check finds it (self_check.py).

Most layers have the examples on their first axis. Encoders with the tokens first have them on the second. Windows of an
image, or the tokens of all examples, may share the first axis with the examples, which come first or last in it.
"""

from collections.abc import Callable

from torch import Tensor

FIRST = "first"
SHARED = "shared"  # of a table that all examples look up at once, as positions: each is given rows of its own


def arranged(x: Tensor, axis: str, examples: int) -> Tensor | None:  # (..., N, ...) -> (N, ...)
    """Return what a layer got in or put out with the examples first, or None where the shape has no room for them.

    Args:
        x: inputs, outputs or gradients of one call of a layer.
        axis: one of `AXES`.
        examples: their number N.
    """
    return AXES[FIRST if axis == SHARED else axis](x, examples) if x.dim() else None


def _first(x: Tensor, examples: int) -> Tensor | None:  # (N, ...)
    return x if len(x) == examples else None


def _second(x: Tensor, examples: int) -> Tensor | None:  # (T, N, ..., A)
    tokens = x.dim() > 2 or (x.dim() == 2 and not x.is_floating_point())  # words: (T, N)
    return x.transpose(0, 1) if tokens and x.shape[1] == examples else None


def _parts(x: Tensor, examples: int) -> Tensor | None:  # (N * k, ...) -> (N, k, ...)
    return x.unflatten(0, (examples, -1)) if len(x) and len(x) % examples == 0 else None


def _parts_outside(x: Tensor, examples: int) -> Tensor | None:  # (k * N, ...) -> (N, k, ...)
    return x.unflatten(0, (-1, examples)).transpose(0, 1) if len(x) and len(x) % examples == 0 else None


AXES: dict[str, Callable[[Tensor, int], Tensor | None]] = {
    FIRST: _first,
    "second": _second,
    "parts": _parts,
    "parts outside": _parts_outside,
}
