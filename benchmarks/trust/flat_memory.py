"""A process that predicts a hundred thousand times holds no more memory at the end than at the beginning."""

from typing import Any

import torch

from . import claim
from .networks import fitted_classifier
from .resident import resident_bytes

KINDS = ("linear", "linear", "linear", "mc", "linear-mc")
ALLOWED = 4 * 2**20  # bytes: allocators round, and Python's own objects come and go


def run(*, quick: bool, seed: int) -> dict[str, Any]:
    """Return the memory after every tenth of the predictions."""
    torch.set_num_threads(1)
    count = 2_000 if quick else 100_000
    laplace = fitted_classifier(seed)
    generator = torch.Generator().manual_seed(seed)
    held = []
    for number in range(count):
        laplace.predict(torch.randn(1, 6, generator=generator), kind=KINDS[number % len(KINDS)], samples=4, seed=number)
        if (number + 1) % (count // 10) == 0:
            held.append(resident_bytes())
    growth = held[-1] - held[1]  # the first tenths fill caches
    return {
        "claims": [claim(f"memory is flat over {count:,} predictions", growth < ALLOWED, f"{growth / 2**20:+.1f} MiB")],
        "held": held,
    }
