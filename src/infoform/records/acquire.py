"""`acquire.json`: the inputs to label next."""

from dataclasses import dataclass, field

from infoform.common.json_values import LEFT_OUT


@dataclass(frozen=True)
class AcquireResult:
    """What `infoform acquire` chose, the first choice first."""

    chosen: list[int]  # positions in the pool
    examples: list[str]  # their names
    by: str  # the score
    scores: list[float] | None = field(default=None, metadata=LEFT_OUT)  # less what the labels before would tell
    answers: list[str] | None = field(default=None, metadata=LEFT_OUT)  # predicted classes or numbers
    reasons: list[str] | None = field(default=None, metadata=LEFT_OUT)
