"""Naive references: one example at a time, every matrix formed, nothing shared with the code under test.

∇ (G, A) of example n and Fisher vector v: autograd's gradient of f(x_n) · u_vn, bias as last column
a (S, A): the layer's convolution (or product) applied with one-hot weights, so that torch cuts the patches itself
"""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Bernoulli, Categorical, Distribution, NegativeBinomial, Normal, Poisson
from torch.func import functional_call, grad, jacrev, vjp
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.utils.hooks import RemovableHandle

from infoform.common.randomness import UniformStream
from infoform.likelihoods import (
    Classification,
    HeteroscedasticRegression,
    Likelihood,
    MultiLabel,
    Ordinal,
    Regression,
)
from infoform.likelihoods import NegativeBinomial as NegativeBinomialCounts
from infoform.likelihoods import Poisson as PoissonCounts

RTOL = 1e-9


def assert_close(actual: Tensor | None, expected: Tensor, *, rtol: float = RTOL) -> None:
    """Compare with a relative tolerance; what cancels to 0 is held to the largest entry's rounding."""
    assert actual is not None
    scale = float(expected.abs().max()) if expected.numel() else 0.0
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=rtol / 1000 * scale)


def per_example_gradients(
    model: nn.Module, layer_names: Sequence[str], x: Tensor, vectors: Tensor
) -> dict[str, Tensor]:  # vectors (V, N, C) -> (N, V, G, A) each
    """Return ∇ of every layer by `torch.func.vjp`, one example and one Fisher vector at a time."""
    model = _plain(model)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
    columns = {
        layer: [names[id(p)] for p in (module.weight, module.bias) if p is not None]
        for layer, module in ((layer, _module(model, layer)) for layer in layer_names)
    }
    gradients: dict[str, list[Tensor]] = {layer: [] for layer in layer_names}
    for n in range(len(x)):

        def output(values: dict[str, Tensor], one: Tensor = x[n : n + 1]) -> Tensor:
            return read_logits(functional_call(model, values, (one,))).reshape(-1)

        pull_back = vjp(output, parameters)[1]
        pulled = [pull_back(vector)[0] for vector in vectors[:, n]]
        for layer, own in columns.items():
            gradients[layer].append(
                torch.stack(
                    [torch.cat([as_rows(_module(model, layer), one[name]) for name in own], dim=1) for one in pulled]
                )
            )
    return {layer: torch.stack(values) for layer, values in gradients.items()}


