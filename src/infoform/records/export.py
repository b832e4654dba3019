"""`export.json`: a file for another runtime, and how it compares with PyTorch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ExportResult:
    """What `infoform export` wrote."""

    file: str
    to: str  # its format
    kind: str  # form of the posterior
    outputs: list[str]
    bytes: int
    seconds_per_example: float
    plain_seconds_per_example: float  # of the network alone in PyTorch
    differences: dict[str, float]  # to PyTorch, by output
    fingerprint: str
