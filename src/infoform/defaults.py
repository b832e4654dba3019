"""What is chosen where a user says nothing: the best by measurement, see docs/predictives.md.

Of sampled classes (digits, MNIST) the activation prior told unknown inputs far better apart at the same likelihood of
known ones; of regression (UCI) the isotropic prior was as good or better. The other structures are the paper's
estimators and keep the paper's prior; `structure="inf-paper"` is all of the paper's setting.
"""

from infoform.likelihoods import Likelihood


def default_prior(structure: str, likelihood: Likelihood) -> str:
    """Return the name of the prior for a structure and a likelihood."""
    return likelihood.default_prior if structure == "inf" else "isotropic"
