"""`tune.json`: the prior precision that was chosen, and every value that was tried."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from infoform.common.json_values import LEFT_OUT
from infoform.records.fit import Precision


@dataclass(frozen=True)
class TriedPair:
    """One pair (N, τ) of a search and its scores on validation data; None for a score that was not finite."""

    num_data: float
    prior_precision: float
    scores: Mapping[str, float | None]
    temperature: float | None = field(default=None, metadata=LEFT_OUT)  # T at which it scored so, where searched


@dataclass(frozen=True)
class TuneResult:
    """What `infoform tune` found."""

    method: str  # "search" or "evidence"
    objective: str | None  # the score that a search makes least; None by evidence
    prior_precision: Precision
    prior_precision_before: Precision
    num_data: float
    noise: float | None
    trials: list[TriedPair]
    temperature: float | None = field(default=None, metadata=LEFT_OUT)  # T of predictions, where it was searched
    plain_temperature: float | None = field(default=None, metadata=LEFT_OUT)  # best for the network alone

    @property
    def searched(self) -> bool:
        """Tell whether τ was chosen by trials on validation data."""
        return self.objective is not None
