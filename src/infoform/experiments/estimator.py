"""An estimator of the information matrix as a value: what small experiments set beside each other, by a label."""

from dataclasses import dataclass, fields
from typing import Any

import infoform
from infoform.posteriors.network_posterior import Posterior


@dataclass(frozen=True)
class Estimator:
    """A structure with the options in which experiments differ; the library's own where they are None.

    Example:
        laplace = infoform.Laplace(model, "regression", statistics="all").fit(loader)
        posterior = Estimator("inf-paper", rank=0.05).posterior(laplace, prior_precision=2.0)
    """

    structure: str
    rank: int | float | None = None  # eigenpairs of a layer, or their share as a float
    clip: bool | None = None  # of "inf-paper": whether its diagonal is at least 0, as a precision's must be

    @property
    def options(self) -> dict[str, Any]:
        """Return the options that are given, by name."""
        given = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "structure"}
        return {name: value for name, value in given.items() if value is not None}

    def posterior(
        self, laplace: infoform.Laplace, *, prior_precision: float | None = None, num_data: float | None = None
    ) -> Posterior:
        """Return this estimator's posterior from a fit that collected what it needs.

        Args:
            laplace: the fit, with `statistics="all"`.
            prior_precision: τ; the fit's own where not given.
            num_data: N; the fit's own where not given.

        Returns:
            The posterior.
        """
        return laplace.posterior(
            structure=self.structure, prior_precision=prior_precision, num_data=num_data, **self.options
        )
