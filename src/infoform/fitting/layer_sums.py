"""All sums of one layer: which of them a fit needs, in which pass, and what they become."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from infoform.common.files import under
from infoform.curvature.curvature import Curvature
from infoform.curvature.eigenbasis import Eigenbasis, leading_pairs, promising_pairs
from infoform.curvature.request import BASES, FitSettings, StatisticsRequest, kept_columns
from infoform.curvature.sketch import EXACT_LIMIT, is_sketched
from infoform.curvature.subsampling import WHOLE_RESIDUAL, subsample_weights
from infoform.fitting.running_sums import (
    Block,
    GradientFactor,
    InputEnergy,
    InputFactor,
    Moment,
    ProjectedSquares,
    Sketch,
    Squares,
    Sums,
)
from infoform.network.layer import Layer


class LayerStatistics:
    """The sums of one layer, pass by pass."""

    def __init__(self, layer: Layer, request: StatisticsRequest, settings: FitSettings) -> None:
        self._layer = layer
        self._request = request
        self._columns = [kept_columns(size, request, settings.basis_size) for size in layer.shape]  # (g, a)
        factors = request.factors or "activation" in request.bases
        size = layer.shape[1]
        few = request.inputs and not factors and size > EXACT_LIMIT
        self._inputs = InputFactor() if factors or (request.inputs and not few) else None
        self._energy = None
        if few:
            self._energy = InputEnergy(size, rank=settings.prior_rank, name=layer.name, seed=settings.seed)
        self._gradients = GradientFactor() if factors else None
        self._moments: list[Moment | Sketch] = []  # of outputs and of inputs
        if "gradient" in request.bases:
            takes = (
                (lambda one: one.gradient_moment(), lambda one, test: one.gradient_sketch(test)),
                (lambda one: one.input_moment(), lambda one, test: one.input_sketch(test)),
            )
            for size, columns, (whole, part) in zip(layer.shape, self._columns, takes, strict=True):
                self._moments.append(
                    Sketch(part, size, columns=columns, name=layer.name, seed=settings.seed)
                    if is_sketched(size, columns)
                    else Moment(whole)
                )
        self._squares = Squares(layer.shape) if request.diagonal else None
        small = layer.shape[0] * layer.shape[1] <= settings.block_limit
        self._block = Block() if request.block and small else None
        self._projected: dict[str, ProjectedSquares] = {}

    def keep(self, before: Curvature) -> None:
        """Measure along the directions found before instead of finding new ones."""
        if self._energy is not None and before.inputs is not None:
            name, kept = self._layer.name, before.inputs.vectors
            self._energy = InputEnergy(len(kept), rank=kept.shape[1], name=name, seed=0, kept=kept)
        self._moments = []
        self._projected = {
            basis: ProjectedSquares(eigen.input_vectors, eigen.gradient_vectors, eigen.core_pairs)
            for basis, eigen in before.bases.items()
        }

    def first_pass(self, part: bool, sifted: bool = False) -> Sequence[Sums]:
        """Return what the first pass sums over all examples that it reads.

        Of a part of the data, what the bases need alone; where examples are chosen for that, all but `moments()`, and
        `squares()`, which either pass may sum.
        """
        if part:
            return [] if sifted else self._moments
        if sifted:
            return _given([self._inputs, self._energy])
        moments = [self._inputs, self._energy, self._gradients, *self._moments]
        measured = [self._squares, self._block, *self._projected.values()]
        return _given(moments if self._request.bases and not self._projected else [*moments, *measured])

    def moments(self) -> Sequence[Sums]:
        """Return what bases are found from."""
        return self._moments

    def squares(self) -> Sequence[Sums]:
        """Return what no basis is needed for."""
        return _given([self._squares, self._block])

    @property
    def cost(self) -> float:
        """Return the work of `decompose`, for comparison with that of other layers."""
        sizes = zip(self._layer.shape, self._columns, strict=True)
        return float(sum(size * (columns if is_sketched(size, columns) else size) ** 2 for size, columns in sizes))

    def decompose(self) -> None:
        """Turn the moments of the first pass into bases."""
        name, (rows, columns) = self._layer.name, self._columns
        if self._moments:
            of_gradients, of_inputs = self._moments
            self._moments = []  # two of the largest tensors of a fit: freed as soon as they are used
            gradient_pairs = of_gradients.leading(columns=rows, name=name)
            del of_gradients
            self._project("gradient", of_inputs.leading(columns=columns, name=name), gradient_pairs)
        if "activation" in self._request.bases and self._inputs is not None and self._gradients is not None:
            assert self._inputs.factor is not None
            assert self._gradients.factor is not None
            self._project(
                "activation",
                leading_pairs(self._inputs.factor, columns=columns, name=name),
                leading_pairs(self._gradients.factor, columns=rows, name=name),
            )
        self._forget()

    def second_pass(self, all_of_it: bool, sifted: bool = False) -> Sequence[Sums]:
        """Return what the second pass sums; also the rest of the first, where that saw a part of the data.

        Where examples are chosen, `projections()` are over those. Unless it makes up for the first it reads them alone,
        and `squares()` are apart.
        """
        if sifted and not all_of_it:
            return self.projections()
        rest = [self._inputs, self._energy] if all_of_it else []
        return _given([*rest, self._squares, self._block, *([] if sifted else self.projections())])

    def projections(self) -> Sequence[Sums]:
        """Return what is measured along the bases."""
        return list(self._projected.values())

    def state(self) -> dict[str, Tensor]:
        """Return what has been summed and the bases found, by names that `restore` knows."""
        summed = {f"{key}.{name}": one for key, sums in self._named().items() for name, one in sums.state().items()}
        return summed | self.bases()

    def bases(self) -> dict[str, Tensor]:
        """Return the bases found, by names that `restore` knows."""
        found = {
            f"{basis}.{name}": getattr(one, name)
            for basis, one in self._projected.items()
            for name in ("input_vectors", "gradient_vectors", "core_pairs")
        }
        return {name: one for name, one in found.items() if one is not None}

    def restore(self, state: Mapping[str, Tensor], *, decomposed: bool) -> None:
        """Go on from the state of another object, before its `decompose` or after it."""
        if decomposed:
            self._moments = []
            self._forget()
            self._projected = {
                basis: ProjectedSquares(
                    state[f"{basis}.input_vectors"],
                    state[f"{basis}.gradient_vectors"],
                    state.get(f"{basis}.core_pairs"),
                )
                for basis in BASES
                if f"{basis}.input_vectors" in state
            }
        for key, sums in self._named().items():
            sums.restore(under(state, f"{key}."))

    def finish(self, numbers: range) -> Curvature:
        """Return the averages over the examples, which have these numbers, and forget the sums one by one."""
        examples = len(numbers)

        def average(sums: Sums | None, name: str, count: float = examples) -> Tensor | None:
            total: Tensor | None = getattr(sums, name, None)
            if total is None:
                return None
            setattr(sums, name, None)  # a copy may be needed below, and is to be the only one
            return total.div_(count).contiguous()

        weight = float(subsample_weights(numbers, whole=WHOLE_RESIDUAL).sum())

        bases = {}
        for basis, sums in self._projected.items():
            eigenvalues = average(sums, "eigenvalues")
            assert eigenvalues is not None
            residual = average(sums, "residual", max(1.0, weight))
            residual = None if residual is None else residual.clamp_min_(0)  # a sum of squares, but for rounding
            core = average(sums, "core")
            bases[basis] = Eigenbasis(
                sums.input_vectors, sums.gradient_vectors, eigenvalues, residual, sums.core_pairs, core
            )
        return Curvature(
            name=self._layer.name,
            shape=self._layer.shape,
            positions=None if self._inputs is None else self._inputs.positions / examples,
            input_factor=average(self._inputs, "factor"),
            inputs=None if self._energy is None else self._energy.spectrum(numbers),
            gradient_factor=average(self._gradients, "factor"),
            diagonal=average(self._squares, "squares"),
            bases=bases,
            block=average(self._block, "block"),
        )

    def _project(self, basis: str, of_inputs: tuple[Tensor, Tensor], of_gradients: tuple[Tensor, Tensor]) -> None:
        (input_values, input_vectors), (gradient_values, gradient_vectors) = of_inputs, of_gradients
        pairs = None
        if basis in self._request.cores:
            pairs = promising_pairs(gradient_values, input_values, count=self._request.core_size)
        self._projected[basis] = ProjectedSquares(input_vectors, gradient_vectors, pairs)

    def _forget(self) -> None:
        """Drop what only the bases were to be found from."""
        if not self._request.factors:
            self._gradients = None
            self._inputs = self._inputs if self._request.inputs else None

    def _named(self) -> dict[str, Sums]:
        named: dict[str, Sums | None] = {
            "inputs": self._inputs,
            "energy": self._energy,
            "gradients": self._gradients,
            **{f"moment {index}": one for index, one in enumerate(self._moments)},
            "squares": self._squares,
            "block": self._block,
            **self._projected,
        }
        return {key: one for key, one in named.items() if one is not None}


def _given(sums: Sequence[Sums | None]) -> list[Sums]:
    return [one for one in sums if one is not None]
