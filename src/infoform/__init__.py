"""infoform: a posterior over the weights of any trained PyTorch network, in sparse information form.

The names below are imported when first used, so that the command's help and completion need not wait for torch.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from infoform.version import __version__

if TYPE_CHECKING:
    from infoform.acquire import acquire
    from infoform.coverage import Coverage
    from infoform.curvature import Curvature
    from infoform.laplace import Laplace, load
    from infoform.likelihoods import Classification, Likelihood, MultiLabel, Regression
    from infoform.plan import plan
    from infoform.planned import Plan
    from infoform.posterior import Posterior
    from infoform.posteriors import LayerPosterior
    from infoform.prediction import Prediction
    from infoform.priors import Activation, Isotropic, LayerPrior, Prior
    from infoform.search import Trial, draw_landscape

_HOMES = {
    "acquire": ("acquire",),
    "coverage": ("Coverage",),
    "curvature": ("Curvature",),
    "laplace": ("Laplace", "load"),
    "likelihoods": ("Classification", "Likelihood", "MultiLabel", "Regression"),
    "plan": ("plan",),
    "planned": ("Plan",),
    "posterior": ("Posterior",),
    "posteriors": ("LayerPosterior",),
    "prediction": ("Prediction",),
    "priors": ("Activation", "Isotropic", "LayerPrior", "Prior"),
    "search": ("Trial", "draw_landscape"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'infoform' has no attribute {name!r}")
    value = getattr(import_module(f"infoform.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """The package, where `plan` and `acquire` are the functions, also once the files of these names are imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, getattr(value, name) if isinstance(value, ModuleType) and name in _HOME_OF else value)


sys.modules[__name__].__class__ = _Package

__all__ = [
    "Activation",
    "Classification",
    "Coverage",
    "Curvature",
    "Isotropic",
    "Laplace",
    "LayerPosterior",
    "LayerPrior",
    "Likelihood",
    "MultiLabel",
    "Plan",
    "Posterior",
    "Prediction",
    "Prior",
    "Regression",
    "Trial",
    "__version__",
    "acquire",
    "draw_landscape",
    "load",
    "plan",
]
