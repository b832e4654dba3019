"""infoform: a posterior over the weights of any trained PyTorch network, in sparse information form.

The names below are imported when first used, so that the command's help and completion need not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from infoform.version import __version__

if TYPE_CHECKING:
    from infoform.acquisition import acquire
    from infoform.common.bad_files import BadFileError
    from infoform.comparing.compare import compare
    from infoform.conformal.conformal import Conformal
    from infoform.curvature.curvature import Curvature
    from infoform.export import Export
    from infoform.laplace import Laplace, load
    from infoform.layers import LayerRule, register_rule
    from infoform.likelihoods import (
        Classification,
        Heads,
        HeteroscedasticRegression,
        Likelihood,
        MultiLabel,
        NegativeBinomial,
        Ordinal,
        Poisson,
        Regression,
    )
    from infoform.likelihoods.own_data import UntrainedWarning
    from infoform.network.coverage import Coverage
    from infoform.options import FitOptions
    from infoform.planner import plan
    from infoform.planning.plan import Plan
    from infoform.posteriors import ByLayer, Diag, Efb, Full, Inf, Kfac, LayerPosterior, Structure, get_structure
    from infoform.posteriors.network_posterior import Posterior
    from infoform.prediction import Novelty, Prediction
    from infoform.priors import Activation, Isotropic, LayerPrior, Prior
    from infoform.tuning.search import Trial, draw_landscape

_HOMES = {
    "common.bad_files": ("BadFileError",),
    "acquisition": ("acquire",),
    "comparing.compare": ("compare",),
    "conformal.conformal": ("Conformal",),
    "curvature.curvature": ("Curvature",),
    "export": ("Export",),
    "laplace": ("Laplace", "load"),
    "layers": ("LayerRule", "register_rule"),
    "likelihoods": (
        "Classification",
        "Heads",
        "HeteroscedasticRegression",
        "Likelihood",
        "MultiLabel",
        "NegativeBinomial",
        "Ordinal",
        "Poisson",
        "Regression",
    ),
    "likelihoods.own_data": ("UntrainedWarning",),
    "network.coverage": ("Coverage",),
    "options": ("FitOptions",),
    "planner": ("plan",),
    "planning.plan": ("Plan",),
    "posteriors": ("ByLayer", "Diag", "Efb", "Full", "Inf", "Kfac", "LayerPosterior", "Structure", "get_structure"),
    "posteriors.network_posterior": ("Posterior",),
    "prediction": ("Novelty", "Prediction"),
    "priors": ("Activation", "Isotropic", "LayerPrior", "Prior"),
    "tuning.search": ("Trial", "draw_landscape"),
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


__all__ = [
    "Activation",
    "BadFileError",
    "ByLayer",
    "Classification",
    "Conformal",
    "Coverage",
    "Curvature",
    "Diag",
    "Efb",
    "Export",
    "FitOptions",
    "Full",
    "Heads",
    "HeteroscedasticRegression",
    "Inf",
    "Isotropic",
    "Kfac",
    "Laplace",
    "LayerPosterior",
    "LayerPrior",
    "LayerRule",
    "Likelihood",
    "MultiLabel",
    "NegativeBinomial",
    "Novelty",
    "Ordinal",
    "Plan",
    "Poisson",
    "Posterior",
    "Prediction",
    "Prior",
    "Regression",
    "Structure",
    "Trial",
    "UntrainedWarning",
    "__version__",
    "acquire",
    "compare",
    "draw_landscape",
    "get_structure",
    "load",
    "plan",
    "register_rule",
]
