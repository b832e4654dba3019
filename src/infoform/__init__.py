"""infoform: a posterior over the weights of any trained PyTorch network, in sparse information form."""

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
from infoform.version import __version__

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
