"""laplace-torch's Kronecker posteriors as two rows of the run; needs an environment with the extra `peers`.

The last layer predicts by the linearised network with the probit link, all layers by networks with sampled weights: the
linearised prediction of all layers takes it minutes for a few pictures. τ is that of the least NLL on a grid; a
temperature it does not have. Batch norm is held fixed, as in ours.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from infoform.experiments.public_resnets.answered import Predict
from infoform.experiments.public_resnets.pictures import Batches
from infoform.experiments.public_resnets.settings import PEER_LAST
from infoform.likelihoods import get_likelihood
from infoform.prediction import Prediction

LAST_GRID = [10 ** (power / 2) for power in range(-8, 9)]  # of τ
ALL_GRID = [10.0**power for power in range(-1, 6)]  # each value takes as many passes as there are sampled networks


@dataclass(frozen=True)
class Peer:
    """A fitted posterior of laplace-torch."""

    fitted: Any
    network: nn.Module
    last: bool
    samples: int

    @classmethod
    def fit(cls, name: str, model: nn.Module, batches: Batches, *, samples: int) -> "Peer":
        """Fit it: Kronecker factors of the last layer, or of all layers.

        Args:
            name: A method of the run.
            model: The network, which is copied.
            batches: Training pictures.
            samples: Networks of a prediction with all layers.

        Returns:
            What tunes and predicts.

        Raises:
            ImportError: If laplace-torch is not installed.
        """
        laplace = import_module("laplace")
        network, last = copy.deepcopy(model), name == PEER_LAST
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.requires_grad_(False)
        subset = "last_layer" if last else "all"
        fitted = laplace.Laplace(network, "classification", subset_of_weights=subset, hessian_structure="kron")
        images, labels = (torch.cat(one) for one in zip(*batches, strict=True))
        data = torch.utils.data.TensorDataset(images, labels)
        fitted.fit(torch.utils.data.DataLoader(data, batch_size=100))
        return cls(fitted, network, last, samples)

    def tune(self, validation: Batches) -> tuple[Predict, dict[str, Any]]:
        """Take the τ of least NLL on validation pictures, and return what predicts with it."""
        found = {}
        for tau in LAST_GRID if self.last else ALL_GRID:
            predict = self._at(tau)
            losses = [functional.nll_loss(_log(predict(x)), y, reduction="sum") for x, y in validation]
            found[tau] = float(sum(losses)) / sum(len(y) for _, y in validation)
        best = min(found, key=lambda tau: found[tau])
        return self._at(best), {"prior_precision": best, "temperature": 1.0, "nll": found[best]}

    def _at(self, tau: float) -> Callable[[Tensor], Prediction]:
        """Return what predicts with this τ."""
        if self.last:

            def linear(x: Tensor) -> Prediction:
                self.fitted.prior_precision = tau
                with torch.no_grad():
                    probs = self.fitted(x, pred_type="glm", link_approx="probit").detach()
                return _prediction(probs[None])

            return linear
        self.fitted.prior_precision = tau
        drawn = self.fitted.sample(self.samples, generator=torch.Generator().manual_seed(0))  # (M, weights)
        parameters = [one for one in self.network.parameters() if one.requires_grad]
        mean = self.fitted.mean.clone()

        def sampled(x: Tensor) -> Prediction:
            with torch.no_grad():
                outputs = []
                for weights in drawn:
                    nn.utils.vector_to_parameters(weights, parameters)
                    outputs.append(self.network(x).softmax(1))
                nn.utils.vector_to_parameters(mean, parameters)
            return _prediction(torch.stack(outputs))

        return sampled


def _prediction(probs: Tensor) -> Prediction:  # (M, N, C)
    """Return the prediction of networks with these probabilities."""
    logits = probs.double().clamp_min(1e-12).log()
    return get_likelihood("classification").from_samples(logits, logits[0], noise=None)


def _log(prediction: Prediction) -> Tensor:  # (N, C)
    return prediction.value.clamp_min(1e-12).log()
