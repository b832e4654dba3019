"""The curvature of every layer, measured in one or two passes over the data.

    I = E_n Σ_v vec(∇) vec(∇)ᵀ,    an average over examples, free of prior and data-set size

Pass 1 sums the moments whose eigenvectors are the bases; pass 2 sums what is measured in those bases, and on the
diagonal. A fit that needs no basis takes one pass. Both passes see the same sampled labels.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor, nn

from infoform.capture import capturing
from infoform.coverage import Layer
from infoform.eigenbasis import Eigenbasis, leading_vectors
from infoform.examples import CHUNK_BYTES
from infoform.likelihoods import DataSummary, Likelihood
from infoform.passes import DataPass, check_independence, progress_bar
from infoform.spectrum import InputSpectrum
from infoform.statistics import (
    EXACT_LIMIT,
    WHOLE_INPUTS,
    WHOLE_RESIDUAL,
    Block,
    GradientFactor,
    InputEnergy,
    InputFactor,
    Moment,
    ProjectedSquares,
    Sketch,
    Squares,
    Sums,
    is_sketched,
    part_weights,
)

BASES = ("gradient", "activation")


@dataclass(frozen=True)
class Curvature:
    """Statistics of one layer, each an average over examples; None where the fit was not asked for it."""

    name: str
    shape: tuple[int, int]  # (G, A)
    positions: float | None = None  # E[S]: how often an example uses the weight
    input_factor: Tensor | None = None  # (A, A): E Σ_s a aᵀ, averaged over the groups of a grouped convolution
    inputs: InputSpectrum | None = None  # of the input factor, where that is not kept whole
    gradient_factor: Tensor | None = None  # (G, G): E Σ_v,s g gᵀ
    diagonal: Tensor | None = None  # f (G, A): E Σ_v ∇²
    bases: Mapping[str, Eigenbasis] = field(default_factory=dict)  # by its name in BASES
    block: Tensor | None = None  # (G * A, G * A): the exact information matrix, row-major


@dataclass(frozen=True)
class Wanted:
    """Which statistics a fit is to collect."""

    inputs: bool = False
    factors: bool = False
    diagonal: bool = False
    bases: frozenset[str] = frozenset()
    columns: int | None = None  # of large bases that are enough; None for all
    block: bool = False

    def __or__(self, other: "Wanted") -> "Wanted":
        return Wanted(
            inputs=self.inputs or other.inputs,
            factors=self.factors or other.factors,
            diagonal=self.diagonal or other.diagonal,
            bases=self.bases | other.bases,
            columns=_most(one.columns for one in (self, other) if one.bases),
            block=self.block or other.block,
        )


_WHOLE = ("input_factor", "gradient_factor", "diagonal", "block")  # the tensors of a Curvature besides its bases
EVERYTHING = Wanted(inputs=True, factors=True, diagonal=True, bases=frozenset(BASES), block=True)


@dataclass(frozen=True)
class FitSettings:
    """How the curvature is measured."""

    fisher: str = "mc"
    fisher_samples: int = 1
    basis_data: float = 1.0  # share of the batches that bases are found from
    basis_size: int | str | None = "auto"  # leading columns kept of U_A and of U_G; None for all, or as many as needed
    prior_rank: int = 16  # eigenpairs of the inputs that the activation prior may use
    block_limit: int = 4096  # weights of the largest layer whose exact block is kept
    seed: int = 0
    autocast: torch.dtype | None = None  # of the forward pass; sums are in float32 at least
    chunk: int = CHUNK_BYTES  # bytes of patches and per-example gradients held at a time


@dataclass(frozen=True)
class Fit:
    """The result of a fit: the curvature by layer, and why a layer that was asked for has none."""

    curvature: Mapping[str, Curvature]
    summary: DataSummary
    unreached: Mapping[str, str]


def fit_curvature(
    model: nn.Module,
    loader: Iterable[Any],
    likelihood: Likelihood,
    layers: Mapping[str, Layer],
    *,
    wanted: Wanted,
    settings: FitSettings,
    previous: Fit | None = None,
    progress: bool = True,
) -> Fit:
    """Collect the wanted statistics of all layers, alone or added to a previous fit in the bases of that."""
    check_independence(model)
    if settings.basis_data < 1 and (wanted.factors or "activation" in wanted.bases):
        raise ValueError(
            f"basis_data below 1 is for gradient bases alone, got {settings.basis_data} for a fit that also collects "
            "Kronecker factors; leave it out, or use structure='inf' or 'efb' with statistics='needed'."
        )
    seen = 0 if previous is None else previous.summary.num_examples
    passes = 2 if wanted.bases and previous is None else 1
    if passes > 1 and isinstance(loader, Iterator):  # asking iter() would start workers and draw a seed
        raise ValueError(
            "the loader must be one that can be read twice (a DataLoader or a list), got an iterator; "
            "pass list(loader), or use structure='diag' or 'kfac', which need one pass."
        )
    batches = len(loader) if isinstance(loader, Sized) else None
    with progress_bar(progress) as bar, capturing(model, layers, autocast=settings.autocast) as capture:
        data = DataPass(
            capture,
            loader,
            likelihood,
            layers,
            settings.fisher,
            settings.fisher_samples,
            settings.seed,
            chunk=settings.chunk,
            seen=seen,
        )
        statistics = {name: _Statistics(layer, wanted, settings) for name, layer in layers.items()}
        for name, before in {} if previous is None else previous.curvature.items():
            statistics[name].keep(before)
        part = settings.basis_data if passes > 1 else 1.0
        summary = data.run(
            {name: one.first_pass(part < 1) for name, one in statistics.items()},
            bar(f"pass 1 of {passes}", batches),
            share=part,
        )
        reached = frozenset(data.reached)  # a second pass over more of the data may reach others, too late for a basis
        unreached = {name: _why_unreached(name in data.called) for name in layers if name not in reached}
        if len(unreached) == len(layers):
            raise ValueError(
                "a gradient must reach at least one layer, and none did "
                f"('{next(iter(layers))}': {unreached[next(iter(layers))]}); check for torch.no_grad() in the model."
            )
        # layers that an earlier fit did not reach get their bases from the data that does
        fresh = {
            name: one
            for name, one in statistics.items()
            if name in reached and (previous is None or name not in previous.curvature)
        }
        if wanted.bases and fresh:
            if isinstance(loader, Iterator):
                raise ValueError(
                    f"layer '{next(iter(fresh))}' is reached for the first time and needs a second pass, and the "
                    "loader is an iterator; pass list(loader)."
                )
            tick = bar("eigenvectors", len(fresh))
            for one in fresh.values():
                one.decompose()
                tick(1)
            again = data.run(
                {name: one.second_pass(part < 1) if name in fresh else [] for name, one in statistics.items()},
                bar("pass 2 of 2", batches),
            )
            if part == 1 and again.num_examples != summary.num_examples:
                raise ValueError(
                    f"the loader must give the same data in both passes, got {summary.num_examples} examples, then "
                    f"{again.num_examples}; pass a DataLoader or a list."
                )
            summary = again
    fit = Fit(_finish(statistics, reached, summary, start=seen), summary, unreached)
    return fit if previous is None else merge_fits(previous, fit)


def merge_fits(one: Fit, other: Fit) -> Fit:
    """Return the fit of both data sets together; the bases of both must be the same."""
    first, second = one.summary, other.summary
    total = first.num_examples + second.num_examples
    share = second.num_examples / total
    residual_share = _part_share(first.num_examples, total, whole=WHOLE_RESIDUAL)
    inputs_share = _part_share(first.num_examples, total, whole=WHOLE_INPUTS)

    def merge(a: Tensor | None, b: Tensor | None, share: float = share) -> Tensor | None:
        return None if a is None or b is None else a * (1 - share) + b * share

    merged = {}
    for name in [*one.curvature, *(name for name in other.curvature if name not in one.curvature)]:
        a = one.curvature[name] if name in one.curvature else _no_information(other.curvature[name])
        b = other.curvature[name] if name in other.curvature else _no_information(a)
        bases = {
            basis: replace(
                eigen,
                eigenvalues=eigen.eigenvalues * (1 - share) + b.bases[basis].eigenvalues * share,
                residual=merge(eigen.residual, b.bases[basis].residual, residual_share),
            )
            for basis, eigen in a.bases.items()
        }
        inputs = a.inputs
        if a.inputs is not None and b.inputs is not None:
            diagonal = merge(a.inputs.diagonal, b.inputs.diagonal, inputs_share)
            values = merge(a.inputs.values, b.inputs.values, inputs_share)
            assert diagonal is not None
            assert values is not None
            inputs = InputSpectrum(diagonal, a.inputs.vectors, values)
        positions = None
        if a.positions is not None and b.positions is not None:
            positions = a.positions * (1 - share) + b.positions * share
        whole: dict[str, Any] = {key: merge(getattr(a, key), getattr(b, key)) for key in _WHOLE}
        merged[name] = replace(a, positions=positions, inputs=inputs, bases=bases, **whole)
    log_likelihood = None
    if first.log_likelihood is not None and second.log_likelihood is not None:
        log_likelihood = first.log_likelihood + second.log_likelihood
    unreached = {name: why for name, why in one.unreached.items() if name not in merged}
    return Fit(merged, DataSummary(total, first.num_outputs, log_likelihood), unreached)


def _no_information(like: Curvature) -> Curvature:
    """Return the curvature of a layer that no gradient came back to."""
    tensors, settings = pack_curvature(like)
    basis = ("input_vectors", "gradient_vectors", "inputs.vectors")
    zeros = {key: value if key.endswith(basis) else torch.zeros_like(value) for key, value in tensors.items()}
    return unpack_curvature(zeros, {**settings, "positions": None if like.positions is None else 0.0})


def pack_curvature(curvature: Curvature) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return a layer's curvature as flat tensors and plain values, for a file."""
    tensors = {key: getattr(curvature, key) for key in _WHOLE}
    for basis, eigen in curvature.bases.items():
        tensors |= {f"{basis}.{one.name}": getattr(eigen, one.name) for one in fields(eigen)}
    if curvature.inputs is not None:
        tensors |= {f"inputs.{one.name}": getattr(curvature.inputs, one.name) for one in fields(curvature.inputs)}
    settings = {"name": curvature.name, "shape": list(curvature.shape), "positions": curvature.positions}
    return {key: value for key, value in tensors.items() if value is not None}, settings


