"""MC dropout: the mean over M passes with dropout on; Gal and Ghahramani 2016.

The network has been trained with dropout already, so a fit copies it, and for regression fits the noise. All else,
batch norm above all, stays in evaluation mode.
"""

from collections.abc import Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from infoform.baselines.baseline import Bar, Baseline
from infoform.common.randomness import isolated
from infoform.likelihoods import Likelihood
from infoform.network.batches import Batch


class MCDropout(Baseline):
    """Dropout as a posterior: networks that differ in what dropout leaves out.

    Args:
        model: a network that was trained with dropout; it is not changed.
        likelihood: name in `infoform.likelihoods.LIKELIHOODS`, or a likelihood.
        rate: rate of all dropout layers; the trained rates unless given.
        seed: seed of training and of predictions.

    Raises:
        ValueError: if the model has no dropout layer, or `rate` is not between 0 and 1.

    Example:
        ```python
        import torch
        from infoform.baselines import MCDropout
        model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 2))
        dropout = MCDropout(model, "classification").fit([], progress=False)
        assert dropout.predict(torch.randn(5, 3), samples=10).samples.shape == (10, 5, 2)
        ```
    """

    name: ClassVar[str] = "mc-dropout"

    def __init__(
        self, model: nn.Module, likelihood: str | Likelihood, *, rate: float | None = None, seed: int = 0
    ) -> None:
        super().__init__(model, likelihood, seed=seed)
        if rate is not None and not 0 < rate < 1:
            raise ValueError(f"rate must be between 0 and 1, got {rate}.")
        if not any(layer.p > 0 for layer in _dropouts(model)) and (rate is None or not _dropouts(model)):
            raise ValueError("MC dropout needs dropout layers, and the model has none; train one with nn.Dropout.")
        self.rate = rate

    def _train(self, network: nn.Module, loader: Iterable[Any], bar: Bar) -> None:
        for layer in _dropouts(network):
            layer.p = layer.p if self.rate is None else self.rate

    def _sampled_outputs(self, batch: Batch, samples: int, seed: int) -> Tensor:  # -> (M, N, C)
        layers = _dropouts(self.network)
        with isolated(seed):
            try:
                for layer in layers:
                    layer.train()
                return torch.stack([self._forward(batch) for _ in range(samples)])
            finally:
                for layer in layers:
                    layer.eval()


def _dropouts(model: nn.Module) -> list[_DropoutNd]:
    return [module for module in model.modules() if isinstance(module, _DropoutNd)]
