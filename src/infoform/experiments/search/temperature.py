"""Temperature scaling: logits over one number, that of the least NLL on held-out data; Guo et al. 2017."""

import torch
from torch import Tensor

LARGEST = 20.0  # and the smallest is its inverse: where all held-out answers are right, no NLL is the least


def find_temperature(logits: Tensor, targets: Tensor, *, steps: int = 50) -> float:  # (N, C), (N,)
    """Find the temperature of the least NLL: the minimum of a convex function of its inverse, by Newton steps.

    Args:
        logits: of held-out examples, (N, C).
        targets: their classes, (N,).
        steps: at most so many.

    Returns:
        The temperature, between 1 / 20 and 20.

    Example:
        >>> logits, targets = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 0, 1])
        >>> round(find_temperature(logits, targets), 4)  # 1 / log 2: two of three are right
        1.4427
    """
    logits = logits.double()
    inverse = 1.0
    for _ in range(steps):
        probs = (inverse * logits).softmax(-1)
        mean = (probs * logits).sum(-1)
        slope = float((mean - logits.gather(1, targets[:, None])[:, 0]).mean())
        curvature = float(((probs * logits**2).sum(-1) - mean**2).mean())
        step = slope / max(curvature, torch.finfo(torch.float64).tiny)
        before, inverse = inverse, min(max(inverse - step, inverse / 2), inverse * 2)  # a step may be too long
        inverse = min(max(inverse, 1 / LARGEST), LARGEST)
        if abs(inverse - before) <= 1e-10 * before:
            break
    return 1 / inverse
