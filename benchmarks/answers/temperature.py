"""Temperature scaling (Guo et al. 2017) in a few lines: what everyone does today, and what ours is held to."""

import torch
from torch import Tensor
from torch.nn import functional


def best_temperature(logits: Tensor, labels: Tensor, steps: int = 100) -> float:  # (N, C), (N,)
    """Return the T with the least NLL of softmax(logits / T), by Newton's method in 1/T, in which the NLL is convex."""
    f, inverse = logits.double(), torch.tensor(1.0, dtype=torch.float64)
    of_label = f.gather(1, labels[:, None])[:, 0]
    for _ in range(steps):
        probs = (inverse * f).softmax(1)
        mean = (probs * f).sum(1)
        slope, curvature = (mean - of_label).mean(), ((probs * f.square()).sum(1) - mean.square()).mean()
        step = -slope / curvature.clamp_min(1e-12)
        inverse = (inverse + step).clamp(inverse / 2, 2 * inverse)  # never across zero
        if abs(float(step)) < 1e-9:
            break
    return float(1 / inverse)


def nll(logits: Tensor, labels: Tensor, temperature: float) -> float:
    """Return the mean NLL of softmax(logits / T)."""
    return float(functional.cross_entropy(logits.double() / temperature, labels))