@dataclass(frozen=True)
class Reference:
    """All that a layer's statistics are made of, example by example."""

    gradients: Tensor  # ∇ (N, V, G, A)
    inputs: list[Tensor]  # a, (H, S, A) for each example
    output_gradients: list[Tensor]  # g, (V, S, G) for each example

    @property
    def positions(self) -> float:
        return sum(a.shape[1] for a in self.inputs) / len(self.inputs)

    @property
    def input_factor(self) -> Tensor:  # (A, A)
        total = sum(torch.outer(row, row) / len(a) for a in self.inputs for group in a for row in group)
        return torch.as_tensor(total) / len(self.inputs)

    @property
    def gradient_factor(self) -> Tensor:  # (G, G)
        total = sum(torch.outer(row, row) for g in self.output_gradients for vector in g for row in vector)
        return torch.as_tensor(total) / len(self.output_gradients)

    @property
    def diagonal(self) -> Tensor:  # (G, A)
        return self.gradients.square().sum(1).mean(0)

    @property
    def block(self) -> Tensor:  # (G * A, G * A), row-major
        total = sum(torch.outer(one, one) for one in self.gradients.flatten(2).flatten(0, 1))
        return torch.as_tensor(total) / len(self.gradients)

    @property
    def input_moment(self) -> Tensor:  # E Σ_v ∇ᵀ∇ (A, A)
        total = sum(one.T @ one for one in self.gradients.flatten(0, 1))
        return torch.as_tensor(total) / len(self.gradients)

    @property
    def gradient_moment(self) -> Tensor:  # E Σ_v ∇∇ᵀ (G, G)
        total = sum(one @ one.T for one in self.gradients.flatten(0, 1))
        return torch.as_tensor(total) / len(self.gradients)

    def moments(self, basis: str) -> tuple[Tensor, Tensor]:  # (A, A), (G, G)
        """Return the matrices whose eigenvectors are that basis."""
        if basis == "activation":
            return self.input_factor, self.gradient_factor
        return self.input_moment, self.gradient_moment

    def eigenvalues(self, input_vectors: Tensor, gradient_vectors: Tensor) -> Tensor:  # (A, a), (G, g) -> (g, a)
        """Return the diagonal of Uᵀ I U with U = kron(U_G, U_A)."""
        pairs = _kron(gradient_vectors, input_vectors)
        shape = (gradient_vectors.shape[1], input_vectors.shape[1])
        return (pairs.T @ self.block @ pairs).diagonal().reshape(shape)

    def core(self, input_vectors: Tensor, gradient_vectors: Tensor, pairs: Tensor | None) -> Tensor | None:  # (M, M)
        """Return Uᵀ I U of the columns of U with these rows and columns (2, M)."""
        if pairs is None:
            return None
        chosen = _kron(gradient_vectors, input_vectors)[:, pairs[0] * input_vectors.shape[1] + pairs[1]]
        return chosen.T @ self.block @ chosen

    def residual(self, input_vectors: Tensor, gradient_vectors: Tensor) -> Tensor:  # (A, a), (G, g) -> (G, A)
        """Return the diagonal of (1 − U Uᵀ) I (1 − U Uᵀ)."""
        pairs = _kron(gradient_vectors, input_vectors)
        rest = torch.eye(len(pairs), dtype=pairs.dtype) - pairs @ pairs.T
        return (rest @ self.block @ rest).diagonal().reshape(self.gradients.shape[2:])


def log_prob(likelihood: Likelihood, output: Tensor, target: Tensor) -> Tensor:  # (C,), one target -> ()
    """Return the log density of one example as `torch.distributions` has it, regression at σ = 1."""
    if isinstance(likelihood, Classification):
        density: Distribution = Categorical(logits=output, validate_args=False)
    elif isinstance(likelihood, MultiLabel):
        density = Bernoulli(logits=output, validate_args=False)
    elif isinstance(likelihood, HeteroscedasticRegression):
        mean, log_variance = output.chunk(2)
        density = Normal(mean, (log_variance / 2).exp(), validate_args=False)
    elif isinstance(likelihood, PoissonCounts):
        density = Poisson(output.exp(), validate_args=False)
    elif isinstance(likelihood, NegativeBinomialCounts):
        shape = output.new_tensor(1 / likelihood.dispersion)
        density = NegativeBinomial(shape, logits=output - shape.log(), validate_args=False)
    elif isinstance(likelihood, Ordinal):
        below = (output.new_tensor(likelihood.thresholds) - output).sigmoid()
        density = Categorical(torch.cat([below, below.new_ones(1)]).diff(prepend=below.new_zeros(1)))
    else:
        assert isinstance(likelihood, Regression)
        scales = output.new_tensor(likelihood.scales or [1.0] * len(output))
        density = Normal(output, scales, validate_args=False)
    value = density.log_prob(target).sum()
    assert isinstance(value, Tensor)
    return value


def score_vectors(likelihood: Likelihood, outputs: Tensor, targets: Tensor) -> Tensor:  # (N, C) -> (N, C)
    """Return the gradient of the log density of every example in its outputs, by autograd."""
    score = grad(log_prob, argnums=1)
    return torch.stack([score(likelihood, one, target) for one, target in zip(outputs, targets, strict=True)])


def exact_vectors(likelihood: Likelihood, outputs: Tensor) -> Tensor:  # (N, C) -> (V, N, C)
    """Return a root of the Fisher matrix from the Hessian of −log p, which depends on no label here."""
    label = (
        torch.zeros((), dtype=torch.long) if isinstance(likelihood, Classification) else torch.zeros_like(outputs[0])
    )
    roots = []
    hessian = jacrev(jacrev(log_prob, argnums=1), argnums=1)
    for one in outputs:
        values, vectors = torch.linalg.eigh(-hessian(likelihood, one, label))
        roots.append(vectors * values.clamp_min(0).sqrt())  # (C, V)
    return torch.stack(roots).permute(2, 0, 1)


