"""Numbers in float64, for sums and decompositions that float32 would spoil."""

from torch import Tensor


def in_double(x: Tensor) -> Tensor:
    """Return the numbers in float64; on the CPU where their device has none (Apple's)."""
    return x.cpu().double() if x.device.type == "mps" else x.double()
