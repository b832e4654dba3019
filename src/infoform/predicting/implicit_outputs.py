"""Answers at many temperatures for many outputs of a last layer, whose covariances are found anew from its inputs.

What all temperatures share is found once, where it is small enough to be held: variances, or the draws.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from infoform.likelihoods import DiagonalCovariance, GaussianOutputs, Likelihood
from infoform.posteriors import LayerPosterior
from infoform.predicting.raw_outputs import RawOutputs

if TYPE_CHECKING:
    from infoform.predicting.predictor import PredictOptions

PART_BYTES = 16 * 2**20  # of drawn outputs and of their covariances that are made at a time
HELD_BYTES = 2**28  # of draws that are held for all temperatures, where these are of
FEWEST = 20  # examples


def answers_at_temperatures(
    raw: RawOutputs, likelihood: Likelihood, options: "PredictOptions"
) -> Callable[[float], Tensor]:
    """Return what gives the probabilities at a temperature.

    Args:
        raw: outputs of N examples, with the inputs and the posterior of the last layer.
        likelihood: what the outputs are for.
        options: how to predict.

    Returns:
        A function from a temperature to probabilities, (N, C).
    """
    if options.link == "mc" and holds_draws(raw, options):
        drawn = [likelihood.answers_at_temperatures(one.draw()) for one in gaussians(raw, options)]
        return lambda temperature: torch.cat([at(temperature) for at in drawn]).to(raw.plain)

    def answers(parts: Iterable[GaussianOutputs], temperature: float) -> Tensor:
        scaled = (one.at_temperature(temperature) for one in parts)
        return torch.cat([likelihood.answers_from_gaussian(one, link=options.link) for one in scaled]).to(raw.plain)

    if options.link == "probit":  # which asks for nothing but variances
        narrow = [GaussianOutputs(one.mean, DiagonalCovariance(one.variance)) for one in gaussians(raw, options)]
        return lambda temperature: answers(narrow, temperature)
    return lambda temperature: answers(gaussians(raw, options), temperature)


def holds_draws(raw: RawOutputs, options: "PredictOptions") -> bool:
    """Whether the draws for all these examples may be held at a time."""
    return options.samples * raw.plain.numel() * raw.plain.dtype.itemsize <= HELD_BYTES


def held_at_once(raw: RawOutputs, options: "PredictOptions") -> Tensor | None:  # -> (n,)
    """Return places, evenly apart, of examples whose draws may be held; None where all may, or too few, or no draws."""
    if raw.covariance is not None or raw.samples is not None or options.link != "mc":
        return None
    size = options.samples * raw.plain.numel() * raw.plain.dtype.itemsize
    step = -(-size // HELD_BYTES)
    places = torch.arange(0, len(raw), step)
    return places if step > 1 and len(places) >= FEWEST else None


def examples_at_a_time(raw: RawOutputs, layer: LayerPosterior, options: "PredictOptions") -> int:
    """Return for how many examples draws and covariances are made at a time."""
    return max(1, PART_BYTES // ((options.samples + layer.output_width) * raw.plain.shape[1] * layer.dtype.itemsize))


def gaussians(raw: RawOutputs, options: "PredictOptions") -> Iterator[GaussianOutputs]:
    """Give the distributions of the outputs, those of some examples at a time."""
    assert raw.inputs is not None
    assert raw.layer is not None
    layer, size = raw.layer, examples_at_a_time(raw, raw.layer, options)
    for plain, inputs in zip(raw.plain.split(size), raw.inputs.split(size), strict=True):
        covariance = layer.output_covariance(inputs.to(layer.device, layer.dtype))
        mean = plain.to(layer.device, layer.dtype)
        yield GaussianOutputs(mean, covariance, samples=options.samples, seed=options.seed)
