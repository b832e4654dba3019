"""Priors: to add one, write a file with a `Prior` and a line in `PRIORS`."""

from infoform.priors.activation import Activation
from infoform.priors.base import LayerPrior, Prior
from infoform.priors.isotropic import Isotropic

PRIORS: dict[str, type[Prior]] = {
    "isotropic": Isotropic,
    "activation": Activation,
}


def get_prior(prior: str | Prior) -> Prior:
    """Return the prior of that name with its defaults, or the object as it is."""
    if isinstance(prior, Prior):
        return prior
    if prior not in PRIORS:
        raise ValueError(f"prior must be one of {', '.join(map(repr, PRIORS))} or a Prior object, got {prior!r}.")
    return PRIORS[prior]()


__all__ = ["PRIORS", "Activation", "Isotropic", "LayerPrior", "Prior", "get_prior"]
