"""What the verbs without a run of their own print with `--json`: `report`, `bench`, and `reproduce` without a name."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class ReportResult:
    """The page that `infoform report` wrote."""

    page: str
    bytes: int
    runs: list[str]


@dataclass(frozen=True)
class BenchResult:
    """The command that `infoform bench` ran, and the folder of the clone."""

    command: list[str]
    folder: str


@dataclass(frozen=True)
class ExperimentList:
    """The experiments that `infoform reproduce` knows: name and summary."""

    experiments: Mapping[str, str]
