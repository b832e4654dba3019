"""Where a part of the examples tells enough: which of them count, and for how much."""

import torch
from torch import Tensor

STRIDE = 8  # where a part of the data tells enough, one example in so many stands for its neighbours,
WHOLE_RESIDUAL = 64  # after so many that are all taken: for the residual of a truncated basis
WHOLE_INPUTS = 16  # and for the inputs that the activation prior looks at


def subsample_weights(numbers: range | Tensor, *, whole: int) -> Tensor:  # (N,)
    """Return how much each example counts where a part of them is enough: those left out are made up for by others.

    The weights depend on an example's number alone, so neither the batch size nor an update changes them.
    """
    numbers = as_tensor(numbers) if isinstance(numbers, range) else numbers
    weights = (numbers % STRIDE == 0).double() * STRIDE
    return weights.masked_fill_(numbers < whole, 1.0)


def as_tensor(numbers: range) -> Tensor:  # (N,)
    """Return the numbers of examples that follow each other."""
    return torch.arange(numbers.start, numbers.stop, numbers.step)
