"""Structures: to add one, write a file with a `Structure` and its `LayerPosterior`, and a line in `STRUCTURES`."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from infoform.common.checks import check_choice
from infoform.posteriors.base import LayerPosterior
from infoform.posteriors.by_layer import SMALL, ByLayer, Part
from infoform.posteriors.diag import Diag, DiagPosterior, structure_for
from infoform.posteriors.efb import Efb, EfbPosterior
from infoform.posteriors.full import Full, FullPosterior
from infoform.posteriors.inf.posterior import CORES, CORRECTIONS, InfPosterior
from infoform.posteriors.inf.structure import Inf
from infoform.posteriors.kfac.posterior import DAMPINGS, KfacPosterior
from infoform.posteriors.kfac.structure import Kfac
from infoform.posteriors.structure import STORAGES, Rank, RankCurve, RankedStructure, Structure

StructureChoice = str | Structure | Mapping[str, Part]  # what `structure=` takes

STRUCTURES: dict[str, type[Structure]] = {
    "diag": Diag,
    "kfac": Kfac,
    "efb": Efb,
    "inf": Inf,
    "full": Full,
    "by-layer": ByLayer,
}

# structures with some of their options set: the forms of the paper, and a choice by size
PRESETS: dict[str, tuple[str, dict[str, Any]]] = {
    "inf-paper": ("inf", {"basis": "activation", "support": "grid", "correction": "additive", "core": "diagonal"}),
    "efb-paper": ("efb", {"basis": "activation"}),
    "okf-paper": ("kfac", {"damping": "exact"}),
    "auto": ("by-layer", {"exact": SMALL}),  # the exact block where it is small, else "inf"
}


def get_structure(structure: StructureChoice, **options: Any) -> Structure:
    """Return the structure of that name with these options, or the object as it is with them changed.

    Args:
        structure: A name in `STRUCTURES` or `PRESETS`, a `Structure`, or a structure for each pattern of layers' names.
        options: Options that differ from the structure's, or the preset's, own.

    Returns:
        An object that `Laplace(..., structure=...)` takes.

    Raises:
        ValueError: If there is no structure of that name.
        TypeError: If the structure has no such option.

    Example:
        ```python
        structure = infoform.get_structure("inf-paper", rank=50)
        assert structure.label == "inf-paper"
        ```
    """
    if isinstance(structure, Structure):
        return structure.with_options(**options) if options else structure
    if isinstance(structure, Mapping):
        return ByLayer(parts=structure).with_options(**options)
    check_choice("structure", structure, [*STRUCTURES, *PRESETS])
    if structure in STRUCTURES:
        return STRUCTURES[structure]().with_options(**options)
    name, preset = PRESETS[structure]
    return replace(STRUCTURES[name]().with_options(**preset | options), preset=structure)  # type: ignore[type-var]


__all__ = [
    "CORES",
    "CORRECTIONS",
    "DAMPINGS",
    "PRESETS",
    "STORAGES",
    "STRUCTURES",
    "ByLayer",
    "Diag",
    "DiagPosterior",
    "Efb",
    "EfbPosterior",
    "Full",
    "FullPosterior",
    "Inf",
    "InfPosterior",
    "Kfac",
    "KfacPosterior",
    "LayerPosterior",
    "Rank",
    "RankCurve",
    "RankedStructure",
    "Structure",
    "StructureChoice",
    "get_structure",
    "structure_for",
]
