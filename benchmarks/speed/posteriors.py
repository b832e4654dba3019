"""What a posterior costs once it is fitted: bytes, a sample of the weights, and another prior precision.

Each structure is fitted on all of the network's data: which eigenvectors the paper's grid uses, and so what it stores,
depends on them. Then, in rounds: a bare `torch.randn` of all weights times a vector, a sample of each structure,
another τ for each, a gradient pass over one batch. Another τ is `posterior(prior_precision=τ)`, `log_det()` and a first
sample, less a second sample.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import torch
from benchmarks.common import laplace_of

import infoform

from .methods import PLAIN
from .networks import Network
from .timing import clock, run_parts, short

ROUNDS = 9


def measure_posteriors(
    network: Network, ours: Mapping[str, Mapping[str, Any]], *, rounds: int, say: Callable[[str], None]
) -> dict[str, dict[str, Any]]:
    """Return one row for each of our structures that can be fitted."""
    model, batches = network.build()
    one_batch = batches.first(1)
    fitted, rows = {}, {}
    for name, options in ours.items():
        try:
            fitted[name] = laplace_of(model, "classification", **options).fit(batches, progress=False)
            rows[name] = _stored(fitted[name])
        except Exception as error:
            rows[name] = {"failed": short(error)}
        say(f"{name}: {rows[name]}")
    posteriors = {name: laplace.posterior() for name, laplace in fitted.items()}
    weights = sum(layer.shape[0] * layer.shape[1] for layer in next(iter(posteriors.values())).layers.values())
    factor = torch.rand(weights)
    seconds: dict[str, dict[str, list[float]]] = {name: {"sample": [], "prepare": []} for name in posteriors}
    gradient, bare = [], []
    for number in range(rounds + 1):
        took = run_parts(PLAIN, model, one_batch)["fit"], clock(lambda: torch.randn(weights).mul_(factor))
        for name, posterior in posteriors.items():
            sample = clock(lambda posterior=posterior: posterior.sample(1))
            prepare = _prepare(fitted[name], 1.0 + number)
            if number:  # the first round computes what is computed once
                seconds[name]["sample"].append(sample)
                seconds[name]["prepare"].append(prepare)
        if number:
            gradient.append(took[0])
            bare.append(took[1])
    beside = {
        "weights": weights,
        "randn_seconds": bare,
        "gradient_seconds": gradient,
        "gradient_examples": network.batch,
    }
    for name, parts in seconds.items():
        rows[name] |= {"seconds": parts, **beside}
    return rows


def _stored(laplace: infoform.Laplace) -> dict[str, Any]:
    """Return the bytes as they are, and with the diagonal in half precision where the structure has one."""
    found = {"bytes": laplace.posterior().nbytes}
    with suppress(TypeError):  # that a structure raises which takes no such option
        found["bfloat16_bytes"] = laplace.posterior(storage="bfloat16").nbytes
    return found


def _prepare(laplace: infoform.Laplace, precision: float) -> float:
    made = []

    def first() -> None:
        posterior = laplace.posterior(prior_precision=precision)
        posterior.log_det()
        posterior.sample(1)
        made.append(posterior)

    return clock(first) - clock(lambda: made[0].sample(1))
