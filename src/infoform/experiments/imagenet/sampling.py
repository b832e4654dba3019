"""Outputs of a large network over many pictures: each sampled network meets all of them, a few at a time.

A sample of all weights costs as much as some pictures, so it is drawn once, not once a batch; and of small batches the
activations stay in a processor's cache. With `autocast` matrix products and convolutions are in that precision, say
"bfloat16", weights and sums in float32: on a processor that has such products in less than half of the time.
"""

import warnings
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp

import infoform
from infoform.posteriors.network_posterior import Posterior

BATCH = 4  # pictures: the fastest of 1, 2, 4, 8, 16 for the networks of imagenet_networks.py on one core


def plain_outputs(model: nn.Module, images: Tensor, *, autocast: str | None = None) -> Tensor:  # (N, 3, H, W) -> (N, C)
    """Return the network's own outputs."""
    return _run(model, {}, images, autocast)


def sampled_outputs(
    laplace: infoform.Laplace,
    posterior: Posterior,
    images: Tensor,
    *,
    samples: int,
    seed: int,
    linear: bool = False,
    autocast: str | None = None,
) -> Tensor:  # (N, 3, H, W) -> (M, N, C)
    """Return the outputs of networks with sampled weights, the same ones every time.

    With `linear` they are linear in the weights, which is always in float32: small differences matter there.
    """
    generator = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(samples):
        deviations = {name: drawn[0] for name, drawn in posterior.sample(1, generator=generator).items()}
        weights = laplace.weights(deviations)
        found.append(
            _run_linear(laplace.model, weights, images) if linear else _run(laplace.model, weights, images, autocast)
        )
    return torch.stack(found)


def _run(model: nn.Module, weights: Mapping[str, Tensor], images: Tensor, autocast: str | None) -> Tensor:
    dtype = None if autocast is None else getattr(torch, autocast)
    with torch.no_grad(), torch.autocast("cpu", dtype, enabled=dtype is not None):
        parts = [functional_call(model, dict(weights), (_laid_out(part),)) for part in images.split(BATCH)]
    return torch.cat(parts).float()


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
