"""Normal numbers whose mean is 0 and, where there are enough of them, whose covariance is I: exactly, not on average.

Draws from Gaussian logits share these numbers over all examples. A mean that is a little off 0 moves the logits of all
examples by that share of their standard deviations, to the same side, and the mean of a softmax with them. Opposite
pairs have no such part, and errors are then of the second order in the standard deviation.
"""

import torch
from torch import Tensor

ENOUGH = 4  # draws for each number of a draw, from which their covariance is made I
FEWEST = 4  # draws that are balanced at all


def balanced_normal(count: int, width: int, *, seed: int) -> Tensor:  # -> (M, W)
    """Draw standard normal numbers.

    Args:
        count: number M of draws; they come in opposite pairs if it is even.
        width: numbers W of each draw.
        seed: seed of the draws.

    Returns:
        The draws in float32, (M, W); below four draws, plain normal numbers.

    Example:
        ```python
        from infoform.likelihoods.balanced_noise import balanced_normal
        noise = balanced_normal(100, 10, seed=0)
        assert noise.mean(0).abs().max() < 1e-6
        ```
    """
    generator = torch.Generator().manual_seed(seed)
    if count < FEWEST:
        return torch.randn(count, width, generator=generator)
    if count % 2:
        noise = torch.randn(count, width, generator=generator, dtype=torch.float64)
        noise -= noise.mean(0)
    else:
        half = torch.randn(count // 2, width, generator=generator, dtype=torch.float64)
        noise = torch.cat([half, -half])
    if count >= ENOUGH * width:
        root = torch.linalg.cholesky(noise.T @ noise / count)
        noise = torch.linalg.solve_triangular(root, noise.T, upper=False).T
    return noise.float()
