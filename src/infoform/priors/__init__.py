"""Priors: to add one, write a file with a `Prior` and a line in `PRIORS`."""

from infoform.priors.activation import Activation
from infoform.priors.base import InputSpectrum, LayerPrior, Prior, input_spectrum
from infoform.priors.isotropic import Isotropic

PRIORS: dict[str, type[Prior]] = {
    "isotropic": Isotropic,
    "activation": Activation,
}

__all__ = ["PRIORS", "Activation", "InputSpectrum", "Isotropic", "LayerPrior", "Prior", "input_spectrum"]
