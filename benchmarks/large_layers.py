"""How close structures come to the exact information matrix of layers that are far too large to form it.

    python -m benchmarks.large_layers             # writes benchmarks/results/large_layers.json, with INFOFORM_DATA set
    python -m benchmarks.large_layers --page      # writes docs/large-layers.md from it, runs nothing

Networks trained for an epoch on 20,000 digits of MNIST. A linear layer's ∇_n = g_n a_nᵀ gives all that a Frobenius
norm needs without I = E vec(∇) vec(∇)ᵀ itself:

    |I|² = E_nm (a_nᵀa_m)² (g_nᵀg_m)²,    tr(I P) = E_n vec(∇_n)ᵀ P vec(∇_n),    diag(I) = E g² a²

and |P|² follows from P's own form. The error is |off(P − I)| / |off(I)|, in float64, for the very gradients (one Monte
Carlo sample an example) that the fit saw; a diagonal alone has 1.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from benchmarks.common import (
    command_line,
    laplace_of,
    read_results,
    run_fold,
    template,
    versions,
    write_page,
    write_results,
)
from benchmarks.speed.networks import lenet, perceptron
from torch import Tensor, nn
from torch.nn import functional

import infoform
from infoform.common.randomness import UniformStream
from infoform.curvature.curvature import Curvature
from infoform.curvature.eigenbasis import expanded_diagonal
from infoform.data import mnist
from infoform.likelihoods import get_likelihood
from infoform.network.batches import read_batch
from infoform.network.capture import Call, capturing
from infoform.pages.markdown import table
from infoform.pages.numbers import span
from infoform.posteriors import InfPosterior

EXAMPLES = {"mlp": 10_000, "lenet": 5_000}
TITLES = {"mlp": "MLP 784-1024-1024-10", "lenet": "The paper's LeNet"}
COLUMNS = 64  # of a basis, by default
WAYS: dict[str, dict[str, Any]] = {
    "inf": {},
    "inf, basis_floor=0": {"basis_floor": 0.0},
    "inf, basis_floor=0.5": {"basis_floor": 0.5},
    "inf, whole bases": {"basis_size": None},
    "inf, rank 400": {"rank": 400},
    "inf, basis_data=0.5": {"basis_data": 0.5},
    "inf, basis_data=0.25": {"basis_data": 0.25},
    "inf-paper": {"structure": "inf-paper"},
    "efb": {"structure": "efb"},
    "efb-paper": {"structure": "efb-paper"},
    "kfac": {"structure": "kfac"},
}
Batches = Sequence[tuple[Tensor, Tensor]]


class Exact:
    """What is needed of the exact matrix of one layer."""

    def __init__(self, inputs: Tensor, outputs: Tensor) -> None:  # (N, A), (N, G)
        self.a, self.g = inputs.double(), outputs.double()
        count = len(inputs)
        parts = zip(self.a.split(1000), self.g.split(1000), strict=True)
        self.square = float(sum(((a @ self.a.T) * (g @ self.g.T)).square().sum() for a, g in parts)) / count**2
        self.diagonal = (self.g**2).T @ self.a**2 / count  # (G, A)

    def error(self, square: float, inner: float, diagonal: Tensor) -> float:
        """Return the off-diagonal error of a P with this |P|², tr(I P) and diagonal."""
        difference = float((diagonal - self.diagonal).square().sum())
        off = self.square - float(self.diagonal.square().sum())
        squared = (self.square - 2 * inner + square - difference) / off
        return float(max(0.0, squared) ** 0.5)

    def kfac(self, curvature: Curvature) -> float:
        assert curvature.input_factor is not None
        assert curvature.gradient_factor is not None
        a, g = curvature.input_factor.double(), curvature.gradient_factor.double()
        inner = float((((self.a @ a) * self.a).sum(1) * ((self.g @ g) * self.g).sum(1)).mean())
        return self.error(float(a.square().sum() * g.square().sum()), inner, torch.outer(g.diag(), a.diag()))

    def efb(self, curvature: Curvature, basis: str) -> float:
        eigen = curvature.bases[basis]
        u, v, values = (x.double() for x in (eigen.gradient_vectors, eigen.input_vectors, eigen.eigenvalues))
        inner = float((values * ((self.g @ u).square().T @ (self.a @ v).square())).sum()) / len(self.a)
        return self.error(float(values.square().sum()), inner, expanded_diagonal(v, u, values))

    def inf(self, layer: InfPosterior) -> float:
        """P = D + C Cᵀ with C = S U_T L: |P|² = |D|² + 2 tr(D C Cᵀ) + |CᵀC|²."""
        u, v = layer.gradient_vectors.double(), layer.input_vectors.double()
        (rows, columns), root, rest = layer.indices, layer._root.double(), layer.remainder.double()
        scale = torch.ones_like(rest) if layer.scale is None else layer.scale.double()
        diagonal = layer.diagonal().double() - layer.prior.precision
        inner = float((rest * self.diagonal).sum())
        for a, g in zip(self.a.split(250), self.g.split(250), strict=True):
            spread = torch.stack([(g * ((a * one) @ scale.T)) @ u for one in v.T], dim=2)  # (n, g, a)
            inner += float((spread[:, rows, columns] @ root).square().sum()) / len(self.a)
        gram = u.new_zeros(len(rows), len(rows))
        for some, own in zip(scale.square().split(64), u[:, rows].split(64), strict=True):  # rows of the layer
            by_column = torch.stack([some @ (v * one.unsqueeze(1)) for one in v.T], dim=1)  # (n, a, a)
            gram += torch.einsum("gk,gkl,gl->kl", own, by_column[:, columns][:, :, columns], own)
        low_rank = float((root.T @ gram @ root).square().sum())
        square = float((rest**2).sum() + 2 * (rest * (diagonal - rest)).sum()) + low_rank
        return self.error(square, inner, diagonal)


def exact_layers(model: nn.Module, laplace: infoform.Laplace, batches: Batches) -> dict[str, Exact]:
    """Return the exact matrices of a model's linear layers, for the labels that a fit with seed 0 samples."""
    likelihood = get_likelihood("classification")
    layers = {name: one for name, one in laplace.layers.items() if isinstance(one.module, nn.Linear)}
    seen: dict[str, tuple[list[Tensor], list[Tensor]]] = {name: ([], []) for name in layers}
    stream: UniformStream | None = None

    def sink(name: str, calls: list[Call]) -> None:
        (call,) = calls
        assert call.gradients is not None
        rule = layers[name].rule
        seen[name][0].append(rule.inputs(call.module, call.inputs)[0, :, 0])
        seen[name][1].append(rule.gradients(call.module, call.gradients)[0, :, 0])

    with capturing(model, layers) as capture:
        for batch in batches:
            outputs = capture.forward(read_batch(batch, torch.device("cpu")))
            stream = stream or UniformStream(0, (1, likelihood.noise_width(outputs.shape[1])))
            uniforms = stream.take(len(outputs))
            (vector,) = likelihood.fisher_vectors(outputs.detach(), "mc", targets=None, uniforms=uniforms)
            capture.backward(outputs, vector, sink)
    return {name: Exact(torch.cat(inputs), torch.cat(outputs)) for name, (inputs, outputs) in seen.items()}


