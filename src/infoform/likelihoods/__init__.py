"""Likelihoods: to add one, write a file with a `Likelihood` and a line in `LIKELIHOODS`."""

from infoform.likelihoods.base import FISHER_KINDS, LINKS, DataSummary, Likelihood
from infoform.likelihoods.classification import Classification
from infoform.likelihoods.gaussian_outputs import GaussianOutputs
from infoform.likelihoods.heads import Heads
from infoform.likelihoods.heteroscedastic import HeteroscedasticRegression
from infoform.likelihoods.multilabel import MultiLabel
from infoform.likelihoods.negative_binomial import NegativeBinomial
from infoform.likelihoods.ordinal import Ordinal
from infoform.likelihoods.output_covariance import (
    DenseCovariance,
    DiagonalCovariance,
    OutputCovariance,
    SharedVectorsCovariance,
)
from infoform.likelihoods.poisson import Poisson
from infoform.likelihoods.regression import Regression

LIKELIHOODS: dict[str, type[Likelihood]] = {
    "classification": Classification,
    "multilabel": MultiLabel,
    "regression": Regression,
    "heteroscedastic": HeteroscedasticRegression,
    "poisson": Poisson,
    "negative-binomial": NegativeBinomial,
    "ordinal": Ordinal,
}


def get_likelihood(likelihood: str | Likelihood) -> Likelihood:
    """Return the likelihood of that name with its defaults, or the object as it is.

    Args:
        likelihood: name in `LIKELIHOODS`, or a likelihood.

    Returns:
        The likelihood.

    Raises:
        ValueError: if no likelihood has that name.

    Example:
        ```python
        from infoform.likelihoods import get_likelihood
        assert get_likelihood("regression").name == "regression"
        ```
    """
    if isinstance(likelihood, Likelihood):
        return likelihood
    if likelihood not in LIKELIHOODS:
        raise ValueError(
            f"likelihood must be one of {', '.join(map(repr, LIKELIHOODS))} or a Likelihood object, got {likelihood!r}."
        )
    return LIKELIHOODS[likelihood]()


__all__ = [
    "FISHER_KINDS",
    "LIKELIHOODS",
    "LINKS",
    "Classification",
    "DataSummary",
    "DenseCovariance",
    "DiagonalCovariance",
    "GaussianOutputs",
    "Heads",
    "HeteroscedasticRegression",
    "Likelihood",
    "MultiLabel",
    "NegativeBinomial",
    "Ordinal",
    "OutputCovariance",
    "Poisson",
    "Regression",
    "SharedVectorsCovariance",
    "get_likelihood",
]
