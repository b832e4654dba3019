"""Structures: to add one, write a file with a final `LayerPosterior` and a line in `STRUCTURES`."""

from typing import Any

from infoform.posteriors.base import LayerPosterior
from infoform.posteriors.diag import Diag
from infoform.posteriors.efb import Efb
from infoform.posteriors.full import Full
from infoform.posteriors.inf.options import CORES, CORRECTIONS
from infoform.posteriors.inf.structure import Inf
from infoform.posteriors.kfac.structure import DAMPINGS, Kfac

STRUCTURES: dict[str, type[LayerPosterior]] = {
    "diag": Diag,
    "kfac": Kfac,
    "efb": Efb,
    "inf": Inf,
    "full": Full,
}

# a structure with some of its options set: the forms of the paper
PRESETS: dict[str, tuple[str, dict[str, Any]]] = {
    "inf-paper": ("inf", {"basis": "activation", "support": "grid", "correction": "additive", "core": "diagonal"}),
    "efb-paper": ("efb", {"basis": "activation"}),
    "okf-paper": ("kfac", {"damping": "exact"}),
}

__all__ = [
    "CORES",
    "CORRECTIONS",
    "DAMPINGS",
    "PRESETS",
    "STRUCTURES",
    "Diag",
    "Efb",
    "Full",
    "Inf",
    "Kfac",
    "LayerPosterior",
]
