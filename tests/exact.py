"""Posteriors in exact arithmetic: what float64 algebra itself cannot tell where a matrix has a condition of 10¹⁶."""

import mpmath
import torch
from torch import Tensor

from infoform.posteriors import DiagPosterior, InfPosterior
from infoform.posteriors.quantise import read_back

DIGITS = 80


def exact_precision(posterior: DiagPosterior | InfPosterior) -> mpmath.matrix:  # (G * A, G * A)
    """Return P from what the posterior stores, which is taken as it is."""
    with mpmath.workdps(DIGITS):
        outputs, inputs = posterior.shape
        prior, count = posterior.prior, mpmath.mpf(posterior.num_data)
        precision = torch.as_tensor(prior.precision, dtype=torch.float64).expand(inputs)
        rows = mpmath.diag([mpmath.mpf(value) for value in precision.tolist()])
        if prior.vectors is not None and prior.values is not None:
            factor = exact_matrix(prior.vectors) * mpmath.diag([mpmath.mpf(v) for v in prior.values.double().tolist()])
            rows += factor * exact_matrix(prior.vectors).T
        if isinstance(posterior, DiagPosterior):
            diagonal = read_back(posterior.information, posterior.information_steps, posterior.dtype)
        else:
            diagonal = posterior.remainder
        whole = mpmath.diag([count * mpmath.mpf(value) for value in diagonal.double().flatten().tolist()])
        for row in range(outputs):
            at = row * inputs
            whole[at : at + inputs, at : at + inputs] += rows
        if isinstance(posterior, InfPosterior):
            pair_rows, pair_columns = posterior.indices
            vectors = posterior.gradient_vectors.double()[:, None, pair_rows]
            kept = (vectors * posterior.input_vectors.double()[None, :, pair_columns]).to(torch.float64)
            if posterior.scale is not None:
                kept = posterior.scale.double().unsqueeze(-1) * kept
            low = exact_matrix(kept.flatten(0, 1)) * exact_matrix(posterior._root)
            whole += count * (low * low.T)
        return whole


def exact_variances(precision: mpmath.matrix, jacobians: Tensor) -> Tensor:  # (n, G * A) -> (n,)
    """Return J P⁻¹ Jᵀ for every row J."""
    with mpmath.workdps(DIGITS):
        columns = [exact_matrix(one.unsqueeze(1)) for one in jacobians]
        values = [float((one.T * mpmath.lu_solve(precision, one))[0]) for one in columns]
    return torch.tensor(values, dtype=torch.float64)


def exact_matrix(values: Tensor) -> mpmath.matrix:
    return mpmath.matrix([[mpmath.mpf(value) for value in row] for row in values.double().tolist()])