def sampled_vectors(
    likelihood: Likelihood, outputs: Tensor, *, samples: int, seed: int
) -> Tensor:  # (N, C) -> (V, N, C)
    """Return the scores of the labels that a fit with this seed draws."""
    width = likelihood.noise_width(outputs.shape[1])
    uniforms = UniformStream(seed, (samples, width)).take(len(outputs))
    scores = [score_vectors(likelihood, outputs, likelihood.sample_targets(outputs, u)) for u in uniforms.unbind(1)]
    return torch.stack(scores) / math.sqrt(samples)


def make_reference(model: nn.Module, layer_name: str, x: Tensor, vectors: Tensor) -> Reference:
    """Return the reference of one layer; `vectors` (V, N, C) as for `per_example_gradients`."""
    gradients = per_example_gradients(model, [layer_name], x, vectors)[layer_name]
    inputs, output_gradients = [], []
    for n in range(len(x)):
        a, g = _one_example(_plain(model), layer_name, x[n : n + 1], vectors[:, n])
        inputs.append(a)
        output_gradients.append(g)
    return Reference(gradients, inputs, output_gradients)


def one_hot_inputs(module: nn.Module, x: Tensor) -> Tensor:  # (N, ...) -> (H, N, S, A)
    """Return a layer's inputs by applying the layer with one-hot weights, a group at a time."""
    if isinstance(module, _ConvNd):
        patches = torch.stack([_patches(module, part) for part in x.chunk(module.groups, dim=1)])
    else:  # linear, also of another type
        rows = x.flatten(1, -2) if x.dim() > 2 else x.unsqueeze(1)  # (N, S, A)
        patches = rows.unsqueeze(0)
    if module.bias is not None:
        patches = torch.cat([patches, torch.ones_like(patches[..., :1])], dim=-1)
    return patches


def output_rows(module: nn.Module, g: Tensor) -> Tensor:  # (N, ...) -> (N, S, G)
    """Return a layer's outputs (or their gradients) with one row for each position."""
    if isinstance(module, nn.LayerNorm | nn.RMSNorm):
        return g.reshape(len(g), -1, math.prod(module.normalized_shape))
    if isinstance(module, _ConvNd | _NormBase | nn.GroupNorm):
        return g.flatten(2).transpose(1, 2) if g.dim() > 2 else g.unsqueeze(1)
    return g.flatten(1, -2) if g.dim() > 2 else g.unsqueeze(1)


def read_logits(outputs: Any) -> Tensor:
    """Return the outputs, also from an object that holds them as `.logits`."""
    logits = outputs if isinstance(outputs, Tensor) else outputs.logits
    assert isinstance(logits, Tensor)
    return logits


def _patches(module: Any, x: Tensor) -> Tensor:  # one group's (N, C, ...) -> (N, S, A)
    if isinstance(module, _ConvTransposeNd):
        return _transposed_patches(module, x)
    size = module.weight[0].numel()
    probe: nn.Module = type(module)(
        x.shape[1],
        size,
        module.kernel_size,
        stride=module.stride,
        padding=module.padding,
        dilation=module.dilation,
        padding_mode=module.padding_mode,
        bias=False,
        dtype=x.dtype,
    )
    one_hot = torch.eye(size, dtype=x.dtype).reshape(size, *module.weight.shape[1:])
    patches: Tensor = functional_call(probe, {"weight": one_hot}, (x,))
    return patches.flatten(2).transpose(1, 2)


