"""The statistics of one layer during a fit: sums, then bases found from them, then the curvature."""

from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor

from infoform.common.files import under
from infoform.curvature.curvature import Curvature
from infoform.curvature.eigenbasis import Eigenbasis, promising_pairs
from infoform.curvature.request import BASES, FitSettings, StatisticsRequest
from infoform.curvature.subsampling import WHOLE_RESIDUAL, subsample_weights
from infoform.fitting.accumulate import PassSums
from infoform.fitting.layer_sums import LayerSums, layer_dimensions
from infoform.fitting.pass_plan import LayerPass
from infoform.fitting.running_sums import InputEnergy, ProjectedSquares, Sums
from infoform.network.layer import Layer

Eigenpairs = tuple[Tensor, Tensor]  # (k,), (n, k)


class LayerStatistics:
    """The sums of one layer, and the bases found from them."""

    def __init__(self, layer: Layer, request: StatisticsRequest, settings: FitSettings) -> None:
        request = request.of(layer.name).of_layer(only_diagonal=layer.rule.only_diagonal)
        size = layer_dimensions(layer, request, settings, use=None)
        block = size.weights <= settings.block_limit
        self._layer, self._request, self._columns = layer, request, size.columns
        self._sums = LayerSums.empty(size, request, block=block, name=layer.name, seed=settings.seed)

    @property
    def has_bases(self) -> bool:
        """Whether all bases that were asked for are known."""
        return self._sums.projections.keys() == self._request.bases

    @property
    def eigen_flops(self) -> int:
        """Return the work of `find_bases`, for comparison with that of other layers."""
        sources = self._sums.sources(self._request.bases)
        return sum(one.eigen_flops() for moments in sources.values() for one in moments)

    def sums(self, plan: LayerPass, *, last: bool) -> PassSums:
        """Return the running sums of one pass; `last` if no other pass adds to them."""
        every, selected, once = (self._sums.of(one) for one in (plan.every, plan.selected, plan.once))
        return PassSums(every, selected, once, last)

    def use_bases_of(self, before: Curvature) -> None:
        """Measure along the directions of an earlier fit instead of finding new ones."""
        self._measure_along(
            {
                basis: ProjectedSquares(eigen.input_vectors, eigen.gradient_vectors, eigen.core_pairs)
                for basis, eigen in before.bases.items()
            }
        )
        if self._sums.energy is not None and before.inputs is not None:
            name, known = self._layer.name, before.inputs.vectors
            energy = InputEnergy(len(known), rank=known.shape[1], name=name, seed=0, known=known)
            self._sums = replace(self._sums, energy=energy)

    def find_bases(self) -> None:
        """Turn the moments of the first pass into bases."""
        name, (g, a) = self._layer.name, self._columns
        found: dict[str, ProjectedSquares] = {}
        if self._sums.moments:
            of_outputs, of_inputs = self._sums.moments
            self._sums = replace(
                self._sums, moments=()
            )  # two of the largest tensors of a fit: freed when they are used
            outputs = of_outputs.leading(columns=g, name=name)
            del of_outputs
            found["gradient"] = self._projection("gradient", of_inputs.leading(columns=a, name=name), outputs)
        if "activation" in self._request.bases:
            assert self._sums.inputs is not None
            assert self._sums.gradients is not None
            inputs = self._sums.inputs.leading(columns=a, name=name)
            outputs = self._sums.gradients.leading(columns=g, name=name)
            found["activation"] = self._projection("activation", inputs, outputs)
        self._measure_along(found)

    def bases(self) -> dict[str, Tensor]:
        """Return the bases, by names that `restore` knows."""
        found = {
            f"{basis}.{name}": getattr(one, name)
            for basis, one in self._sums.projections.items()
            for name in ("input_vectors", "gradient_vectors", "core_pairs")
        }
        return {name: one for name, one in found.items() if one is not None}

    def state(self) -> dict[str, Tensor]:
        """Return what has been summed, and the bases, by names that `restore` knows."""
        sums = {f"{key}.{name}": one for key, sums in self._sums.named().items() for name, one in sums.state().items()}
        return sums | self.bases()

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go on from the state of another object."""
        vectors = ("input_vectors", "gradient_vectors", "core_pairs")
        found = {
            basis: ProjectedSquares(*(state.get(f"{basis}.{name}") for name in vectors))  # type: ignore[arg-type]
            for basis in BASES
            if f"{basis}.input_vectors" in state
        }
        for basis, one in found.items():
            if not one.pairs_fit:
                raise ValueError(f"the pairs of the {basis} basis of layer '{self._layer.name}' lie outside of it.")
        if found:
            self._measure_along(found)
        for key, sums in self._sums.named().items():
            sums.restore(under(state, f"{key}."))

    def finish(self, numbers: range) -> Curvature:
        """Return the averages over the examples, which have these numbers, and forget the sums one by one."""
        examples, own = len(numbers), self._sums
        weight = float(subsample_weights(numbers, whole=WHOLE_RESIDUAL).sum())
        bases = {}
        for basis, sums in own.projections.items():
            eigenvalues = _average(sums, "eigenvalues", examples)
            assert eigenvalues is not None
            residual = _average(sums, "residual", max(1.0, weight))
            residual = None if residual is None else residual.clamp_min_(0)  # a sum of squares, but for rounding
            core = _average(sums, "core", examples)
            bases[basis] = Eigenbasis(
                sums.input_vectors, sums.gradient_vectors, eigenvalues, residual, sums.core_pairs, core
            )
        return Curvature(
            name=self._layer.name,
            shape=self._layer.shape,
            positions=None if own.inputs is None else own.inputs.positions / examples,
            input_factor=_average(own.inputs, "moment", examples),
            inputs=None if own.energy is None else own.energy.spectrum(numbers),
            gradient_factor=_average(own.gradients, "moment", examples),
            diagonal=_average(own.squares, "squares", examples),
            bases=bases,
            block=_average(own.block, "block", examples),
            only_diagonal=self._layer.rule.only_diagonal,
        )

    def _projection(self, basis: str, of_inputs: Eigenpairs, of_outputs: Eigenpairs) -> ProjectedSquares:
        (input_values, input_vectors), (output_values, output_vectors) = of_inputs, of_outputs
        pairs = None
        if basis in self._request.cores:
            pairs = promising_pairs(output_values, input_values, count=self._request.core_size)
        return ProjectedSquares(input_vectors, output_vectors, pairs)

    def _measure_along(self, projections: dict[str, ProjectedSquares]) -> None:
        self._sums = self._sums.along(projections, self._request)


def _average(sums: Sums | None, name: str, count: float) -> Tensor | None:
    total: Tensor | None = getattr(sums, name, None)
    if total is None:
        return None
    setattr(sums, name, None)  # a copy may be needed below, and is to be the only one
    return total.div_(count).contiguous()