def unpack_curvature(tensors: Mapping[str, Tensor], settings: Mapping[str, Any]) -> Curvature:
    """Undo `pack_curvature`."""
    bases = {}
    for basis in BASES:
        parts = {one.name: tensors.get(f"{basis}.{one.name}") for one in fields(Eigenbasis)}
        if parts["eigenvalues"] is not None:
            bases[basis] = Eigenbasis(**parts)  # type: ignore[arg-type]
    parts = {one.name: tensors.get(f"inputs.{one.name}") for one in fields(InputSpectrum)}
    inputs = None if parts["diagonal"] is None else InputSpectrum(**parts)  # type: ignore[arg-type]
    whole: dict[str, Any] = {key: value for key, value in tensors.items() if "." not in key}
    return Curvature(**{**settings, "shape": tuple(settings["shape"])}, **whole, inputs=inputs, bases=bases)


class _Statistics:
    """The sums of one layer, pass by pass."""

    def __init__(self, layer: Layer, wanted: Wanted, settings: FitSettings) -> None:
        self._layer = layer
        self._wanted = wanted
        self._columns = [kept_columns(size, wanted, settings.basis_size) for size in layer.shape]  # (g, a)
        factors = wanted.factors or "activation" in wanted.bases
        size = layer.shape[1]
        few = wanted.inputs and not factors and size > EXACT_LIMIT
        self._inputs = InputFactor() if factors or (wanted.inputs and not few) else None
        self._energy = None
        if few:
            self._energy = InputEnergy(size, rank=settings.prior_rank, name=layer.name, seed=settings.seed)
        self._gradients = GradientFactor() if factors else None
        self._moments: list[Moment | Sketch] = []  # of outputs and of inputs
        if "gradient" in wanted.bases:
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
        self._squares = Squares(layer.shape) if wanted.diagonal else None
        small = layer.shape[0] * layer.shape[1] <= settings.block_limit
        self._block = Block() if wanted.block and small else None
        self._projected: dict[str, ProjectedSquares] = {}

    def keep(self, before: Curvature) -> None:
        """Measure along the directions found before instead of finding new ones."""
        if self._energy is not None and before.inputs is not None:
            name, kept = self._layer.name, before.inputs.vectors
            self._energy = InputEnergy(len(kept), rank=kept.shape[1], name=name, seed=0, kept=kept)
        self._moments = []
        self._projected = {
            basis: ProjectedSquares(eigen.input_vectors, eigen.gradient_vectors)
            for basis, eigen in before.bases.items()
        }

    def first_pass(self, part: bool) -> Sequence[Sums]:
        """Return what the first pass sums; of a part of the data, what the bases need alone."""
        if part:
            return self._moments
        moments = [self._inputs, self._energy, self._gradients, *self._moments]
        measured = [self._squares, self._block, *self._projected.values()]
        return _given(moments if self._wanted.bases and not self._projected else [*moments, *measured])

    def decompose(self) -> None:
        """Turn the moments of the first pass into bases."""
        name, (rows, columns) = self._layer.name, self._columns
        if self._moments:
            of_gradients, of_inputs = self._moments
            self._moments = []  # two of the largest tensors of a fit: freed as soon as they are used
            gradient_vectors = of_gradients.vectors(columns=rows, name=name)
            del of_gradients
            input_vectors = of_inputs.vectors(columns=columns, name=name)
            self._projected["gradient"] = ProjectedSquares(input_vectors, gradient_vectors)
        if "activation" in self._wanted.bases and self._inputs is not None and self._gradients is not None:
            assert self._inputs.factor is not None
            assert self._gradients.factor is not None
            self._projected["activation"] = ProjectedSquares(
                leading_vectors(self._inputs.factor, columns=columns, name=name),
                leading_vectors(self._gradients.factor, columns=rows, name=name),
            )
        if not self._wanted.factors:
            self._gradients = None
            self._inputs = self._inputs if self._wanted.inputs else None

    def second_pass(self, all_of_it: bool) -> Sequence[Sums]:
        """Return what the second pass sums; also the rest of the first, where that saw a part of the data."""
        rest = [self._inputs, self._energy] if all_of_it else []
        return _given([*rest, self._squares, self._block, *self._projected.values()])

    def finish(self, examples: int, start: int) -> Curvature:
        """Return the averages over the examples from number `start` on."""

        def average(total: Tensor | None, count: float = examples) -> Tensor | None:
            return None if total is None else total.div_(count).contiguous()

        weight = float(part_weights(start, examples, whole=WHOLE_RESIDUAL).sum())

        bases = {}
        for basis, sums in self._projected.items():
            eigenvalues = average(sums.eigenvalues)
            assert eigenvalues is not None
            residual = average(sums.residual, max(1.0, weight))
            residual = None if residual is None else residual.clamp_min_(0)  # a sum of squares, but for rounding
            bases[basis] = Eigenbasis(sums.input_vectors, sums.gradient_vectors, eigenvalues, residual)
        inputs, gradients = self._inputs, self._gradients
        return Curvature(
            name=self._layer.name,
            shape=self._layer.shape,
            positions=None if inputs is None else inputs.positions / examples,
            input_factor=None if inputs is None else average(inputs.factor),
            inputs=None if self._energy is None else self._energy.spectrum(start, examples),
            gradient_factor=None if gradients is None else average(gradients.factor),
            diagonal=None if self._squares is None else average(self._squares.squares),
            bases=bases,
            block=None if self._block is None else average(self._block.block),
        )


def _part_share(first: int, total: int, *, whole: int) -> float:
    weights = part_weights(0, total, whole=whole)
    return float(weights[first:].sum() / weights.sum())


def _finish(
    statistics: Mapping[str, _Statistics], reached: frozenset[str], summary: DataSummary, *, start: int
) -> dict[str, Curvature]:
    return {name: one.finish(summary.num_examples, start) for name, one in statistics.items() if name in reached}


def kept_columns(size: int, wanted: Wanted, basis_size: int | str | None) -> int:
    """Return how many leading columns of U_A or U_G a fit keeps, of as many as the layer has inputs or outputs."""
    if isinstance(basis_size, int):
        return min(size, basis_size)
    if basis_size is None or wanted.columns is None or size <= max(EXACT_LIMIT, 2 * wanted.columns):
        return size
    return wanted.columns


def _most(columns: Iterable[int | None]) -> int | None:
    given = list(columns)
    return None if None in given else max((one for one in given if one is not None), default=None)


def _given(sums: Sequence[Sums | None]) -> list[Sums]:
    return [one for one in sums if one is not None]


def _why_unreached(called: bool) -> str:
    if called:
        return "no gradient reached it during the fit: its output does not influence the model's outputs"
    return "its forward was never called during the fit"
