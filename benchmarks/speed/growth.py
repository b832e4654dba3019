"""How the time of a fit grows: with the number of examples, and with the width of one linear layer."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from .methods import Method
from .networks import Network, linear_layer
from .timing import Limits, clock, interleave

EXAMPLES = (1000, 2000, 4000, 8000)
WIDTHS = (256, 512, 1024, 2048, 4096)
QUICK_EXAMPLES = (128, 256)
QUICK_WIDTHS = (32, 64)
WIDTH_EXAMPLES = 512
Rows = dict[str, dict[str, Any]]  # by method


def with_examples(
    network: Network,
    count: int,
    methods: Mapping[str, Method],
    *,
    repeats: int,
    limits: Limits,
    say: Callable[[str], None],
) -> Rows:
    """Measure fits of a network on this many examples."""
    model, batches = replace(network, examples=count).build()
    rounds = interleave(methods, model, batches, repeats=repeats, limits=limits, say=say)
    return {name: timed.row() for name, timed in rounds}


def with_width(
    width: int, methods: Mapping[str, Method], *, repeats: int, limits: Limits, say: Callable[[str], None]
) -> Rows:
    """Measure fits of one square linear layer, and a full eigendecomposition of its width."""
    model, batches = linear_layer(width, WIDTH_EXAMPLES).build()
    repeats = 1 if width > 2048 else repeats
    rounds = interleave(methods, model, batches, repeats=repeats, limits=limits, say=say)
    rows = {name: timed.row() for name, timed in rounds}
    inputs = torch.cat([x for x, _ in batches])
    for dtype in (torch.float32, torch.float64):
        moment = (inputs.T @ inputs / len(inputs)).to(dtype)
        moment.diagonal().add_(torch.rand(width, dtype=dtype))  # of full rank, as with enough data
        seconds = [clock(partial(torch.linalg.eigh, moment)) for _ in range(repeats)]
        name = f"eigh, {str(dtype).removeprefix('torch.')}"
        say(f"{name}: {seconds[-1]:.2f} s")
        rows[name] = {"seconds": {"fit": seconds}}
    return rows
