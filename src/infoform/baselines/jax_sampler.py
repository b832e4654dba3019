"""Hamiltonian Monte Carlo over a network's weights by NumPyro; needs the extra `hmc`.

U(θ) = − Σ_n log p(y_n | f_θ(x_n)) + τ/2 |θ|²
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import Array, lax
from numpyro.infer import HMC, NUTS
from torch import Tensor, nn

from infoform.baselines.jax_network import translate
from infoform.likelihoods import Classification, Likelihood, MultiLabel, Regression

FIELDS = ("accept_prob", "diverging", "num_steps")


@dataclass(frozen=True)
class Chains:
    """What the sampler gives: weights by name (chains, samples, *shape), and how it went, (chains, samples) each."""

    weights: dict[str, Tensor]
    accept_prob: Tensor
    diverging: Tensor
    num_steps: Tensor


def _regression(likelihood: Regression, f: Array, y: Array) -> Array:
    assert likelihood.noise is not None
    scales = likelihood.noise * jnp.asarray(likelihood.scales or 1.0, dtype=f.dtype)
    return -0.5 * jnp.sum(((y - f) / scales) ** 2)  # up to a constant, as all here


def _classification(likelihood: Classification, f: Array, y: Array) -> Array:
    return jnp.sum(jnp.take_along_axis(jax.nn.log_softmax(f), y[:, None], axis=1))


def _multilabel(likelihood: MultiLabel, f: Array, y: Array) -> Array:
    return jnp.sum(y * jax.nn.log_sigmoid(f) + (1 - y) * jax.nn.log_sigmoid(-f))


LOG_LIKELIHOODS: dict[type[Likelihood], Callable[[Any, Array, Array], Array]] = {
    Regression: _regression,
    Classification: _classification,
    MultiLabel: _multilabel,
}


def make_potential(
    network: nn.Module, likelihood: Likelihood, inputs: Tensor, targets: Tensor, prior_precision: float
) -> Callable[[Mapping[str, Array]], Array]:
    """Return U as a function of the parameters that require gradients, by name."""
    if type(likelihood) not in LOG_LIKELIHOODS:
        known = ", ".join(kind.__name__ for kind in LOG_LIKELIHOODS)
        raise TypeError(f"the likelihood must be one of {known} to be run by JAX, got {type(likelihood).__name__}.")
    log_likelihood = LOG_LIKELIHOODS[type(likelihood)]
    forward = translate(network)
    names = {id(parameter): name for name, parameter in network.named_parameters() if parameter.requires_grad}
    every = network.named_parameters(remove_duplicate=False)
    free = {
        alias: names[id(parameter)] for alias, parameter in every if id(parameter) in names
    }  # tied ones have several
    fixed = {name: _array(value) for name, value in network.state_dict().items() if name not in free}
    x, y = _array(inputs), _array(targets)

    def potential(weights: Mapping[str, Array]) -> Array:
        outputs = forward({**fixed, **{alias: weights[name] for alias, name in free.items()}}, x)
        outputs = outputs[:, None] if outputs.ndim == 1 else outputs
        penalty = sum(jnp.sum(weight**2) for weight in weights.values())
        return 0.5 * prior_precision * penalty - log_likelihood(likelihood, outputs, y)

    return potential


def run_chains(
    network: nn.Module,
    likelihood: Likelihood,
    inputs: Tensor,
    targets: Tensor,
    *,
    start: Mapping[str, Tensor],  # (chains, *shape)
    prior_precision: float,
    kernel: str,
    samples: int,
    warmup: int,
    thinning: int,
    target_accept: float,
    trajectory_length: float,
    max_tree_depth: int,
    seed: int,
    tick: Callable[[int], None],
) -> Chains:
    """Run one chain from every start, after a warm-up that finds step size and a diagonal mass matrix."""
    first = next(iter(start.values()))
    with jax.enable_x64(True) if first.dtype == torch.float64 else nullcontext():
        potential = make_potential(network, likelihood, inputs, targets, prior_precision)
        common = {"potential_fn": potential, "target_accept_prob": target_accept}
        rule = (
            NUTS(**common, max_tree_depth=max_tree_depth)
            if kernel == "nuts"
            else HMC(**common, trajectory_length=trajectory_length)
        )

        def step(state: Any, count: Array) -> tuple[Any, Any]:
            state = lax.fori_loop(0, count, lambda _, one: rule.sample(one, (), {}), state)
            return state, (state.z, {name: getattr(state, name) for name in FIELDS})

        @jax.jit  # once for all chains; MCMC of NumPyro compiles anew for each
        def run(key: Array, begin: Mapping[str, Array]) -> Any:
            state = rule.init(key, warmup, begin, (), {})
            steps = jnp.full(samples, thinning).at[0].add(warmup)  # the warm-up goes before the first that is kept
            return lax.scan(step, state, steps)[1]

        drawn: list[dict[str, Tensor]] = []
        fields: list[dict[str, Tensor]] = []
        for chain, key in enumerate(jax.random.split(jax.random.key(seed), len(first))):
            z, extra = run(key, {name: _array(value[chain]) for name, value in start.items()})
            drawn.append({name: _tensor(value).to(first) for name, value in z.items()})
            fields.append({name: _tensor(value) for name, value in extra.items()})
            tick(samples)
    weights = {name: torch.stack([one[name] for one in drawn]) for name in start}
    return Chains(weights, **{name: torch.stack([one[name] for one in fields]) for name in FIELDS})


def _array(value: Tensor) -> Array:
    return jnp.asarray(value.detach().cpu().numpy())


def _tensor(value: Array) -> Tensor:
    return torch.from_numpy(np.array(value))
