"""`fit.json` and `update.json`: the posterior that was fitted, what it costs, and how data are read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from infoform.common.json_values import LEFT_OUT, OTHERS

Precision = float | Mapping[str, float]  # one prior precision τ, or one for each layer


@dataclass(frozen=True)
class NetworkSource:
    """Where the network comes from."""

    model: str  # "/home/me/model.py:net" or "package.module:net"
    weights: str | None
    arguments: Mapping[str, Any]  # for the factory
    signature: str | None = field(default=None, metadata=LEFT_OUT)  # by the key of the user who made the run


@dataclass(frozen=True)
class DataFacts:
    """What later data must match; a kind of data may have facts of its own besides."""

    classes: list[str] | None = field(default=None, metadata=LEFT_OUT)
    columns: list[str] | None = field(default=None, metadata=LEFT_OUT)
    targets: list[str] | None = field(default=None, metadata=LEFT_OUT)  # names of the predicted numbers or labels
    more: Mapping[str, Any] = field(default_factory=dict, metadata=OTHERS)


@dataclass(frozen=True)
class DataSource:
    """The data of the fit, and what later data must match."""

    source: str
    facts: DataFacts
    digests: tuple[str, ...] | None = field(default=None, metadata=LEFT_OUT)  # of all data in it, of updates last
    samples: tuple[str, ...] | None = field(default=None, metadata=LEFT_OUT)  # hashes of some examples of each


@dataclass(frozen=True)
class PosteriorSettings:
    """What `infoform.Laplace` was told; the report shows two of the settings, people may read the others."""

    structure: str
    rank: int | float | Mapping[str, int] | str | None  # a text: chosen by layer, by a plan that was applied
    more: Mapping[str, Any] = field(default_factory=dict, metadata=OTHERS)


@dataclass(frozen=True)
class Spectrum:
    """A layer's eigenvalues at some ranks, the strongest first."""

    rank: list[int]
    eigenvalue: list[float]
    kept: list[float]  # share of the information that so many directions keep
    nbytes: list[int] | None  # that so many directions take; None where the structure has no rank


@dataclass(frozen=True)
class FittedLayer:
    """One layer's share of the posterior."""

    name: str
    shape: tuple[int, int]  # (G, A)
    rank: int | None
    nbytes: int
    statistics_bytes: int
    energy: float | None
    kept: float | None
    spectrum: Spectrum | None = None


@dataclass(frozen=True)
class ByRank:
    """What one rank for all layers would keep and take."""

    rank: list[int]
    kept: list[float]
    nbytes: list[int]


@dataclass(frozen=True)
class StructureBytes:
    """What the posterior takes in one structure."""

    structure: str
    bytes: int
    exact: bool  # or the most that it can be
    own: bool  # whether this is the run's own structure


@dataclass(frozen=True)
class CoveredParameter:
    """One parameter of the network: with a posterior, or held fixed for a reason."""

    parameter: str
    shape: tuple[int, ...]
    layer: str | None
    structure: str | None  # None: held fixed
    reason: str


@dataclass(frozen=True)
class FitResult:
    """What `infoform fit` found."""

    model: NetworkSource
    data: DataSource
    likelihood: str
    settings: PosteriorSettings
    prior: str
    prior_precision: Precision
    num_data: float
    noise: float | None
    total_bytes: int
    kept: float | None
    layers: list[FittedLayer]
    weight_bytes: int | None = None  # of the network itself
    by_rank: ByRank | None = None
    structures: tuple[StructureBytes, ...] = ()
    coverage: tuple[CoveredParameter, ...] = ()
    training_scores: Mapping[str, float | None] | None = field(default=None, metadata=LEFT_OUT)  # of the network alone