def layer_errors(model: nn.Module, batches: Batches, options: dict[str, Any], exact: dict[str, Exact] | None = None
                 ) -> tuple[dict[str, float], dict[str, Exact]]:  # fmt: skip
    """Return the off-diagonal errors of a fit by layer, and what they were compared with."""
    laplace = laplace_of(model, "classification", prior="isotropic", **options).fit(batches, progress=False)
    exact = exact or exact_layers(model, laplace, batches)
    structure = options.get("structure", "inf")
    posterior = laplace.posterior(num_data=1.0, prior_precision=1e-12).layers
    errors = {}
    for name, one in exact.items():
        layer, curvature = posterior[name], laplace.curvature[name]
        if isinstance(layer, InfPosterior):
            errors[name] = one.inf(layer)
        elif structure == "kfac":
            errors[name] = one.kfac(curvature)
        else:
            errors[name] = one.efb(curvature, next(iter(curvature.bases)))
    return errors, exact


MODELS: dict[str, Callable[[], nn.Module]] = {"mlp": partial(perceptron, 1024), "lenet": partial(lenet, 32, 64, 1024)}


def measure(name: str, ways: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return the errors of these ways, by layer."""
    torch.manual_seed(0)
    whole = mnist.load("train")
    images, labels = whole.scaled(mnist.MEAN, mnist.STD), whole.labels
    model = MODELS[name]()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for part in torch.randperm(20_000).split(128):
        optimizer.zero_grad()
        functional.cross_entropy(model(images[part]), labels[part]).backward()
        optimizer.step()
    count = EXAMPLES[name]
    batches = list(zip(images[:count].split(128), labels[:count].split(128), strict=True))
    exact = None
    found = {}
    for way in ways:
        errors, exact = layer_errors(model, batches, WAYS[way], exact)
        found[way] = {f"{layer} {one.g.shape[1]} × {one.a.shape[1]}": errors[layer] for layer, one in exact.items()}
        print(name, way, found[way], flush=True)
    return found


def page() -> str:
    """Return docs/large-layers.md."""
    found = read_results("large_layers")
    settings, errors = found["settings"], found["errors"]
    layers = [layer for ways in errors.values() for layer in ways["inf"]]
    text = template("large_layers")
    tables = [
        text.part("network").fill(
            title=TITLES[name], examples=f"{settings['examples'][name]:,}", table=_errors_table(ways)
        )
        for name, ways in errors.items()
    ]
    return text.fill(
        largest=f"{max(_weights(layer) for layer in layers) / 1e6:.1f} million",
        inf_span=span([error for ways in errors.values() for error in ways["inf"].values()]),
        kfac_span=span([error for ways in errors.values() for error in ways["kfac"].values()]),
        tables="\n\n".join(tables),
        columns=COLUMNS,
        trained=f"{settings['trained']:,}",
        rank=settings["rank"],
        run=run_fold({key: value for key, value in settings.items() if key != "ways"}, found["versions"]),
    )


def _errors_table(ways: dict[str, dict[str, float]]) -> str:
    layers = list(next(iter(ways.values())))
    lines = []
    for way, errors in ways.items():
        structure, *option = way.split(", ")
        lines.append([", ".join([f"`{structure}`", *option]), *(f"{errors[layer]:.3f}" for layer in layers)])
    return table(["", *(f"layer {layer}" for layer in layers)], lines)


def _weights(layer: str) -> int:
    """Return the weights of a layer from its key, `NAME G × A`."""
    _, outputs, _, inputs = layer.split()
    return int(outputs) * int(inputs)


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--ways", nargs="+", choices=WAYS, help="measure these alone, and keep the others' numbers")
    asked = parser.parse_args()
    if not asked.page:
        before = read_results("large_layers")["errors"] if asked.ways else {}
        errors = {}
        for name in MODELS:
            found = before.get(name, {}) | measure(name, asked.ways or list(WAYS))
            errors[name] = {way: found[way] for way in WAYS if way in found}
        settings = {"examples": EXAMPLES, "rank": 100, "trained": 20_000, "seed": 0, "ways": WAYS}
        write_results("large_layers", {"settings": settings, "versions": versions(), "errors": errors})
    write_page("large-layers", page())


if __name__ == "__main__":
    main()
