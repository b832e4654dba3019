"""Hamiltonian Monte Carlo (Neal 1996): samples of the exact posterior, the ground truth for small networks.

The sampling is NumPyro's, with the network translated to JAX (jax_network.py); predictions are torch's. `pip install
'infoform[hmc]'`.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from infoform.baselines.baseline import Bar, WeightBaseline, targets_of, trainable_parameters
from infoform.common.checks import check_choice, check_whole
from infoform.common.extras import needed_by
from infoform.likelihoods import Likelihood
from infoform.network.batches import batch_size, device_of, read_batch, read_inputs, read_outputs
from infoform.network.capture import evaluation_mode

KERNELS = ("nuts", "hmc")
STARTS = ("model", "prior")


@dataclass(frozen=True)
class Diagnostics:
    """How well the chains did, seen in what the networks put out: weights have symmetries that mean nothing.

    Args:
        accept_prob: mean probability of acceptance.
        divergences: number of trajectories whose energy ran away.
        steps: mean number of gradients for a sample.
        r_hat: largest R̂, split over chains: 1 where they agree, NaN where none moved.
        effective_samples: smallest number of effective samples, of all chains together; NaN where none moved.
    """

    accept_prob: float  # mean
    divergences: int  # trajectories whose energy ran away
    steps: float  # mean gradients a sample
    r_hat: float  # largest, split over chains; 1 where they agree, NaN where none moved
    effective_samples: float  # smallest, of all chains together; NaN where none moved


class HMC(WeightBaseline):
    """Weights drawn from p(θ | data) with prior N(0, I/τ), by NUTS or plain HMC; needs the extra `hmc`.

    Regression needs a known noise. Parameters with `requires_grad=False` stay fixed.

    Args:
        model: the network to start from; it is not changed.
        likelihood: name in `infoform.likelihoods.LIKELIHOODS`, or a likelihood.
        prior_precision: precision τ of the prior.
        samples: number of samples that are kept of each chain.
        warmup: number of steps that find the step size and the mass matrix, and are not kept.
        chains: number of chains.
        thinning: one step in so many is kept.
        kernel: "nuts" or "hmc".
        start: where a chain starts: "model" (the model's weights) or "prior" (a draw of it).
        target_accept: probability of acceptance that the warm-up aims at.
        trajectory_length: length of a trajectory, for "hmc".
        max_tree_depth: largest depth of the tree, for "nuts".
        seed: seed of training and of predictions.

    Raises:
        ValueError: if a setting is out of its range, or the noise of a regression is not known.

    Example:
        ```python
        import torch
        from infoform.baselines import HMC
        data = [(torch.randn(20, 3), torch.randint(2, (20,)))]
        hmc = HMC(torch.nn.Linear(3, 2), "classification", samples=5, warmup=5).fit(data, progress=False)
        assert hmc.predict(torch.randn(4, 3)).samples.shape == (5, 4, 2)
        ```
    """

    name: ClassVar[str] = "hmc"

    def __init__(
        self,
        model: nn.Module,
        likelihood: str | Likelihood,
        *,
        prior_precision: float = 1.0,
        samples: int = 1000,
        warmup: int = 1000,
        chains: int = 1,
        thinning: int = 1,
        kernel: str = "nuts",
        start: str = "model",
        target_accept: float = 0.8,
        trajectory_length: float = 6.28,
        max_tree_depth: int = 10,
        seed: int = 0,
    ) -> None:
        super().__init__(model, likelihood, seed=seed)
        check_choice("kernel", kernel, KERNELS)
        check_choice("start", start, STARTS)
        whole = {"samples": samples, "chains": chains, "thinning": thinning, "max_tree_depth": max_tree_depth}
        for name, value in whole.items():
            check_whole(name, value)
        check_whole("warmup", warmup, least=0)
        if not prior_precision > 0:
            raise ValueError(f"prior_precision must be above 0, got {prior_precision}.")
        if not 0 < target_accept < 1:
            raise ValueError(f"target_accept must be between 0 and 1, got {target_accept}.")
        if not trajectory_length > 0:
            raise ValueError(f"trajectory_length must be above 0, got {trajectory_length}.")
        if self.likelihood.free_noise:
            raise ValueError("HMC needs to know the noise of a regression; give Regression(noise=...).")
        self.prior_precision = prior_precision
        self.samples, self.warmup, self.chains, self.thinning = samples, warmup, chains, thinning
        self.kernel, self.start = kernel, start
        self.target_accept, self.trajectory_length = target_accept, trajectory_length
        self.max_tree_depth = max_tree_depth
        self.default_samples = samples * chains

    def _train(self, network: nn.Module, loader: Iterable[Any], bar: Bar) -> None:
        with needed_by("HMC needs"):
            from infoform.baselines.jax_sampler import run_chains
        network.eval()
        inputs, targets = self._data(network, loader)
        parameters = trainable_parameters(network, "sample")
        start = {name: self._start(parameter) for name, parameter in parameters.items()}
        self._drawn = run_chains(
            network,
            self.likelihood,
            inputs,
            targets,
            start=start,
            prior_precision=self.prior_precision,
            kernel=self.kernel,
            samples=self.samples,
            warmup=self.warmup,
            thinning=self.thinning,
            target_accept=self.target_accept,
            trajectory_length=self.trajectory_length,
            max_tree_depth=self.max_tree_depth,
            seed=self.seed,
            tick=bar("hmc", self.chains),
        )

    def diagnostics(self, x: Any) -> Diagnostics:
        """Return how well the chains did, by the networks' outputs at some inputs.

        Args:
            x: a tensor, a tuple of the model's arguments, or a dict of them.

        Returns:
            The diagnostics of all chains.

        Raises:
            RuntimeError: if `fit` was not called.
        """
        from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

        batch = read_inputs(x, device_of(self.network))
        with evaluation_mode(self.network), torch.no_grad():
            outputs = self._sampled_outputs(batch, self.default_samples, self.seed)
        by_chain = outputs.reshape(self.chains, self.samples, -1).double().cpu().numpy()
        with np.errstate(invalid="ignore"):  # 0 / 0 where a chain never moved
            r_hat, effective = split_gelman_rubin(by_chain).max(), effective_sample_size(by_chain).min()
        return Diagnostics(
            accept_prob=float(self._drawn.accept_prob.mean()),
            divergences=int(self._drawn.diverging.sum()),
            steps=float(self._drawn.num_steps.double().mean()),
            r_hat=float(r_hat),
            effective_samples=float(effective),
        )

    def _draw(self, count: int, seed: int) -> dict[str, Tensor]:
        total = self.samples * self.chains
        if count > total:
            raise ValueError(f"samples must be at most the {total} that HMC kept, got {count}; fit with more samples.")
        chosen = torch.arange(total)
        if count < total:
            chosen = torch.randperm(total, generator=torch.Generator().manual_seed(seed))[:count]
        return {name: value.flatten(0, 1)[chosen] for name, value in self._drawn.weights.items()}

    def _data(self, network: nn.Module, loader: Iterable[Any]) -> tuple[Tensor, Tensor]:
        inputs, targets = [], []
        for raw in loader:
            batch = read_batch(raw, device_of(network))
            if len(batch.args) != 1 or batch.kwargs or not isinstance(batch.args[0], Tensor):
                raise TypeError("HMC needs (input, target) batches with one tensor of inputs; adapt the loader.")
            if batch_size(batch) == 0:
                continue
            with torch.no_grad():
                outputs = self.likelihood.check_outputs(read_outputs(network(batch.args[0])))
            inputs.append(batch.args[0])
            targets.append(targets_of(batch, outputs, self.likelihood))
        if not inputs:
            raise ValueError("the loader gave no examples; a fit needs at least one batch.")
        return torch.cat(inputs), torch.cat(targets)

    def _start(self, parameter: nn.Parameter) -> Tensor:  # -> (chains, *shape)
        if self.start == "model":
            return parameter.detach().expand(self.chains, *parameter.shape)
        noise = torch.randn((self.chains, *parameter.shape)).to(parameter)
        return noise / math.sqrt(self.prior_precision)
