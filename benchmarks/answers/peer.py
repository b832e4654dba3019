"""laplace-torch as a worker asks it: the linearised predictive with the probit link, of the last layer or of all."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from benchmarks.answers.cases import Case
from benchmarks.answers.quality import Parts, save_answers
from benchmarks.speed.networks import Batches
from benchmarks.speed.peers import covered_copy
from torch import Tensor, nn
from torch.nn import functional

SUBSETS = {"last": "last_layer", "all": "all"}
GRID = [10 ** (power / 2) for power in range(-8, 9)]  # of τ


class LaplaceTorch:
    """A network with laplace-torch's posteriors, each fitted when it is first asked for."""

    def __init__(self, case: Case, model: nn.Module, inputs: Tensor, labels: Tensor, parts: Parts | None) -> None:
        self.case, self.model, self.inputs, self.labels, self.parts = case, model, inputs, labels, parts
        self._fits: dict[str, Any] = {}

    def way(self, name: str) -> Callable[[Tensor], Any]:
        """Return what predicts with the posterior of "last" or "all" layers: Kronecker factors."""
        if name not in self._fits:
            count = self.case.fitted
            self._fits[name] = self._fit(name, Batches(self.inputs[:count], self.labels[:count], 64))
        fitted = self._fits[name]
        return lambda x: fitted(x, pred_type="glm", link_approx="probit", diagonal_output=True)

    def quality(self, row: str, to: Path) -> dict[str, Any]:
        """Fit the last layer, take the τ of least NLL on validation data, and keep the probabilities.

        The grid is searched here: the library's own search, whose choice is told beside ours, took the largest τ of its
        range on ResNet-20, where the NLL of the same data and link is far from its least.
        """
        assert self.parts is not None
        parts = self.parts
        curvature, validation = (
            Batches(torch.cat([x for x, _ in one]), torch.cat([y for _, y in one]), 100)
            for one in (parts.curvature, parts.validation)
        )
        fitted = self._fit(row, curvature)
        fitted.optimize_prior_precision(
            pred_type="glm", method="gridsearch", link_approx="probit", val_loader=validation, progress_bar=False
        )
        by_its_own = float(fitted.prior_precision)
        scores = {tau: _validation_nll(fitted, tau, parts.validation) for tau in GRID}
        best = min(scores, key=lambda tau: scores[tau])
        fitted.prior_precision = best
        save_answers(to, lambda x: fitted(x, pred_type="glm", link_approx="probit"), parts)
        return {"prior_precision": best, "temperature": 1.0, "by_its_own_search": by_its_own,
                "validation_nll": {f"{tau:.3g}": score for tau, score in scores.items()}}  # fmt: skip

    def _fit(self, name: str, batches: Batches) -> Any:
        import laplace

        if name not in SUBSETS:
            raise ValueError(f"laplace-torch is asked for {' or '.join(SUBSETS)}, got {name!r}.")
        with torch.enable_grad():
            fitted = laplace.Laplace(
                covered_copy(self.model), "classification", subset_of_weights=SUBSETS[name], hessian_structure="kron"
            )
            fitted.fit(batches)
        return fitted


def _validation_nll(fitted: Any, precision: float, batches: list[tuple[Tensor, Tensor]]) -> float:
    """Return the NLL of validation data at a prior precision."""
    fitted.prior_precision = precision
    with torch.no_grad():
        probs = torch.cat([fitted(x, pred_type="glm", link_approx="probit") for x, _ in batches])
    labels = torch.cat([y for _, y in batches])
    return float(functional.nll_loss(probs.clamp_min(1e-12).log(), labels))
