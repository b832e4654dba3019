"""What `Laplace` is told besides model, likelihood and prior: checked once, when it is given, and saved with it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import torch

from infoform.common.bytes import read_bytes
from infoform.common.checks import check_choice, check_whole
from infoform.curvature.request import CHUNK_BYTES, FitSettings
from infoform.likelihoods import FISHER_KINDS
from infoform.network.last_layer import LAST
from infoform.network.selection import ALL
from infoform.posteriors import PRESETS, ByLayer, Inf, Kfac, Structure, StructureChoice, get_structure

AUTOCASTS = {"bfloat16": torch.bfloat16, "float16": torch.float16}
PRIOR_RANK = 8  # eigenpairs of a layer's inputs that a fit keeps for a prior which says no number


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """How the curvature is measured.

    Args:
        fisher: "mc" (labels drawn from the network), "exact" (all classes) or "empirical" (the data's labels).
        fisher_samples: Labels drawn for each example, with "mc".
        statistics: "needed" collects what the structure and the prior need; "all" what every one of them needs, so
            that `Laplace.posterior` can give each.
        basis_size: Leading columns kept of each basis; "auto" for as many as the rank needs, None for all.
        basis_data: Share of the batches that bases are found from.
        basis_floor: Share of the examples' mean energy below which an example counts for the diagonal alone.
        block_limit: Weights of the largest layer whose exact block is kept.
        input_rank: Eigenpairs of each layer's inputs that are kept for priors; where not given as many as the prior
            asks for, or 8.
        autocast: "bfloat16" or "float16" runs the forward passes in it.
        chunk: Memory for the gradients of single examples; more of them are held at a time where it is larger.
        novelty: Whether the fit looks at the inputs of every layer, so that predictions tell inputs unlike these.

    Raises:
        ValueError: If an option has a value that it cannot have.

    Example:
        ```python
        options = infoform.FitOptions(fisher="exact", statistics="all")
        laplace = infoform.Laplace(model, "classification", fit_options=options)
        ```
    """

    fisher: str = "mc"
    fisher_samples: int = 1
    statistics: str = "needed"
    basis_size: int | str | None = "auto"
    basis_data: float = 1.0
    basis_floor: float = 0.1
    block_limit: int = 4096
    input_rank: int | None = None
    autocast: str | None = None
    chunk: int | str = CHUNK_BYTES
    novelty: bool = True

    def __post_init__(self) -> None:
        check_choice("autocast", self.autocast, [None, *AUTOCASTS])
        read_bytes(self.chunk)
        check_choice("fisher", self.fisher, FISHER_KINDS)
        check_choice("statistics", self.statistics, ("needed", "all"))
        check_choice("novelty", self.novelty, (True, False))
        check_whole("fisher_samples", self.fisher_samples)
        check_whole("block_limit", self.block_limit)
        if self.input_rank is not None:
            check_whole("input_rank", self.input_rank, least=0)
        if self.basis_size not in (None, "auto"):
            check_whole("basis_size", self.basis_size)
        if not 0 < self.basis_data <= 1:
            raise ValueError(f"basis_data must be a share of the data, above 0 and at most 1, got {self.basis_data}.")
        if not 0 <= self.basis_floor < 1:
            raise ValueError(
                "basis_floor must be a share of the examples' mean energy, at least 0 (which leaves none out) and "
                f"below 1, got {self.basis_floor}."
            )

    def settings(self, *, prior_rank: int, seed: int) -> FitSettings:
        """Return the same in the form that the fitting room takes.

        Args:
            prior_rank: Eigenpairs of each layer's inputs that are kept.
            seed: Of sampled labels and sketches.

        Returns:
            Checked settings.
        """
        return FitSettings(
            fisher=self.fisher,
            fisher_samples=self.fisher_samples,
            basis_data=self.basis_data,
            basis_size=self.basis_size,
            prior_rank=prior_rank,
            block_limit=self.block_limit,
            seed=seed,
            autocast=None if self.autocast is None else AUTOCASTS[self.autocast],
            chunk=read_bytes(self.chunk),
            basis_floor=self.basis_floor,
        )


FIT_OPTIONS = tuple(one.name for one in fields(FitOptions))
STRUCTURE_OPTIONS = {**Inf().options(), **Kfac().options()}  # of all structures, by name, with their defaults


@dataclass(frozen=True)
class Settings:
    """Structure, fit options and the rest, as one value that can be saved."""

    structure: Structure = field(default_factory=Inf)
    fit: FitOptions = field(default_factory=FitOptions)
    layers: Sequence[str] | str | None = None  # names or patterns, "last" or "all"
    prior_rank: int = PRIOR_RANK
    seed: int = 0
    shared: Mapping[str, Any] = field(default_factory=dict)  # options given for other structures than this one

    def __post_init__(self) -> None:
        check_whole("prior_rank", self.prior_rank, least=0)
        for name, value in self.shared.items():  # also those that the structure has no use for
            if name not in self.structure.option_names() and name in STRUCTURE_OPTIONS:
                get_structure("inf" if name in Inf.option_names() else "kfac", **{name: value})
        if isinstance(self.layers, str) and self.layers not in (LAST, ALL):
            raise TypeError(
                f"layers must be a list of layer names, {LAST!r} or {ALL!r}, got the string {self.layers!r}; write "
                f"layers=[{self.layers!r}]."
            )

    def for_fit(self) -> FitSettings:
        return self.fit.settings(prior_rank=self.prior_rank, seed=self.seed)

    def resolve(self, structure: StructureChoice | None = None, options: Mapping[str, Any] | None = None) -> Structure:
        """Return a structure with options: those given, a preset's, or those of this object that it takes too."""
        options = dict(options or {})
        if structure is None:
            return self.structure.with_options(**options)
        chosen = get_structure(structure)
        if not isinstance(structure, str):
            return chosen.with_options(**options)
        preset = PRESETS[structure][1] if structure in PRESETS else {}
        own = {} if isinstance(self.structure, ByLayer) else self.structure.options()  # whose rank is by layer
        known = {**self.shared, **own}
        shared = {name: known[name] for name in chosen.option_names() if name in known and name not in preset}
        return chosen.with_options(**shared | options)

    def flat(self) -> dict[str, Any]:
        """Return all options by name, as JSON can hold them and files keep them."""
        known = {**STRUCTURE_OPTIONS, **self.shared, **self.structure.options()}
        known.pop("clip", None)
        rest = {"layers": self.layers, "prior_rank": self.prior_rank, "seed": self.seed}
        fit = {name: value for name, value in asdict(self.fit).items() if name != "input_rank"}  # told by prior_rank
        if self.fit.novelty:  # files of earlier versions do not say so
            fit.pop("novelty")
        return {"structure": self.structure.label, **known, **fit, **rest}

    @classmethod
    def from_flat(cls, flat: Mapping[str, Any], structure: Structure | None = None) -> "Settings":
        """Undo `flat`; a structure that is not infoform's own must be given."""
        rest = dict(flat)
        label = rest.pop("structure")
        own = {name: rest.pop(name) for name in ("layers", "prior_rank", "seed")}
        check_whole("prior_rank", own["prior_rank"], least=0)
        given = {name: rest.pop(name) for name in FIT_OPTIONS if name in rest}
        fit = FitOptions(**{"input_rank": own["prior_rank"], **given})
        if structure is None:
            chosen = get_structure(label)
            preset = PRESETS[label][1] if label in PRESETS else {}
            takes = [name for name in chosen.option_names() if name in rest and name not in preset]
            structure = chosen.with_options(**{name: rest[name] for name in takes})
        return cls(structure=structure, fit=fit, shared=rest, **own)
