"""A structure and its options: what it needs of a fit, how a layer is built in it, and what that will take.

A structure is a frozen dataclass whose fields are its options, so that `structure="inf"` and `structure=Inf(rank=100)`
say the same. It knows everything about itself; planner, facade and files ask it and never look at its name.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from typing_extensions import Self

from infoform.common.checks import check_whole
from infoform.curvature.curvature import Curvature
from infoform.curvature.dimensions import Dimensions
from infoform.curvature.request import StatisticsRequest
from infoform.likelihoods import Likelihood
from infoform.posteriors.base import LayerPosterior
from infoform.priors import LayerPrior

STORAGES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "uint8": torch.uint8}
Rank = int | float | Mapping[str, int]


class Structure(ABC):
    """The form of every layer's posterior, with its options.

    To add one, write a frozen dataclass with these methods and a `LayerPosterior` that it builds; pass an object of it
    as `Laplace(..., structure=...)`, or add a line to `STRUCTURES` so that its name will do.

    Attributes:
        name: Name in `infoform.posteriors.STRUCTURES` and in saved files.
        posterior: What `build` returns, and what a file is read back as.
        preset: Name of the set of options that the object was made from, if any.

    Example:
        ```python
        structure = infoform.Inf(rank=200).with_options(storage="bfloat16")
        assert structure.options()["rank"] == 200
        ```
    """

    name: ClassVar[str]
    posterior: ClassVar[type[LayerPosterior]]  # what `build` returns, and what a file is read back as
    preset: str = ""  # the name of the set of options that this object was made from, if any

    @property
    def warning(self) -> str:
        """Return what a user should know before a fit, if anything; `Laplace` warns of it."""
        return ""

    @abstractmethod
    def statistics(self) -> StatisticsRequest:
        """Return the statistics that `build` needs a fit to collect.

        Returns:
            A request, as the fitting room takes it.
        """

    def request(self, shapes: Mapping[str, tuple[int, int]]) -> StatisticsRequest:
        """Return the statistics that a fit of these layers collects: the same of all, if the structure knows no better.

        Args:
            shapes: (G, A) by layer.

        Returns:
            A request, as the fitting room takes it.
        """
        return self.statistics()

    def of_layer(self, name: str, shape: tuple[int, int]) -> "Structure":
        """Return the structure that a layer has: this one, but for structures that differ by layer.

        Args:
            name: The layer's name.
            shape: Its (G, A).

        Returns:
            A structure whose `build` and `posterior` are the layer's.
        """
        return self

    @property
    def has_ranks(self) -> bool:
        """Whether a budget of bytes can choose how much of the layers is kept."""
        return False

    def with_layer_ranks(self, ranks: Mapping[str, int]) -> "Structure":
        """Return the same structure with these ranks.

        Args:
            ranks: By layer.

        Returns:
            A structure; of one that has no ranks, itself.
        """
        return self

    @abstractmethod
    def build(self, curvature: Curvature, *, prior: LayerPrior, num_data: float) -> LayerPosterior:
        """Return the posterior of one layer.

        Args:
            curvature: What the fit measured of the layer.
            prior: The prior precision of the layer.
            num_data: N, the number of examples that the posterior stands for.

        Returns:
            A `LayerPosterior`.

        Raises:
            ValueError: If the fit did not collect what this structure needs.
        """

    @abstractmethod
    def planned_bytes(self, size: Dimensions, *, layer: str) -> int:
        """Return the bytes of a layer's posterior before a fit, without the prior's.

        Args:
            size: The sizes of the layer.
            layer: Its name.

        Returns:
            What it takes, or the most that it can take: `planned_exactly` says which.
        """

    @property
    def planned_exactly(self) -> bool:
        """Whether `planned_bytes` is what the posterior will take, or the most it can."""
        return True

    def check_layers(self, shapes: Mapping[str, tuple[int, int]], *, block_limit: int) -> None:  # noqa: B027
        """Raise a ValueError if a layer cannot have this structure; most structures take any.

        Args:
            shapes: (G, A) by layer.
            block_limit: Weights of the largest layer whose exact block may be kept.
        """

    def default_prior(self, likelihood: Likelihood) -> str:
        """Return the name of the prior where a user names none.

        Args:
            likelihood: Of the network.

        Returns:
            A name in `infoform.priors.PRIORS`; the paper's, if the structure knows no better.
        """
        return "isotropic"

    @property
    def label(self) -> str:
        """Return the name that a user would give: that of the preset, or of the structure."""
        return self.preset or self.name

    @classmethod
    def option_names(cls) -> tuple[str, ...]:
        """Return the names of all options.

        Returns:
            The names of the fields.
        """
        return tuple(one.name for one in fields(cls) if one.name != "preset")  # type: ignore[arg-type]

    def options(self) -> dict[str, Any]:
        """Return all options.

        Returns:
            Values by name, as JSON can hold them.
        """
        return {name: getattr(self, name) for name in self.option_names()}

    def with_options(self, **options: Any) -> Self:
        """Return the same structure with some options changed.

        Args:
            options: New values by name.

        Returns:
            A new object.

        Raises:
            TypeError: If there is no such option; it names those that there are.
        """
        takes = self.option_names()
        for name in options:
            if name not in takes:
                listed = ", ".join(takes) or "none"
                raise TypeError(f"structure {self.label!r} takes the options {listed}, got {name!r}.")
        return replace(self, **options)  # type: ignore[type-var]


class RankedStructure(Structure):
    """A structure that keeps some eigenpairs of a layer, so that a budget of bytes can choose how many."""

    rank: Rank
    basis: str

    @property
    def has_ranks(self) -> bool:
        return True

    def with_layer_ranks(self, ranks: Mapping[str, int]) -> "RankedStructure":
        return self.with_options(rank=dict(ranks))

    @abstractmethod
    def rank_curve(self, curvature: Curvature, *, max_rank: int) -> "RankCurve":
        """Return bytes and kept energy of the ranks of one layer.

        Args:
            curvature: What the fit measured of the layer.
            max_rank: The largest rank that is looked at.

        Returns:
            One entry for each rank from 1 on.
        """

    def rank_of(self, layer: str, *, weights: int, available: int) -> int:
        """Return how many eigenpairs one layer keeps.

        Args:
            layer: Its name.
            weights: How many weights it has.
            available: How many eigenpairs it has.

        Returns:
            No more than it has, unless a number was given for it by name.
        """
        if isinstance(self.rank, Mapping):
            if layer not in self.rank:
                raise ValueError(f"rank must have a value for each layer, got none for '{layer}'; add it.")
            return self.rank[layer]
        rank = max(1, round(self.rank * weights)) if isinstance(self.rank, float) else self.rank
        return min(available, rank)

    def planned_rank(self, size: Dimensions, *, layer: str) -> int:
        """Return how many eigenpairs one layer will keep.

        Args:
            size: The sizes of the layer.
            layer: Its name.

        Returns:
            A number, no larger than the layer can have.
        """
        return min(size.pairs, self.rank_of(layer, weights=size.weights, available=size.pairs))


@dataclass(frozen=True, eq=False)
class RankCurve:
    """Bytes and kept energy of the ranks 1, 2, ... of one layer."""

    nbytes: Tensor  # (ranks,), not decreasing
    energy: Tensor  # (ranks,), not decreasing: Σ Λ_T
    total: float  # Σ Λ, what a truncated basis leaves out included


def check_rank(rank: object) -> None:
    """Raise a ValueError unless the rank is a number of eigenpairs, a share of them, or given by layer."""
    if isinstance(rank, Mapping):
        for value in rank.values():
            check_whole("rank", value)
    elif isinstance(rank, float):
        if not 0 < rank <= 1:
            raise ValueError(f"rank as a share of a layer's weights must be above 0 and at most 1, got {rank}.")
    else:
        check_whole("rank", rank)


def diagonal_bytes(size: Dimensions, storage: str | None) -> int:
    """Return the bytes of one number for every weight, stored so."""
    dtype = size.dtype if storage is None else STORAGES[storage]
    return size.weights * dtype.itemsize + (2 * torch.float64.itemsize if dtype == torch.uint8 else 0)
