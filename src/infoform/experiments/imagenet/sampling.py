"""Outputs of a large network over many pictures: each sampled network meets all of them, a few at a time.

A sample of all weights costs as much as some pictures, so it is drawn once, not once a batch; and of small batches the
activations stay in a processor's cache.
"""

import warnings
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp

import infoform
from infoform.posteriors.network_posterior import Posterior

BATCH = 4  # pictures: the fastest of 1, 2, 4, 8, 16 for the networks of imagenet_networks.py on one core


def plain_outputs(model: nn.Module, images: Tensor) -> Tensor:  # (N, 3, H, W) -> (N, C)
    """Return the network's own outputs."""
    return _run(model, {}, images)


def sampled_outputs(
    laplace: infoform.Laplace,
    posterior: Posterior,
    images: Tensor,
    *,
    samples: int,
    seed: int,
    linear: bool = False,
) -> Tensor:  # (N, 3, H, W) -> (M, N, C)
    """Return the outputs of networks with sampled weights, the same ones every time; with `linear` linear in them."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(samples):
        deviations = {name: drawn[0] for name, drawn in posterior.sample(1, generator=generator).items()}
        weights = laplace.weights(deviations)
        run = _run_linear if linear else _run
        found.append(run(laplace.model, weights, images))
    return torch.stack(found)


def picture_batches(images: Tensor, classes: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return batches of as many pictures as the networks are fastest with."""
    return [(_laid_out(x), y) for x, y in zip(images.split(BATCH), classes.split(BATCH), strict=True)]


def _run(model: nn.Module, weights: Mapping[str, Tensor], images: Tensor) -> Tensor:
    with torch.no_grad():
        parts = [functional_call(model, dict(weights), (_laid_out(part),)) for part in images.split(BATCH)]
    return torch.cat(parts)


def _run_linear(model: nn.Module, weights: Mapping[str, Tensor], images: Tensor) -> Tensor:
    trained = {name: value.detach() for name, value in model.named_parameters() if name in weights}
    tangents = {name: weights[name] - value for name, value in trained.items()}
    parts = []
    with warnings.catch_warnings(), torch.no_grad():  # torch scripts its own rules at the first call, and warns of that
        warnings.filterwarnings("ignore", message=".*torch.jit.script", category=DeprecationWarning)
        for part in images.split(BATCH):
            x = _laid_out(part)
            both = jvp(lambda given, x=x: functional_call(model, given, (x,)), (trained,), (tangents,))
            parts.append(both[0] + both[1])
    return torch.cat(parts)


def _laid_out(images: Tensor) -> Tensor:
    return images.contiguous(memory_format=torch.channels_last)
