"""One function of weights, called for several sets of weights: together by `torch.vmap`, or one by one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

VMAP_WEIGHTS = 50_000  # networks up to this size are run together: their cost is in the calls, not the numbers


@dataclass
class VmapOrLoop:
    """Runs sets of weights together where vmap allows it; where it once did not, it is not tried again."""

    together: bool = True

    def __call__(self, run: Callable[[dict[str, Tensor]], Tensor], weights: Mapping[str, Tensor], count: int) -> Tensor:
        """Return `run` of every set of weights, stacked."""
        if count > 1 and self.together:
            try:
                outputs: Tensor = torch.vmap(run)(dict(weights))
                return outputs
            except RuntimeError:  # vmap has no rule for branches on values or for results written in place
                self.together = False
        return torch.stack([run({name: value[index] for name, value in weights.items()}) for index in range(count)])


def vmap_or_loop(run: Callable[[dict[str, Tensor]], Tensor], weights: Mapping[str, Tensor], count: int) -> Tensor:
    """Return `run` of every set of weights, stacked; computed together where there are several and vmap allows it."""
    return VmapOrLoop()(run, weights, count)
