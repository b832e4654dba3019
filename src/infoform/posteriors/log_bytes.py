"""One byte a weight for positive numbers of many magnitudes: 0, or one of 255 steps of a logarithmic scale.

Rounded down, so that what must not be exceeded is not, or to the nearest step.
"""

import torch
from torch import Tensor

OCTAVES = 32.0  # below the largest value, if not said otherwise; anything smaller becomes 0
SLACK = 1e-9  # octaves; far above the rounding of logarithms, which could lift a value over the encoded one
TIE = 1e-3  # of a step: values that close below one have it, so that rounding does not part equal ones


def encode(
    values: Tensor, *, nearest: bool = False, octaves: float = OCTAVES
) -> tuple[Tensor, Tensor]:  # -> (same shape, uint8), (2,)
    """Return codes and the scale (log2 of the smallest step, distance of steps); rounded down, or to the nearest."""
    logs = torch.log2(values) if values.dtype == torch.float64 else values.double().log2_()
    finite = logs.isfinite()
    if not bool(finite.any()):
        return torch.zeros_like(values, dtype=torch.uint8), logs.new_zeros(2)
    high = float(logs.where(finite, -torch.inf).max())
    low = max(float(logs.where(finite, torch.inf).min()), high - octaves)
    step = (high - low) / 254 or 1e-6
    places = logs.sub_(low).div_(step)  # in place: of a large layer these are the largest tensors that there are
    if nearest:
        return places.round_().clamp_(-1, 254).add_(1).nan_to_num_(0).to(torch.uint8), logs.new_tensor([low, step])
    codes = places.add_(TIE).floor_().add_(1).clamp_(0, 255).nan_to_num_(0).to(torch.uint8)
    return codes, logs.new_tensor([low - SLACK - TIE * step, step])


def decode(codes: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the values, none above the encoded one (if that is a number of `dtype`)."""
    table = torch.exp2(scale[0] + scale[1] * torch.arange(-1, 255, dtype=scale.dtype, device=scale.device))
    table[0] = 0
    return table.to(dtype)[codes.long()]
