"""Statistics for which a part of the examples is enough: which examples count, and with which weight."""

import torch
from torch import Tensor

STRIDE = 8  # one example in so many counts, and stands for its neighbours,
WHOLE_RESIDUAL = 64  # after so many first examples that all count: for the residual of a truncated basis
WHOLE_INPUTS = 16  # the same for the inputs that the activation prior looks at


def subsample_weights(numbers: range | Tensor, *, whole: int) -> Tensor:  # (N,)
    """Return the weight of each example; the examples left out have weight zero, and others make up for them.

    The weights depend on an example's number alone, so neither the batch size nor an update changes them.

    Args:
        numbers: The numbers of the examples.
        whole: How many first examples all count.
    """
    numbers = as_tensor(numbers) if isinstance(numbers, range) else numbers
    weights = (numbers % STRIDE == 0).double() * STRIDE
    return weights.masked_fill_(numbers < whole, 1.0)


def as_tensor(numbers: range) -> Tensor:  # (N,)
    """Return the numbers of examples that follow each other."""
    return torch.arange(numbers.start, numbers.stop, numbers.step)
