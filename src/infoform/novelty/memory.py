"""The memory that novelty takes in a fit: the sums of all layers' moments, and the examples left out of them."""

from collections.abc import Mapping

from infoform.novelty.left_out import most_left_out
from infoform.novelty.moments import moment_bytes


def novelty_memory(columns: Mapping[str, int], *, outputs: int, itemsize: int = 4) -> int:
    """Return about the most bytes that a fit holds for novelty.

    Args:
        columns: Pooled inputs D of each layer, in the order of their calls; the last one is taken for the head.
        outputs: Number C of outputs, each of which may be a class with a mean of its own.
        itemsize: Bytes of one activation.
    """
    if not columns:
        return 0
    sums = sum(map(moment_bytes, columns.values())) + moment_bytes(list(columns.values())[-1], classes=outputs)
    each = itemsize * (sum(columns.values()) + outputs) + 16  # rows and outputs, number and label
    return sums + each * most_left_out(each)