def _transposed_patches(module: Any, x: Tensor) -> Tensor:
    channels, size = x.shape[1], x.shape[1] * math.prod(module.kernel_size)
    probe: nn.Module = type(module)(
        channels,
        size,
        module.kernel_size,
        stride=module.stride,
        padding=module.padding,
        output_padding=module.output_padding,
        dilation=module.dilation,
        bias=False,
        dtype=x.dtype,
    )
    one_hot = torch.eye(size, dtype=x.dtype).reshape(size, channels, *module.kernel_size).transpose(0, 1)
    patches: Tensor = functional_call(probe, {"weight": one_hot}, (x,))
    return patches.flatten(2).transpose(1, 2)


def _one_example(
    model: nn.Module, layer_name: str, x: Tensor, vectors: Tensor
) -> tuple[Tensor, Tensor]:  # vectors (V, C) -> (H, S, A), (V, S, G)
    twin = copy.deepcopy(model)
    target = _module(twin, layer_name)
    users = [m for m in twin.modules() if type(m) is type(target) and m.weight is target.weight]
    calls: list[tuple[nn.Module, Tensor, Tensor]] = []

    def record(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
        calls.append((module, args[0].detach().clone(), output))
        return output.clone()  # whatever is done in place afterwards is done to the copy

    handles: list[RemovableHandle] = [user.register_forward_hook(record) for user in users]
    outputs = read_logits(twin(x)).reshape(-1)
    for handle in handles:
        handle.remove()
    pulled = [
        torch.autograd.grad(outputs, [c[2] for c in calls], vector, retain_graph=True, allow_unused=True)
        for vector in vectors
    ]
    reached = [i for i in range(len(calls)) if pulled[0][i] is not None]
    inputs = torch.cat([one_hot_inputs(calls[i][0], calls[i][1])[:, 0] for i in reached], dim=1)
    rows = [torch.cat([output_rows(calls[i][0], one[i])[0] for i in reached]) for one in pulled]
    return inputs, torch.stack(rows)


def _kron(one: Tensor, other: Tensor) -> Tensor:  # torch.kron fails on a single column of a column-major matrix
    return torch.einsum("gi,aj->gaij", one, other).reshape(len(one) * len(other), -1)


class PlainAttention(nn.Module):
    """What `nn.MultiheadAttention` computes of one sequence with itself, examples first, by plain linear layers."""

    def __init__(self, fused: nn.MultiheadAttention) -> None:
        super().__init__()
        assert fused.batch_first
        assert fused.in_proj_weight is not None
        self.in_proj = nn.Linear(fused.embed_dim, 3 * fused.embed_dim)
        self.in_proj.weight, self.in_proj.bias = fused.in_proj_weight, fused.in_proj_bias
        self.out_proj = nn.Linear(fused.embed_dim, fused.embed_dim)
        self.out_proj.weight, self.out_proj.bias = fused.out_proj.weight, fused.out_proj.bias
        self.heads, self.batch_first, self.in_proj_bias = fused.num_heads, True, None  # no fused kernel

    def forward(self, x: Tensor, *_: object, **__: object) -> tuple[Tensor, None]:
        q, k, v = (one.unflatten(2, (self.heads, -1)).transpose(1, 2) for one in self.in_proj(x).chunk(3, dim=2))
        weights = (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1)
        return self.out_proj((weights @ v).transpose(1, 2).flatten(2)), None


def _plain(model: nn.Module) -> nn.Module:
    """Return a copy of the model with attentions whose linear layers are modules."""
    plain = copy.deepcopy(model).eval()
    for module in list(plain.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.MultiheadAttention):
                setattr(module, name, PlainAttention(child))
    return plain


def as_rows(module: nn.Module, x: Tensor) -> Tensor:  # (...) -> (G, A)
    """Return a parameter, or its gradient, as rows of the layer's matrix."""
    if isinstance(module, _ConvTransposeNd) and x.dim() > 1:
        groups = x.unflatten(0, (module.groups, -1)).unbind(0)  # (C / H, G / H, ...)
        return torch.cat([one.transpose(0, 1).flatten(1) for one in groups])
    return x.reshape(len(x), -1)


def _module(model: nn.Module, name: str) -> nn.Module:
    module = model.get_submodule(name)
    module = module.in_proj if isinstance(module, PlainAttention) else module
    assert isinstance(module.weight, Tensor)
    return module
