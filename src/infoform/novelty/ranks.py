"""How many eigenpairs novelty keeps of each layer, so that all of it takes few bytes beside the posterior."""

from collections.abc import Mapping
from dataclasses import dataclass

from infoform.novelty.percentiles import LEVELS
from infoform.novelty.sparse_gaussian import RANK

SHARE = 0.05  # of the posterior's bytes
LIKELY = 0.7  # of the most that a posterior can take, where its bytes depend on the data
LEAST_RANK = 2  # of every layer, also where the posterior is small
MANY_CLASSES = 64  # above which their means get half of what is left: of too few directions they all look alike
HEAD_RANK = 64  # of the classes' covariance, at most
FIXED = 8  # bytes a column: mean and deviation
TABLE = 4 * (LEVELS + 4)  # bytes a layer or part: its percentiles


@dataclass(frozen=True)
class Ranks:
    """How many eigenpairs, and directions of class means, are kept."""

    layers: int
    head: int
    classes: int


def choose_ranks(columns: Mapping[str, int], *, head_columns: int, classes: int, budget: int) -> Ranks:
    """Return the most that a budget of bytes holds: half of what is left for the head, more of many classes.

    Args:
        columns: Pooled inputs D of each layer.
        head_columns: Those of the head.
        classes: Number of classes; 1 where there are no labels.
        budget: Bytes.
    """
    fixed = FIXED * (sum(columns.values()) + head_columns) + TABLE * (len(columns) + 5) + 8 * classes
    left = max(0, budget - fixed)
    directions, head = 0, min(HEAD_RANK, head_columns)
    if classes > 1:
        share = left // 2 if classes > MANY_CLASSES else left // 4
        directions = min(classes - 1, head_columns, max(LEAST_RANK, share // (2 * (classes + head_columns))))
    head = min(head, max(LEAST_RANK, left // 4 // (head_columns + 4)))
    left -= 2 * directions * (classes + head_columns) + head * (head_columns + 4)
    rank = min(RANK, max(LEAST_RANK, left // max(1, sum(columns.values()) + 4 * len(columns))))
    return Ranks(rank, head, directions)
