"""`acquire.json`: the inputs to label next."""

from dataclasses import dataclass


@dataclass(frozen=True)
class AcquireResult:
    """What `infoform acquire` chose, the first choice first."""

    chosen: list[int]  # positions in the pool
    examples: list[str]  # their names
    by: str  # the score
