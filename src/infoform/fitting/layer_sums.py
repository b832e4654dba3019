"""The running sums of one layer: which of them a request needs, made from the sizes of the layer alone.

The fit fills the sums that are made here, and a plan adds up what they say of their bytes and operations, so that both
speak of the same.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import torch

from infoform.curvature.dimensions import Dimensions
from infoform.curvature.request import BASES, FitSettings, StatisticsRequest, kept_columns
from infoform.curvature.sketch import EXACT_LIMIT, is_sketched
from infoform.fitting.layer_gradients import wide_dtype
from infoform.fitting.pass_plan import Statistic
from infoform.fitting.running_sums import (
    Block,
    GradientFactor,
    InputEnergy,
    InputFactor,
    Moment,
    ProjectedSquares,
    SecondMoment,
    Sketch,
    Squares,
    Sums,
)
from infoform.network.layer import Layer


@dataclass(frozen=True)
class LayerSums:
    """The running sums of one layer."""

    inputs: InputFactor | None = None
    energy: InputEnergy | None = None  # of inputs whose factor would be too large
    gradients: GradientFactor | None = None
    moments: tuple[SecondMoment, ...] = ()  # of outputs and of inputs
    squares: Squares | None = None
    block: Block | None = None
    projections: dict[str, ProjectedSquares] = field(default_factory=dict)  # by the name of the basis

    @classmethod
    def empty(
        cls, size: Dimensions, request: StatisticsRequest, *, block: bool, name: str = "", seed: int = 0
    ) -> "LayerSums":
        """Return the sums that a request needs before there are bases.

        Args:
            size: The sizes of the layer.
            request: What the fit is asked for.
            block: Whether the layer is small enough for its block.
            name: The name of the layer, on which the random columns of sketches depend.
            seed: Another number on which they depend.
        """
        outputs, inputs = size.outputs, size.inputs
        factors = request.factors or "activation" in request.bases
        large = request.inputs and not factors and inputs > EXACT_LIMIT
        return cls(
            InputFactor(inputs) if factors or (request.inputs and not large) else None,
            InputEnergy(inputs, rank=size.input_rank or 0, name=name, seed=seed) if large else None,
            GradientFactor(outputs) if factors else None,
            _moments(size, name=name, seed=seed) if "gradient" in request.bases else (),
            Squares((outputs, inputs)) if request.diagonal else None,
            Block(size.weights) if request.block and block else None,
        )

    @classmethod
    def planned(cls, size: Dimensions, request: StatisticsRequest, *, block: bool) -> "LayerSums":
        """Return all sums of a fit, also those along bases, whose vectors have sizes and no numbers here."""
        of_outputs, of_inputs = (torch.empty(side, dtype=size.dtype, device="meta") for side in size.sides)
        pairs = torch.empty(2, size.core, dtype=torch.int64, device="meta")
        projections = {
            basis: ProjectedSquares(of_inputs, of_outputs, pairs if basis in request.cores else None)
            for basis in BASES
            if basis in request.bases
        }
        return replace(cls.empty(size, request, block=block), projections=projections)

    def of(self, statistics: Iterable[Statistic]) -> list[Sums]:
        """Return the sums of these statistics that the layer has."""
        sums: dict[Statistic, Sequence[Sums | None]] = {
            Statistic.INPUTS: [self.inputs, self.energy],
            Statistic.OUTPUT_GRADIENTS: [self.gradients],
            Statistic.MOMENTS: self.moments,
            Statistic.DIAGONAL: [self.squares],
            Statistic.BLOCK: [self.block],
            Statistic.PROJECTIONS: list(self.projections.values()),
        }
        return [one for statistic in statistics for one in sums[statistic] if one is not None]

    def sources(self, bases: Iterable[str]) -> dict[str, tuple[SecondMoment, ...]]:
        """Return what each basis is found from: moments of the outputs and of the inputs."""
        factors = tuple(one for one in (self.gradients, self.inputs) if one is not None)
        return {basis: {"gradient": self.moments, "activation": factors}[basis] for basis in bases}

    def named(self) -> dict[str, Sums]:
        """Return all sums by names, for a checkpoint."""
        sums: dict[str, Sums | None] = {
            "inputs": self.inputs,
            "energy": self.energy,
            "gradients": self.gradients,
            **{f"moment {index}": one for index, one in enumerate(self.moments)},
            "squares": self.squares,
            "block": self.block,
            **self.projections,
        }
        return {name: one for name, one in sums.items() if one is not None}

    def along(self, projections: dict[str, ProjectedSquares], request: StatisticsRequest) -> "LayerSums":
        """Return the sums of a layer whose bases are known, without those that only bases are found from."""
        return replace(
            self,
            inputs=self.inputs if request.inputs or request.factors else None,
            gradients=self.gradients if request.factors else None,
            moments=(),
            projections=projections,
        )


def layer_dimensions(
    layer: Layer, request: StatisticsRequest, settings: FitSettings, *, use: tuple[int, int] | None
) -> Dimensions:  # use: (H, S)
    """Return the sizes of a layer, with the columns that a fit keeps."""
    outputs, inputs = layer.shape
    request = request.of(layer.name).of_layer(only_diagonal=layer.rule.only_diagonal)
    columns = tuple(kept_columns(size, request, settings.basis_size) for size in layer.shape)
    groups, positions = (1, None) if use is None else use
    dtype = wide_dtype(layer.mean.dtype)
    rank = settings.prior_rank if request.inputs else None
    core = min(request.core_size, columns[0] * columns[1])
    only_diagonal = layer.rule.only_diagonal
    return Dimensions(outputs, inputs, (columns[0], columns[1]), dtype, positions, groups, rank, core, only_diagonal)


def _moments(size: Dimensions, *, name: str, seed: int) -> tuple[SecondMoment, ...]:
    (outputs, g), (inputs, a) = size.sides
    return (
        Sketch(lambda one, test: one.gradient_sketch(test), outputs, columns=g, name=name, seed=seed)
        if is_sketched(outputs, g)
        else Moment(lambda one: one.gradient_moment(), outputs),
        Sketch(lambda one, test: one.input_sketch(test), inputs, columns=a, name=name, seed=seed)
        if is_sketched(inputs, a)
        else Moment(lambda one: one.input_moment(), inputs),
    )
