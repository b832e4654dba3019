"""Many small pieces of work side by side, one thread each.

A matrix product of a small layer cannot keep several threads busy, and waking them takes longer than it does.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


def side_by_side(work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Return what `work` gives for each item, in their order; within it torch uses one thread."""
    threads = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return list(pool.map(work, items))
    finally:
        torch.set_num_threads(threads)  # each thread has its own number, but new ones begin with the last one set
