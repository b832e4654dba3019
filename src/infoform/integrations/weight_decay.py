"""The weight decay of a small regression network, by cross-validation: as flexible as the data can bear, no more.

A network that is free to fit the noise of a small table is worse than a straight line. Its posterior cannot mend that:
the mean is off, not its spread.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

CANDIDATES = (1e-4, 0.3, 3.0)  # from free to nearly linear
SMALL = 2000  # examples: with more, one part held out tells enough
FOLDS = 5


def choose_weight_decay(
    trained: Callable[[Tensor, float], nn.Module],
    x: Tensor,  # (N, A)
    y: Tensor,  # (N, C)
    *,
    generator: torch.Generator,
) -> float:
    """Return the largest candidate whose networks are as good on held-out examples as the best, within three errors.

    Among candidates that the data cannot tell apart, the one that is nearest to a straight line is the safest.

    Args:
        trained: trains a network on the examples at these positions, with this weight decay.
        x: all inputs.
        y: all targets.
        generator: of the order in which examples are held out.
    """
    if len(x) < 2 * FOLDS:
        return CANDIDATES[-1]
    folds = torch.randperm(len(x), generator=generator).chunk(FOLDS)
    used = folds if len(x) <= SMALL else folds[:1]
    errors = torch.zeros(len(CANDIDATES), len(x), dtype=torch.float64)
    for place, candidate in enumerate(CANDIDATES):
        for held in used:
            learned = torch.ones(len(x), dtype=torch.bool)
            learned[held] = False
            network = trained(learned.nonzero()[:, 0], candidate)
            with torch.no_grad():
                errors[place, held] = (network(x[held]) - y[held]).square().sum(1)
    errors = errors[:, torch.cat(used)]
    worse = errors - errors[errors.mean(1).argmin()]  # example by example
    close = worse.mean(1) <= 3 * worse.std(1) / worse.shape[1] ** 0.5
    return max(candidate for candidate, near in zip(CANDIDATES, close.tolist(), strict=True) if near)
