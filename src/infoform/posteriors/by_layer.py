"""Another structure for each layer: patterns of names, of which the first that matches a layer counts.

    structure={"head": "full", "*.attention.*": "kfac", "*": "inf"}

It only delegates. `of_layer` says which structure a layer has, and every layer's posterior is one of that structure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, ClassVar

from infoform.common.checks import check_whole
from infoform.curvature.curvature import Curvature
from infoform.curvature.dimensions import Dimensions
from infoform.curvature.request import StatisticsRequest
from infoform.likelihoods import Likelihood
from infoform.posteriors.base import LayerPosterior
from infoform.posteriors.full import Full
from infoform.posteriors.inf.posterior import InfPosterior
from infoform.posteriors.structure import Rank, RankedStructure, Structure, check_rank
from infoform.priors import LayerPrior

SMALL = 1024  # weights of a layer whose exact block "auto" takes: 4 MB in float32
NAME = "structure"  # the key of the name, where a part is given with options as a mapping

Part = str | Structure | Mapping[str, Any]  # a name, an object, or {"structure": name, option: value}
Parts = Mapping[str, Part] | Iterable[tuple[str, Part]]


@dataclass(frozen=True, kw_only=True)
class ByLayer(Structure):
    """Another structure for each layer, by patterns of their names.

    `Laplace(..., structure={"head": "full", "*": "inf"})` makes one, and so does `structure="auto"`, which takes the
    exact block of every layer with up to 1024 weights and "inf" for the others.

    Args:
        parts: A structure for each pattern: its name, or an object with options. The first pattern that matches a
            layer's name counts, so that the order matters.
        exact: Layers with at most so many weights get their exact block, whatever the patterns say.
        rank: Eigenpairs of the structures that have a rank: a number, or a share, for those that were given by their
            names, or a number for each layer, which is of all of them.
        preset: Name of the set of options that the object was made from; `get_structure` sets it.

    Raises:
        ValueError: If there are no parts, or a name is none of a structure.

    Example:
        ```python
        by_layer = infoform.ByLayer(parts={"*head*": infoform.Full(), "*": infoform.Inf(rank=50)})
        laplace = infoform.Laplace(model, "classification", structure=by_layer)
        ```
    """

    name: ClassVar[str] = "by-layer"
    posterior: ClassVar[type[InfPosterior]] = InfPosterior  # where no part says otherwise

    parts: Parts = (("*", "inf"),)
    exact: int = 0
    rank: Rank | None = None
    preset: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple((one, _checked(one, part)) for one, part in self._pairs))
        if not self.parts:
            raise ValueError("a structure by layer must have at least one pattern, got none; give {'*': 'inf'}, say.")
        check_whole("exact", self.exact, least=0)
        if self.rank is not None:
            check_rank(self.rank)
        _ = self._structures

    def of_layer(self, name: str, shape: tuple[int, int]) -> Structure:
        if self.exact and shape[0] * shape[1] <= self.exact:
            return Full()
        for pattern, structure in self._structures:
            if fnmatchcase(name, pattern):
                return self._with_rank(structure.of_layer(name, shape))
        listed = ", ".join(repr(pattern) for pattern, _ in self._structures)
        raise ValueError(
            f"structure= must have a pattern for every layer, and none of {listed} matches '{name}'; end with '*', "
            "which matches all, or leave the layer out with layers=."
        )

    @property
    def warning(self) -> str:
        return " ".join(dict.fromkeys(one.warning for _, one in self._structures if one.warning))

    def statistics(self) -> StatisticsRequest:
        # what all parts together need; `request` asks for less, layer by layer
        found = StatisticsRequest(block=bool(self.exact))
        for _, one in self._structures:
            found = found | self._with_rank(one).statistics()
        return found

    def request(self, shapes: Mapping[str, tuple[int, int]]) -> StatisticsRequest:
        return StatisticsRequest.by_layers(
            {name: self.of_layer(name, shape).statistics() for name, shape in shapes.items()}
        )

    def build(self, curvature: Curvature, *, prior: LayerPrior, num_data: float) -> LayerPosterior:
        own = self.of_layer(curvature.name, curvature.shape)
        return own.build(curvature, prior=prior, num_data=num_data)

    def planned_bytes(self, size: Dimensions, *, layer: str) -> int:
        return self.of_layer(layer, (size.outputs, size.inputs)).planned_bytes(size, layer=layer)

    @property
    def planned_exactly(self) -> bool:
        return all(one.planned_exactly for _, one in self._structures)

    def check_layers(self, shapes: Mapping[str, tuple[int, int]], *, block_limit: int) -> None:
        for pattern, _ in self._structures:
            if not any(fnmatchcase(name, pattern) for name in shapes):
                shown = ", ".join(f"'{name}'" for name in list(shapes)[:8]) + (", ..." if len(shapes) > 8 else "")
                raise ValueError(
                    f"structure= must name layers that get a posterior, and '{pattern}' matches none; they are {shown}."
                )
        for name, shape in shapes.items():
            self.of_layer(name, shape).check_layers({name: shape}, block_limit=block_limit)

    def default_prior(self, likelihood: Likelihood) -> str:
        # that of the last part, which most layers have
        return self._structures[-1][1].default_prior(likelihood)

    def with_layer_ranks(self, ranks: Mapping[str, int]) -> "ByLayer":
        return self.with_options(rank=ranks)

    @property
    def has_ranks(self) -> bool:
        return any(one.has_ranks for _, one in self._structures)

    def options(self) -> dict[str, Any]:
        return {**super().options(), "parts": [[pattern, _plain(part)] for pattern, part in self._pairs]}

    @property
    def _pairs(self) -> list[tuple[str, Part]]:
        """Return patterns and parts, in their order."""
        return list(self.parts.items() if isinstance(self.parts, Mapping) else self.parts)

    def _with_rank(self, structure: Structure) -> Structure:
        if isinstance(self.rank, Mapping) and isinstance(structure, RankedStructure):
            return structure.with_options(rank=self.rank)
        return structure

    @cached_property
    def _structures(self) -> Sequence[tuple[str, Structure]]:
        """Return the parts as objects; a number as the rank is for those without one of their own."""
        from infoform.posteriors import get_structure

        found: list[tuple[str, Structure]] = []
        for pattern, part in self._pairs:
            if isinstance(part, Structure):
                found.append((pattern, part))
                continue
            options = dict(part) if isinstance(part, Mapping) else {NAME: part}
            name = options.pop(NAME)
            own = get_structure(name, **options)
            if "rank" not in options and self.rank is not None and not isinstance(self.rank, Mapping):
                own = own.with_options(rank=self.rank) if "rank" in own.option_names() else own
            found.append((pattern, own))
        return tuple(found)


def _checked(pattern: object, part: object) -> Part:
    if not isinstance(pattern, str) or not pattern:
        raise ValueError(f"the patterns of a structure by layer must be names such as 'head' or '*', got {pattern!r}.")
    if isinstance(part, str | Structure):
        return part
    if isinstance(part, Mapping) and isinstance(part.get(NAME), str):
        return dict(part)
    raise TypeError(
        f"the structure of '{pattern}' must be a name, a Structure, or a mapping with '{NAME}' and options, got "
        f"{part!r}."
    )


def _plain(part: Part) -> str | dict[str, Any]:
    """Return a part as JSON can hold it."""
    if isinstance(part, Structure):
        return {NAME: part.label, **part.options()}
    return part if isinstance(part, str) else dict(part)
