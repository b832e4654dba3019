"""What every baseline does alike: settings, then a fit on a copy of the model, then predictions of M networks.

A baseline is a final class of `Baseline`, which tells how it trains and what M networks put out, or, if those networks
differ in their weights alone, of `WeightBaseline`, which tells how it trains and draws weights.
"""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call
from typing_extensions import Self

from infoform.common.checks import check_whole
from infoform.common.progress import known_length, progress_bar
from infoform.common.randomness import isolated
from infoform.common.vmap_or_loop import VMAP_WEIGHTS, vmap_or_loop
from infoform.likelihoods import DataSummary, Likelihood, get_likelihood
from infoform.network.batches import Batch, batch_size, device_of, read_batch, read_inputs, read_outputs
from infoform.network.capture import evaluation_mode
from infoform.prediction import Prediction, join_predictions

VMAP_NUMBERS = 2**22  # weights and outputs of layers of all networks that are run at a time, about

Bar = Callable[[str, int | None], Callable[[int], None]]  # description and total -> tick


class Baseline(ABC):
    """A likelihood and a model, which is never changed: training is done on a copy of it, `network`.

    Args:
        model: the network to start from; it is not changed.
        likelihood: name in `infoform.likelihoods.LIKELIHOODS`, or a likelihood.
        seed: seed of training and of predictions.

    Attributes:
        default_samples: number of networks of a prediction where it is not given.
        noise: standard deviation of the targets after a fit, for regression; else None.

    Raises:
        TypeError: if `model` is no `torch.nn.Module`.
        ValueError: if no likelihood has that name.

    Example:
        ```python
        import torch
        from infoform.baselines import BASELINES
        data = [(torch.randn(20, 3), torch.randn(20, 1))]
        swa = BASELINES["swa"](torch.nn.Linear(3, 1), "regression", epochs=2).fit(data, progress=False)
        assert swa.predict(torch.randn(5, 3)).mean.shape == (5, 1)
        ```
    """

    name: ClassVar[str]

    def __init__(self, model: nn.Module, likelihood: str | Likelihood, *, seed: int = 0) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}.")
        self.model = model
        self.likelihood = get_likelihood(likelihood)
        self.seed = seed
        self.default_samples = 100  # networks of a prediction where their number is not given; a fit may set it
        self.noise: float | None = None  # of regression; a fit sets it
        self._network: nn.Module | None = None

    @abstractmethod
    def _train(self, network: nn.Module, loader: Iterable[Any], bar: Bar) -> None:
        """Train this copy of the model; `self.noise` may be set here, and is else fitted to the residuals.

        Global generators are seeded by `self.seed`, and put back afterwards.
        """

    @abstractmethod
    def _sampled_outputs(self, batch: Batch, samples: int, seed: int) -> Tensor:  # -> (M, N, C)
        """Return the outputs of M networks; called in evaluation mode and without gradients."""

    def fit(self, loader: Iterable[Any], *, progress: bool = True) -> Self:
        """Train on the loader's data.

        Args:
            loader: (input, target) tuples or dicts, as in `Laplace.fit`.
            progress: whether to show a progress bar.

        Returns:
            This baseline, fitted.

        Raises:
            ValueError: if the loader gives no examples or no targets, or the training fails.
        """
        network = copy.deepcopy(self.model)
        self._network, self.noise = None, None
        with isolated(self.seed, loader=loader):
            with progress_bar(progress) as bar:
                self._train(network, loader, bar)
            self._network = network
            if self.noise is None:
                self.noise = self._fitted_noise(loader)
        return self

    @property
    def network(self) -> nn.Module:
        """Return the trained copy of the model.

        Raises:
            RuntimeError: if `fit` was not called.
        """
        if self._network is None:
            raise RuntimeError(f"this {type(self).__name__} is not fitted yet; call fit(loader) first.")
        return self._network

    def predict(self, x: Any, *, samples: int | None = None, seed: int | None = None) -> Prediction:
        """Return the prediction for a batch of inputs.

        Args:
            x: a tensor, a tuple of the model's arguments, or a dict of them.
            samples: number of networks; `default_samples` unless given.
            seed: seed of the networks; the baseline's own unless given.

        Returns:
            The prediction.

        Raises:
            RuntimeError: if `fit` was not called.
            ValueError: if the batch is empty, or `samples` is not a number of networks that can be had.
        """
        return self._predict(read_inputs(x, device_of(self.network)), samples, seed)

    def predict_loader(
        self, loader: Iterable[Any], *, samples: int | None = None, seed: int | None = None, progress: bool = True
    ) -> tuple[Prediction, Tensor | None]:
        """Return one prediction for all of a loader's data.

        Args:
            loader: inputs, (input, target) tuples or dicts.
            samples: number of networks; `default_samples` unless given.
            seed: seed of the networks; the baseline's own unless given.
            progress: whether to show a progress bar.

        Returns:
            The prediction, and all targets where every batch has them, else None.

        Raises:
            RuntimeError: if `fit` was not called.
            ValueError: if the loader gives no examples.
        """
        device = device_of(self.network)
        parts: list[Prediction] = []
        targets: list[Tensor] = []
        with isolated(self.seed if seed is None else seed, loader=loader), progress_bar(progress) as bar:
            tick = bar("predict", length_of(loader))
            for raw in loader:
                batch = read_batch(raw, device)
                parts.append(self._predict(batch, samples, seed))
                if batch.targets is not None:
                    targets.append(self.likelihood.check_targets(batch.targets, parts[-1].plain))
                tick(len(parts[-1]))
        if not parts:
            raise ValueError("the loader gave no examples to predict.")
        return join_predictions(parts), torch.cat(targets) if len(targets) == len(parts) else None

    def _predict(self, batch: Batch, samples: int | None, seed: int | None) -> Prediction:
        count = self.default_samples if samples is None else samples
        check_whole("samples", count)
        if batch_size(batch) == 0:
            raise ValueError("a batch must have at least one example to predict, got none; check the inputs.")
        with evaluation_mode(self.network), torch.no_grad():
            drawn = self._sampled_outputs(batch, count, self.seed if seed is None else seed)
            return self.likelihood.from_samples(drawn, self._forward(batch), noise=self.noise)

    def _forward(self, batch: Batch, state: Mapping[str, Tensor] | None = None) -> Tensor:  # -> (N, C)
        """Return the outputs of the trained network, or of that with these parameters and buffers instead."""
        outputs = functional_call(self.network, dict(state or {}), batch.args, batch.kwargs)
        return self.likelihood.check_outputs(read_outputs(outputs))

    def _fitted_noise(self, loader: Iterable[Any]) -> float | None:
        if not self.likelihood.free_noise:
            return self.likelihood.fitted_noise(DataSummary(0, 0, None))  # the given one, or none
        examples, num_outputs, total = 0, 0, 0.0
        with evaluation_mode(self.network), torch.no_grad():
            for raw in loader:
                batch = read_batch(raw, device_of(self.network))
                outputs = self._forward(batch)
                targets = targets_of(batch, outputs, self.likelihood)
                total += float(self.likelihood.log_prob(outputs.double(), targets.double()).sum())
                examples, num_outputs = examples + len(outputs), outputs.shape[1]
        return self.likelihood.fitted_noise(DataSummary(examples, num_outputs, total))


