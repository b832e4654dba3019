"""The gradients of several outputs from one backward pass, by `torch.vmap`.

Of few examples a backward pass takes nearly as long as of many, so that C passes of one example cost what one pass of
C examples would several times over. vmap has no rule for some operations: then outputs are sent back one by one.
"""

import warnings
from dataclasses import replace

import torch
from torch import Tensor

from infoform.network.capture import Call, Capture

TOLERANCE = 1e-3  # of a layer's largest gradient, up to which both ways agree
NO_RULE = "batching rule"  # of the warning that vmap takes an operation example by example

Answers = dict[str, list[Call]]  # by layer


def gradients_at_once(capture: Capture, outputs: Tensor, vectors: Tensor) -> Answers:  # (N, ...), (C, N, ...)
    """Send C vectors back together, and keep the graph.

    Args:
        capture: After a forward pass with these outputs.
        outputs: The network's outputs.
        vectors: What is sent back.

    Returns:
        The calls of every layer that the vectors reach, each with the gradients for all vectors (N, C, ...).
    """
    answers: Answers = {}

    def send(vector: Tensor) -> dict[str, list[Tensor]]:
        answers.update(_gradients(capture, outputs, vector))
        return {name: [gradient_of(call) for call in calls] for name, calls in answers.items()}

    gradients: dict[str, list[Tensor]] = torch.func.vmap(send, out_dims=1)(vectors)
    return {
        name: [replace(call, gradients=one) for call, one in zip(calls, gradients[name], strict=True)]
        for name, calls in answers.items()
    }


def can_go_at_once(capture: Capture, outputs: Tensor) -> bool:  # (N, *P, C)
    """Tell whether vmap runs this network's backward pass and gives the gradients that single passes give."""
    if capture.expands or not outputs.requires_grad:
        return False
    vectors = one_vector_each(outputs.reshape(len(outputs), -1, outputs.shape[-1]), 0).view(-1, *outputs.shape)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = gradients_at_once(capture, outputs, vectors)
        except Exception:  # of vmap, or of a user's code that meets a tensor of vmap
            return False
    slow = [one for one in caught if NO_RULE in str(one.message)]
    for one in caught:
        if one not in slow:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
    return not slow and all(
        _agree(found, _gradients(capture, outputs, vector), index) for index, vector in enumerate(vectors)
    )


def one_vector_each(outputs: Tensor, place: int) -> Tensor:  # (N, P, C) -> (C, N, P, C)
    """Return what is sent back for every output of a position."""
    count = outputs.shape[-1]
    vectors = outputs.new_zeros(count, *outputs.shape, requires_grad=False)
    vectors[:, :, place] = torch.eye(count, dtype=outputs.dtype, device=outputs.device).unsqueeze(1)
    return vectors


def _gradients(capture: Capture, outputs: Tensor, vector: Tensor) -> Answers:  # (N, ...), (N, ...)
    answers: Answers = {}
    capture.backward(outputs, vector, lambda name, calls: answers.setdefault(name, []).extend(calls), last=False)
    return answers


def _agree(found: Answers, alone: Answers, index: int) -> bool:
    """Whether the gradients for one vector are those of a pass of its own."""
    if {name: len(calls) for name, calls in found.items()} != {name: len(calls) for name, calls in alone.items()}:
        return False
    pairs = [
        (gradient_of(one)[:, index], gradient_of(other))
        for name, calls in found.items()
        for one, other in zip(calls, alone[name], strict=True)
    ]
    return all(
        one.shape == other.shape and bool((one - other).abs().max() <= TOLERANCE * other.abs().max())
        for one, other in pairs
        if other.numel()
    )


def gradient_of(call: Call) -> Tensor:  # (N, ...) or (N, C, ...)
    """Return what came back to a call."""
    assert call.gradients is not None
    return call.gradients
