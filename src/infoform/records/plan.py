"""`plan.json`: what a posterior costs before a fit, or how a memory budget is spent after it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PlannedLayer:
    """One layer's share of a plan."""

    name: str
    shape: tuple[int, int]  # (G, A)
    rank: int | None
    nbytes: int
    statistics_bytes: int
    energy: float | None
    kept: float | None


@dataclass(frozen=True)
class PlanResult:
    """What `infoform plan` found; the fields of `infoform.Plan`, and what it concludes from them."""

    structure: str
    layers: list[PlannedLayer]
    fitted: bool
    exact: bool
    budget: int | None
    statistics_bytes: int
    peak_bytes: int | None
    cost: float | None
    eigen_examples: float | None
    available_bytes: int | None
    notes: list[str]
    groups: list[list[str]]
    total_bytes: int
    kept: float | None
    fits: bool | None
