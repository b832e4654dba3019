"""The name of the layer that `layers="last"` means, found from the first batch of a loader."""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from torch import nn

from infoform.common.processes import Processes
from infoform.common.randomness import isolated
from infoform.likelihoods import Likelihood
from infoform.network.batches import batch_size, device_of, read_batch
from infoform.network.last_layer import trace_last_layer


def find_last_layer(
    model: nn.Module, likelihood: Likelihood, loader: Iterable[Any], *, seed: int
) -> tuple[str, Iterable[Any]]:
    """Find the last layer, and return its name with a loader that gives all of the data.

    Args:
        model: The network.
        likelihood: What its outputs are for.
        loader: The data; of an iterator, the batches that were read are put before the others.
        seed: Of the random numbers that a shuffling loader draws.

    Raises:
        ValueError: If the network has no such layer, or no process has an example.
    """
    processes = Processes.running()
    with processes.together():
        found, read = None, []
        with isolated(seed, loader=loader):
            for raw in loader:
                read.append(raw)
                batch = read_batch(raw, device_of(model))
                if batch_size(batch):
                    found = trace_last_layer(model, batch, likelihood.arrange_outputs)
                    break
        names = [one for one in processes.gather(found) if one is not None]
        if not names:
            raise ValueError(
                "the loader gave no examples; a fit needs at least one batch (was the loader read before?)."
            )
        if len(set(names)) > 1:
            raise ValueError(f"layers='last' must be one layer in all processes, got {sorted(set(names))}; name it.")
    return names[0], chain(read, loader) if isinstance(loader, Iterator) else loader
