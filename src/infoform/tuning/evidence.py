"""Laplace's log marginal likelihood: how well prior and data agree, from the curvature alone.

    log p(D) ≈ Σ_n log p(y_n | θ*) − ½ (θ*ᵀ Q₀ θ* + log det P − log det Q₀)       MacKay 1992

Q₀ is the part of the prior's precision that is centred at zero: all of it, but τ I alone of the activation prior's.
Layers are independent, so it is a sum over them; with one τ a layer each is a problem of its own in one number.
"""

from collections.abc import Callable, Mapping

from infoform.network.layer import Layer
from infoform.posteriors import LayerPosterior
from infoform.posteriors.network_posterior import Posterior

GOLDEN = 0.381966


def layer_log_evidence(posterior: LayerPosterior, layer: Layer) -> float:
    """Return what one layer takes off the log-likelihood: −½ (θ*ᵀ Q₀ θ* + log det P − log det Q₀)."""
    rows, columns = posterior.shape
    prior = posterior.prior.around_zero
    return -0.5 * float(prior.quadratic_form(layer.mean) + posterior.log_det() - rows * prior.log_det(columns))


def log_evidence(log_likelihood: float, posterior: Posterior, layers: Mapping[str, Layer]) -> float:
    """Return the log marginal likelihood of the data under this posterior's prior."""
    return log_likelihood + sum(layer_log_evidence(one, layers[name]) for name, one in posterior.layers.items())


def maximise(
    function: Callable[[float], float], low: float, high: float, *, grid: int = 7, tolerance: float = 1e-2
) -> tuple[float, float]:
    """Return where a function of one number is largest, and its value there.

    A grid finds the hill, Brent's parabolas and golden sections its top; no gradient is needed, which for the
    information form would cost a second Gram matrix a step.
    """
    points = [low + (high - low) * index / (grid - 1) for index in range(grid)]
    values = [function(point) for point in points]
    best = max(range(grid), key=values.__getitem__)
    a, b = points[max(0, best - 1)], points[min(grid - 1, best + 1)]
    x = w = v = points[best]
    fx = fw = fv = values[best]
    step = before = b - a
    while max(x - a, b - x) > tolerance:
        middle = (a + b) / 2
        r, q = (x - w) * (fx - fv), (x - v) * (fx - fw)
        p, q = (x - v) * q - (x - w) * r, 2 * (q - r)
        p, q = (-p, q) if q > 0 else (p, -q)
        if q and abs(p) < abs(q * before / 2) and q * (a - x) < p < q * (b - x):
            before, step = step, p / q
        else:
            before = (b - x) if x < middle else (a - x)
            step = GOLDEN * before
        if abs(step) < tolerance / 3:  # closer than this two values tell nothing of each other
            step = tolerance / 3 if x < middle else -tolerance / 3
        u = min(max(x + step, a), b)
        fu = function(u)
        if fu >= fx:
            a, b = (x, b) if u >= x else (a, x)
            v, fv, w, fw, x, fx = w, fw, x, fx, u, fu
        else:
            a, b = (u, b) if u < x else (a, u)
            if fu >= fw or w == x:
                v, fv, w, fw = w, fw, u, fu
            elif fu >= fv or v in (x, w):
                v, fv = u, fu
    return x, fx
