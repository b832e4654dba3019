"""Bayes by backprop (Blundell et al. 2015): independent Gaussian weights, fitted by stochastic gradients of the ELBO.

    maximise  Σ_n E_q log p(y_n | f_θ(x_n)) − β KL(q | p),     q = Π N(μ_i, σ_i²),  p = N(0, I/τ)

with θ = μ + σ ε, σ = log(1 + exp ρ), and KL in closed form. A batch b of B has the share 1/B of the KL (`kl_weighting=
"uniform"`) or 2^(B−b) / (2^B − 1), b = 1 … B ("blundell": most of it in an epoch's first batches).
"""

import math
from collections.abc import Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from infoform.baselines.baseline import Bar, WeightBaseline, log_density, targets_of, trainable_parameters
from infoform.common.checks import check_choice, check_positive, check_whole
from infoform.likelihoods import Likelihood
from infoform.network.batches import Batch, batch_size, device_of, read_batch, read_outputs

WEIGHTINGS = ("uniform", "blundell")
SCHEDULES = ("constant", "cosine")


class BBB(WeightBaseline):
    """A mean and a standard deviation for every weight; parameters with `requires_grad=False` stay fixed.

    Means start at the model's weights. The noise of a regression, if not given, is learned with the weights.

    Args:
        model: the network to start from; it is not changed.
        likelihood: name in `infoform.likelihoods.LIKELIHOODS`, or a likelihood.
        prior_precision: precision τ of the prior N(0, I/τ).
        epochs: number of epochs.
        learning_rate: learning rate of Adam.
        schedule: "constant", or "cosine": the learning rate falls to 0 along a cosine.
        samples: number of weights that a step draws.
        antithetic: whether weights are drawn in pairs ±ε.
        kl_weight: factor β of the KL divergence.
        kl_weighting: "uniform" or "blundell": how the KL divergence is shared out over the batches of an epoch.
        initial_std: standard deviations at the start.
        seed: seed of training and of predictions.

    Attributes:
        std: standard deviations by parameter name, after a fit; means are the weights of `network`.
        losses: −ELBO per example, by epoch.

    Raises:
        ValueError: if a setting is out of its range.

    Example:
        ```python
        import torch
        from infoform.baselines import BBB
        data = [(torch.randn(20, 3), torch.randint(2, (20,)))]
        bbb = BBB(torch.nn.Linear(3, 2), "classification", epochs=2).fit(data, progress=False)
        assert bbb.predict(torch.randn(5, 3)).probs.shape == (5, 2)
        ```
    """

    name: ClassVar[str] = "bbb"

    def __init__(
        self,
        model: nn.Module,
        likelihood: str | Likelihood,
        *,
        prior_precision: float = 1.0,
        epochs: int = 100,
        learning_rate: float = 1e-3,
        schedule: str = "cosine",
        samples: int = 2,
        antithetic: bool = True,
        kl_weight: float = 1.0,
        kl_weighting: str = "uniform",
        initial_std: float = 0.05,
        seed: int = 0,
    ) -> None:
        super().__init__(model, likelihood, seed=seed)
        check_positive("prior_precision", prior_precision)
        check_positive("learning_rate", learning_rate)
        check_positive("initial_std", initial_std)
        if not kl_weight >= 0:
            raise ValueError(f"kl_weight must be at least 0, got {kl_weight}.")
        check_choice("schedule", schedule, SCHEDULES)
        check_choice("kl_weighting", kl_weighting, WEIGHTINGS)
        check_whole("epochs", epochs)
        check_whole("samples", samples)
        if antithetic and samples % 2:
            raise ValueError(f"samples must be even to be drawn in pairs, got {samples}; or set antithetic=False.")
        self.prior_precision, self.initial_std = prior_precision, initial_std
        self.epochs, self.learning_rate, self.schedule = epochs, learning_rate, schedule
        self.samples, self.antithetic = samples, antithetic
        self.kl_weight, self.kl_weighting = kl_weight, kl_weighting
        self.std: dict[str, Tensor] = {}  # σ by parameter name, after a fit; means are those of `network`
        self.losses: list[float] = []  # −ELBO per example, by epoch

    def _train(self, network: nn.Module, loader: Iterable[Any], bar: Bar) -> None:
        means = trainable_parameters(network, "train")
        raw_start = math.log(math.expm1(self.initial_std))  # softplus⁻¹
        raw = {name: nn.Parameter(torch.full_like(mean, raw_start)) for name, mean in means.items()}
        examples, batches = _count(loader, device_of(network))
        log_noise = self._initial_log_noise(network, loader)
        free = [log_noise] if log_noise is not None and log_noise.requires_grad else []
        optimizer = torch.optim.Adam([*means.values(), *raw.values(), *free], lr=self.learning_rate)
        total = self.epochs * batches
        rates = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: self._rate(step / total))
        tick = bar("bbb", self.epochs)
        network.train()
        self.losses = []
        for _ in range(self.epochs):
            loss_sum = 0.0
            for index, given in enumerate(loader):
                batch = read_batch(given, device_of(network))
                fit = self._expected_log_density(network, batch, means, raw, log_noise)
                penalty = self.kl_weight * sum(self._divergence(means[name], raw[name]) for name in means)
                # the same factor for every batch, so that a smaller last one does not count for more
                loss = (self._share(index, batches) * penalty - fit) * batches / examples
                if not bool(loss.isfinite()):
                    raise ValueError(f"the ELBO is not finite in epoch {len(self.losses) + 1}; lower learning_rate.")
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                rates.step()
                loss_sum += float(loss.detach()) / batches
            self.losses.append(loss_sum)
            tick(1)
        network.eval()
        self.std = {name: functional.softplus(value.detach()) for name, value in raw.items()}
        self.noise = None if log_noise is None else float(log_noise.detach().exp())

    def _expected_log_density(
        self,
        network: nn.Module,
        batch: Batch,
        means: dict[str, nn.Parameter],
        raw: dict[str, nn.Parameter],
        log_noise: Tensor | None,
    ) -> Tensor:
        """Return the mean over draws of the weights of Σ_n log p of a batch."""
        noise = None if log_noise is None else log_noise.exp()
        total = torch.zeros((), device=device_of(network))
        epsilon: dict[str, Tensor] = {}
        for index in range(self.samples):
            if self.antithetic and index % 2:
                epsilon = {name: -value for name, value in epsilon.items()}
            else:
                epsilon = {name: torch.randn_like(mean) for name, mean in means.items()}
            weights = {name: means[name] + functional.softplus(raw[name]) * epsilon[name] for name in means}
            outputs = functional_call(network, weights, batch.args, batch.kwargs)
            outputs = self.likelihood.check_outputs(read_outputs(outputs))
            targets = targets_of(batch, outputs, self.likelihood)
            total = total + log_density(self.likelihood, outputs, targets, noise).sum()
        return total / self.samples

    def _divergence(self, mean: Tensor, raw: Tensor) -> Tensor:
        """Return KL(N(μ, σ²) | N(0, 1/τ)), summed."""
        std = functional.softplus(raw)
        log_ratio = 2 * std.log() + math.log(self.prior_precision)
        return 0.5 * (self.prior_precision * (std**2 + mean**2) - 1 - log_ratio).sum()

    def _share(self, index: int, batches: int) -> float:
        """Return the share of the KL that a batch of an epoch has; they add up to 1."""
        if self.kl_weighting == "uniform":
            return 1 / batches
        return 0.5 ** (index + 1) / (1 - 0.5**batches)  # 2^(B−b) / (2^B − 1), without overflow

    def _rate(self, done: float) -> float:
        return 0.5 * (1 + math.cos(math.pi * done)) if self.schedule == "cosine" else 1.0

    def _initial_log_noise(self, network: nn.Module, loader: Iterable[Any]) -> Tensor | None:
        """Return log σ: the given one, or a parameter that starts at the residuals of the model as it is."""
        self._network = network
        noise = self._fitted_noise(loader)
        self._network = None
        if noise is None:
            return None
        start = next(network.parameters()).new_tensor(noise).log().detach()
        return nn.Parameter(start) if self.likelihood.free_noise else start

    def _draw(self, count: int, seed: int) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        means = dict(self.network.named_parameters())
        drawn = {}
        for name, std in self.std.items():
            noise = torch.randn((count, *std.shape), generator=generator, dtype=std.dtype).to(std.device)
            drawn[name] = means[name].detach() + std * noise
        return drawn


def _count(loader: Iterable[Any], device: torch.device) -> tuple[int, int]:
    sizes = [batch_size(read_batch(raw, device)) for raw in loader]
    if sum(sizes) == 0:
        raise ValueError("the loader gave no examples; a fit needs at least one batch.")
    return sum(sizes), len(sizes)
