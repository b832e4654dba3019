"""One byte a weight for positive numbers of many magnitudes: 0, or one of 255 steps of a logarithmic scale.

Rounded down, so that what must not be exceeded is not, or to the nearest step.
"""

import torch
from torch import Tensor

OCTAVES = 32.0  # below the largest value; anything smaller becomes 0
SLACK = 1e-9  # octaves; far above the rounding of logarithms, which could lift a value over the encoded one
TIE = 1e-3  # of a step: values that close below one have it, so that rounding does not part equal ones


def encode(values: Tensor, *, nearest: bool = False) -> tuple[Tensor, Tensor]:  # -> (same shape, uint8), (2,)
    """Return codes and the scale (log2 of the smallest step, distance of steps); rounded down, or to the nearest."""
    logs = values.double().log2()
    finite = logs[logs.isfinite()]
    if finite.numel() == 0:
        return torch.zeros_like(values, dtype=torch.uint8), logs.new_zeros(2)
    high = float(finite.max())
    low = max(float(finite.min()), high - OCTAVES)
    step = (high - low) / 254 or 1e-6
    if nearest:
        codes = ((logs - low) / step).round().clamp(-1, 254).add(1)
        return codes.nan_to_num(0).to(torch.uint8), logs.new_tensor([low, step])
    codes = ((logs - low) / step + TIE).floor().add(1).clamp(0, 255)
    return codes.nan_to_num(0).to(torch.uint8), logs.new_tensor([low - SLACK - TIE * step, step])


def decode(codes: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the values, none above the encoded one (if that is a number of `dtype`)."""
    table = torch.exp2(scale[0] + scale[1] * torch.arange(-1, 255, dtype=scale.dtype, device=scale.device))
    table[0] = 0
    return table.to(dtype)[codes.long()]
