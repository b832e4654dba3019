"""Choosing τ and the noise by evidence, which needs no data.

Log evidence is maximised over log τ (one for all layers or one for each) and, if asked for, log σ of a regression, in
turn. Every step is a problem in one number, and layers with a τ of their own are problems of their own.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from infoform.network.layer import Layer
from infoform.posteriors import LayerPosterior
from infoform.tuning.evidence import layer_log_evidence, maximise
from infoform.tuning.search import as_range

PRECISION_RANGE = (1e-6, 1e6)

# a layer's posterior for its τ and the noise
LayerBuilder = Callable[[str, float, float | None], LayerPosterior]


@dataclass(frozen=True)
class Evidence:
    """The hyperparameters of largest evidence."""

    prior_precision: float | dict[str, float]
    noise: float | None
    steps: int


def check_one_count(num_data: float | tuple[float, float]) -> float:
    """Return N, or raise a ValueError: the evidence of more data is always another, and chooses no number of them."""
    low, high = as_range(num_data)
    if low != high or not 0 < low < math.inf:
        raise ValueError(
            f"num_data by evidence must be one positive and finite number, got {num_data}; a range of N is searched on "
            "validation data alone, so give val_loader."
        )
    return float(low)


def maximise_evidence(
    build: LayerBuilder,
    layers: Mapping[str, Layer],
    *,
    per_layer: bool,
    noise: float | None,
    log_likelihood: Callable[[float | None], float],
    free_noise: bool,
    precision_range: tuple[float, float] = PRECISION_RANGE,
    max_rounds: int = 20,
) -> Evidence:
    """Ascend the log evidence until no coordinate moves by more than two per cent."""
    low, high = (math.log(bound) for bound in precision_range)
    groups = [[name] for name in layers] if per_layer else [list(layers)]
    steps = 0

    def at(names: Sequence[str], sigma: float | None, log_precision: float) -> float:
        nonlocal steps
        steps += 1
        precision = math.exp(log_precision)
        return sum(layer_log_evidence(build(name, precision, sigma), layers[name]) for name in names)

    def best_precisions(sigma: float | None) -> dict[str, float]:
        found: dict[str, float] = {}
        for names in groups:
            best, _ = maximise(partial(at, names, sigma), low, high)
            found |= dict.fromkeys(names, best)
        return found

    def of_noise(found: Mapping[str, float], log_noise: float) -> float:
        sigma = math.exp(log_noise)
        return log_likelihood(sigma) + sum(at([name], sigma, found[name]) for name in layers)

    sigma, found = noise, best_precisions(noise)
    for _ in range(max_rounds if free_noise and sigma is not None else 0):
        assert sigma is not None
        centre = math.log(sigma)
        moved_noise, _ = maximise(partial(of_noise, found), centre - 1.0, centre + 1.0, grid=3)
        sigma, before, found = math.exp(moved_noise), found, best_precisions(math.exp(moved_noise))
        if max(abs(moved_noise - centre), *(abs(found[name] - before[name]) for name in found)) < 0.02:
            break
    precisions = {name: math.exp(value) for name, value in found.items()}
    return Evidence(precisions if per_layer else next(iter(precisions.values())), sigma, steps)
