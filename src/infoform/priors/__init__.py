"""Priors: to add one, write a file with a `Prior` and a line in `PRIORS`."""

from infoform.priors.base import LayerPrior, Prior
from infoform.priors.isotropic import Isotropic

PRIORS: dict[str, type[Prior]] = {
    "isotropic": Isotropic,
}

__all__ = ["PRIORS", "Isotropic", "LayerPrior", "Prior"]
