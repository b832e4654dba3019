"""Two fits become one: information adds up, weighted by the number of examples."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from infoform.curvature.curvature import TENSORS, Curvature, Fit, pack_curvature, unpack_curvature
from infoform.curvature.input_spectrum import InputSpectrum
from infoform.curvature.subsampling import WHOLE_INPUTS, WHOLE_RESIDUAL, subsample_weights
from infoform.likelihoods import DataSummary
from infoform.likelihoods.own_data import add_counts


def merge_fits(
    one: Fit,
    other: Fit,
    *,
    fetch: Callable[[Curvature], Curvature] = lambda curvature: curvature,
    keep: Callable[[Curvature], Curvature] = lambda curvature: curvature,
) -> Fit:
    """Return the fit of both data sets together; the bases of both must be the same.

    Args:
        one: The fit of the first data set.
        other: The fit of the second data set.
        fetch: Brings the curvature of a layer of the first fit to the device of the second.
        keep: Puts the merged curvature of a layer to where it is to be.
    """
    first, second = one.summary, other.summary
    total = first.num_examples + second.num_examples
    share = second.num_examples / total
    residual_share = _part_share(first.num_examples, total, whole=WHOLE_RESIDUAL)
    inputs_share = _part_share(first.num_examples, total, whole=WHOLE_INPUTS)

    def merge(a: Tensor | None, b: Tensor | None, share: float = share) -> Tensor | None:
        return None if a is None or b is None else a * (1 - share) + b * share

    merged = {}
    for name in [*one.curvature, *(name for name in other.curvature if name not in one.curvature)]:
        a = fetch(one.curvature[name]) if name in one.curvature else _no_information(other.curvature[name])
        b = other.curvature[name] if name in other.curvature else _no_information(a)
        bases = {
            basis: replace(
                eigen,
                eigenvalues=eigen.eigenvalues * (1 - share) + b.bases[basis].eigenvalues * share,
                residual=merge(eigen.residual, b.bases[basis].residual, residual_share),
                core=merge(eigen.core, b.bases[basis].core),
            )
            for basis, eigen in a.bases.items()
        }
        inputs = a.inputs
        if a.inputs is not None and b.inputs is not None:
            diagonal = merge(a.inputs.diagonal, b.inputs.diagonal, inputs_share)
            values = merge(a.inputs.values, b.inputs.values, inputs_share)
            assert diagonal is not None
            assert values is not None
            inputs = InputSpectrum(diagonal, a.inputs.vectors, values)
        positions = None
        if a.positions is not None and b.positions is not None:
            positions = a.positions * (1 - share) + b.positions * share
        whole: dict[str, Any] = {key: merge(getattr(a, key), getattr(b, key)) for key in TENSORS}
        merged[name] = keep(replace(a, positions=positions, inputs=inputs, bases=bases, **whole))
    log_likelihood, counts = None, add_counts([first.counts, second.counts])
    if first.log_likelihood is not None and second.log_likelihood is not None:
        log_likelihood = first.log_likelihood + second.log_likelihood
    unreached = {name: why for name, why in one.unreached.items() if name not in merged}
    # the second fit has taken in what the first knew of inputs
    targets = None
    if first.num_targets is not None or second.num_targets is not None:
        targets = first.num_answers + second.num_answers
    positions = max(first.positions, second.positions)
    summary = DataSummary(total, first.num_outputs, log_likelihood, counts, targets, positions)
    return Fit(merged, summary, unreached, other.novelty, one.odd)


def _no_information(like: Curvature) -> Curvature:
    """Return the curvature of a layer that no gradient came back to."""
    tensors, settings = pack_curvature(like)
    basis = ("input_vectors", "gradient_vectors", "core_pairs", "inputs.vectors")
    zeros = {key: value if key.endswith(basis) else torch.zeros_like(value) for key, value in tensors.items()}
    return unpack_curvature(zeros, {**settings, "positions": None if like.positions is None else 0.0})


def _part_share(first: int, total: int, *, whole: int) -> float:
    weights = subsample_weights(range(total), whole=whole)
    return float(weights[first:].sum() / weights.sum())