class WeightBaseline(Baseline):
    """A baseline that draws the weights of its networks.

    Args:
        model: the network to start from; it is not changed.
        likelihood: name in `infoform.likelihoods.LIKELIHOODS`, or a likelihood.
        seed: seed of training and of predictions.

    Example:
        ```python
        import torch
        from infoform.baselines import BBB
        data = [(torch.randn(20, 3), torch.randint(2, (20,)))]
        bbb = BBB(torch.nn.Linear(3, 2), "classification", epochs=2).fit(data, progress=False)
        assert bbb.sample(5)["weight"].shape == (5, 2, 3)
        ```
    """

    @abstractmethod
    def _draw(self, count: int, seed: int) -> dict[str, Tensor]:
        """Return `count` sets of parameters (and buffers, where they differ), by name, (count, *shape) each."""

    def sample(self, n: int, *, seed: int | None = None) -> dict[str, Tensor]:
        """Draw weights, for `torch.func.functional_call`.

        Args:
            n: number of sets of weights.
            seed: seed of the draws; the baseline's own unless given.

        Returns:
            The weights by parameter name, (n, *shape) each.

        Raises:
            RuntimeError: if `fit` was not called.
            ValueError: if `n` is not a whole number of at least 1.
        """
        check_whole("n", n)
        assert self.network is not None
        return self._draw(n, self.seed if seed is None else seed)

    def _sampled_outputs(self, batch: Batch, samples: int, seed: int) -> Tensor:
        drawn = self._draw(samples, seed)
        step = self._networks_at_once(batch)
        parts = []
        for start in range(0, samples, step):
            part = {name: value[start : start + step] for name, value in drawn.items()}
            parts.append(vmap_or_loop(lambda one: self._forward(batch, one), part, min(step, samples - start)))
        return torch.cat(parts)

    def _networks_at_once(self, batch: Batch) -> int:
        shapes = [parameter.shape for parameter in self.network.parameters()]
        weights = sum(map(math.prod, shapes))
        if weights > VMAP_WEIGHTS:
            return 1
        outputs = sum(shape[0] for shape in shapes if shape)  # of all layers, for one example
        return max(1, VMAP_NUMBERS // (weights + batch_size(batch) * outputs))


def log_density(likelihood: Likelihood, outputs: Tensor, targets: Tensor, noise: Tensor | None) -> Tensor:  # -> (N,)
    """Return log p(y | f) of every example, of regression at the noise σ: N(y; f, σ² s²) = N(y/σ; f/σ, s²) / σ^C."""
    if noise is None:
        return likelihood.log_prob(outputs, targets)
    return likelihood.log_prob(outputs / noise, targets / noise) - outputs.shape[1] * noise.log()


def targets_of(batch: Batch, outputs: Tensor, likelihood: Likelihood) -> Tensor:
    """Return the targets of a training batch, checked."""
    if batch.targets is None:
        raise ValueError("training needs targets, got inputs alone; give (input, target) batches.")
    return likelihood.check_targets(batch.targets, outputs.detach())


def trainable_parameters(network: nn.Module, purpose: str) -> dict[str, nn.Parameter]:
    """Return the parameters with `requires_grad=True`, by name; `purpose` says in an error what they are for."""
    parameters = {name: parameter for name, parameter in network.named_parameters() if parameter.requires_grad}
    if not parameters:
        raise ValueError(f"the model must have a parameter with requires_grad=True to {purpose}, got none.")
    return parameters


def length_of(loader: Iterable[Any]) -> int | None:
    """Return the number of batches where the loader knows it."""
    return known_length(loader)
