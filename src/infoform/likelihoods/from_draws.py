"""What follows from a likelihood's density and sampler alone, over M draws of the outputs: moments, entropies, scores.

p(y | x) = 1/M Σ_m p(y | f_m)          Var y = Var_m E[y | f_m] + E_m Var[y | f_m]
H = −E_y log p(y | x),                 I = E_m E_{y | f_m} [log p(y | f_m) − log p(y | x)] ≥ 0
"""

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from infoform import metrics
from infoform.prediction import Prediction

if TYPE_CHECKING:
    from infoform.likelihoods.base import Likelihood

POINTS = 256  # of the sampler, for moments
TARGETS = 32  # drawn for entropies
BLOCK = 2**22  # numbers of outputs that a density takes at a time


def predict_numbers(likelihood: "Likelihood", samples: Tensor, plain: Tensor) -> Prediction:
    """Return the prediction of numbers whose moments the likelihood tells.

    Args:
        likelihood: what the outputs are for.
        samples: drawn outputs, (M, N, C).
        plain: outputs of the trained network, (N, C).
    """
    means, variances = (one.unflatten(0, samples.shape[:2]) for one in likelihood.moments(samples.flatten(0, 1)))
    entropy, information = entropies(likelihood, samples)
    return Prediction(
        epistemic=means.var(0, correction=0),
        aleatoric=variances.mean(0),
        entropy=entropy,
        mutual_information=information,
        plain=plain,
        mean=means.mean(0),
        samples=means,
        draws=samples,
    )


def moments_by_sampler(likelihood: "Likelihood", outputs: Tensor) -> tuple[Tensor, Tensor]:  # (N, C) -> (N, K) twice
    """Return mean and variance of targets by evenly spread draws of them, the same for all examples."""
    total = squares = None
    for uniforms in _spread_out(POINTS, likelihood.noise_width(outputs.shape[1])):
        drawn = likelihood.sample_targets(outputs, uniforms.to(outputs.device).expand(len(outputs), -1)).to(outputs)
        drawn = drawn if drawn.dim() > 1 else drawn.unsqueeze(1)
        total = drawn if total is None else total + drawn
        squares = drawn.square() if squares is None else squares + drawn.square()
    assert total is not None
    assert squares is not None
    mean = total / POINTS
    return mean, (squares / POINTS - mean.square()).clamp_min(0)


def entropies(likelihood: "Likelihood", samples: Tensor) -> tuple[Tensor, Tensor]:  # (M, N, C) -> (N,), (N,)
    """Return the entropy of the targets of every example, and what of it comes from not knowing the outputs."""
    entropy, information = samples.new_zeros(samples.shape[1]), samples.new_zeros(samples.shape[1])
    networks = torch.linspace(0, len(samples) - 1, TARGETS).round().long().tolist()
    for network, uniforms in zip(networks, _spread_out(TARGETS, likelihood.noise_width(samples.shape[2])), strict=True):
        own = samples[network]
        targets = likelihood.sample_targets(own, uniforms.to(own.device).expand(len(own), -1))
        mixed = _mean_density(likelihood, samples, targets)
        entropy -= mixed / TARGETS
        information += (likelihood.log_prob(own, targets) - mixed) / TARGETS
    return entropy, information.clamp_min(0)


def log_density(likelihood: "Likelihood", prediction: Prediction, targets: Tensor) -> Tensor:  # -> (N,)
    """Return the log of the mean density of the targets over the draws that a prediction has kept."""
    if prediction.draws is None:
        raise ValueError(
            f"the density of the {likelihood.name} likelihood needs the draws of the outputs, and this prediction has "
            "none; give `draws=samples` where from_samples makes it."
        )
    draws = prediction.draws
    return _mean_density(likelihood, draws, targets.to(draws.device))


def scores(likelihood: "Likelihood", prediction: Prediction, targets: Tensor) -> dict[str, float]:
    """Return the measures of the prediction's answer, with the NLL of the likelihood's own density."""
    prediction, targets = metrics.as_rows(prediction, targets)
    found = metrics.evaluate(prediction, targets) if _is_finite(prediction) else {}  # exp f may overflow
    if prediction.draws is None:
        return found
    checked = likelihood.check_targets(targets, prediction.plain)
    mean = float(likelihood.log_density(prediction, checked).double().mean())
    return found | ({} if prediction.probs is not None else {"log_likelihood": mean}) | {"nll": -mean}


def _is_finite(prediction: Prediction) -> bool:
    return bool(prediction.value.isfinite().all() and prediction.variance.isfinite().all())


def _mean_density(likelihood: "Likelihood", samples: Tensor, targets: Tensor) -> Tensor:  # (M, N, C) -> (N,)
    """Return log 1/M Σ_m p(y | f_m), some networks at a time."""
    step = max(1, BLOCK // max(1, samples[0].numel()))
    found = [
        likelihood.log_prob(part.flatten(0, 1), _repeated(targets, len(part))).unflatten(0, part.shape[:2])
        for part in samples.split(step)
    ]
    return torch.cat(found).logsumexp(0) - math.log(len(samples))


def _repeated(targets: Tensor, times: int) -> Tensor:
    return targets.unsqueeze(0).expand(times, *targets.shape).flatten(0, 1)


def _spread_out(count: int, width: int) -> Tensor:  # (count, width)
    """Return points that fill the unit cube evenly, none on its faces."""
    if width == 1:
        return ((torch.arange(count, dtype=torch.float64) + 0.5) / count).unsqueeze(1)
    points: Tensor = SobolEngine(width, scramble=True, seed=0).draw(count, dtype=torch.float64)
    return points.clamp(1e-9, 1 - 1e-9)
