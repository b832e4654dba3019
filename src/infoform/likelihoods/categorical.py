"""From uncertain logits to class probabilities: what classification and multi-label share.

probit   p ≈ softmax(μ / √(1 + π/8 σ²))                          MacKay 1992
bridge   a Dirichlet with the Gaussian's mode and curvature       MacKay 1998; Hobbhahn et al. 2022
mc       the mean of softmax over draws from the Gaussian
"""

import math

import torch
from torch import Tensor

from infoform.common.exporting import entropy_terms
from infoform.prediction import Prediction


def summarise(drawn: Tensor, plain: Tensor, *, yes_no: bool, probs: Tensor | None = None) -> Prediction:
    """Return the prediction of probabilities drawn from the posterior: (M, N, L, C) for L questions of C answers.

    `probs` (N, L, C) are the answers' probabilities where they come from elsewhere than the mean of the draws; then
    the draws give the epistemic share of the uncertainty alone.
    """
    mean = drawn.mean(0)
    probs = mean if probs is None else probs
    epistemic = drawn.var(0, correction=0)
    entropy = entropy_of(mean)
    information = entropy - entropy_of(drawn).mean(0)  # never negative: entropy is concave
    return _prediction(probs, epistemic, information, plain, drawn, yes_no)


def bridge(mean: Tensor, variance: Tensor, rows: Tensor, plain: Tensor, *, yes_no: bool) -> Prediction:
    """Return the prediction of the Dirichlet that matches Gaussian logits.

    Args:
        mean: means of the logits, (N, L, C) for L questions of C answers.
        variance: their variances, (N, L, C).
        rows: the covariance of each logit with the sum of a question's logits, (N, L, C).
        plain: outputs of the trained network.
        yes_no: whether the second of two answers alone is told.
    """
    mean, variance, rows = mean.double(), variance.double(), rows.double()
    total = rows.sum(-1, keepdim=True)
    # logits matter only up to a constant: condition the Gaussian on their sum being 0, unless it is but for rounding
    trace = variance.sum(-1, keepdim=True)
    safe = torch.where(total > mean.shape[-1] * torch.finfo(plain.dtype).eps * trace, total, 1)
    mean = mean - rows / safe * mean.sum(-1, keepdim=True)
    variance = (variance - rows.square() / safe).clamp_min(1e-12)
    mean = (mean - mean.mean(-1, keepdim=True)).clamp(-300, 300)
    count = mean.shape[-1]
    alpha = (1 - 2 / count + mean.exp() * (-mean).exp().sum(-1, keepdim=True) / count**2) / variance
    strength = alpha.sum(-1, keepdim=True)
    probs = alpha / strength
    epistemic = probs * (1 - probs) / (strength + 1)
    expected = torch.digamma(strength + 1).squeeze(-1) - (probs * torch.digamma(alpha + 1)).sum(-1)
    information = (entropy_of(probs) - expected).clamp_min(0)
    dtype = plain.dtype
    return _prediction(probs.to(dtype), epistemic.to(dtype), information.to(dtype), plain, None, yes_no)


def probit_scale(variance: Tensor) -> Tensor:
    return 1 / (1 + math.pi / 8 * variance.clamp_min(0)).sqrt()


def entropy_of(probs: Tensor) -> Tensor:  # (..., C) -> (...)
    return entropy_terms(probs).sum(-1)


def class_covariance(prediction: Prediction, index: int) -> Tensor:  # -> (C, C)
    """Return E[Cov(y | f)] of the indicators of classes, which exclude each other, for one example."""
    assert prediction.samples is not None
    probs = prediction.samples[:, index].double()  # (M, C)
    return probs.mean(0).diag() - probs.T @ probs / len(probs)


def _prediction(
    probs: Tensor, epistemic: Tensor, information: Tensor, plain: Tensor, drawn: Tensor | None, yes_no: bool
) -> Prediction:
    variance, entropy = probs * (1 - probs), entropy_of(probs)
    # the draws' share cannot be more than all there is; where the probabilities come from elsewhere it may seem so
    epistemic, information = torch.minimum(epistemic, variance), torch.minimum(information, entropy)
    aleatoric = variance - epistemic
    answers = slice(1, 2) if yes_no else slice(None)
    flat = (part[..., answers].flatten(-2) for part in (probs, epistemic, aleatoric))
    flat_probs, flat_epistemic, flat_aleatoric = flat
    return Prediction(
        epistemic=flat_epistemic,
        aleatoric=flat_aleatoric,
        entropy=entropy.sum(1),
        mutual_information=information.sum(1),
        plain=plain,
        probs=flat_probs,
        samples=None if drawn is None else drawn[..., answers].flatten(-2),
        max_entropy=probs.shape[1] * math.log(probs.shape[2]),
    )
