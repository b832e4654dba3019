"""Forms of a posterior that a deterministic graph can have, built from a predictor.

last-layer   the network once, then closed-form variances of the last layer                        last_layer.py
samples      M networks with sampled weights                                                       sampled.py
heads        the network once, then M sampled last layers on its features                          sampled.py
linear       over all layers needs Jacobians, which no graph computes: refused                     refusal.py
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from infoform.export.inputs import read_graph_inputs
from infoform.export.last_layer import LastLayerGraph
from infoform.export.network import Network
from infoform.export.options import AUTO, HEADS, LAST_LAYER, LINEAR, SAMPLES, ExportOptions
from infoform.export.sampled import MEANS, SampledGraph, SampledHeadsGraph
from infoform.network.batches import Batch
from infoform.network.last_layer import trace_last_layer
from infoform.network.private_copy import ModelCopy
from infoform.posteriors.network_posterior import Posterior
from infoform.predicting.predictor import Predictor


def find_head(predictor: Predictor, batch: Batch) -> str | None:
    """Return the layer that the outputs come from, if there is one and it has a posterior."""
    try:
        name = trace_last_layer(predictor.model, batch, predictor.likelihood.check_outputs)
    except ValueError:
        return None
    return name if name in predictor.posterior.layers else None


def choose_kind(predictor: Predictor, head: str | None, options: ExportOptions) -> str:
    """Return the kind that an export has: "linear", which is to be refused, where "auto" finds more than a last layer.

    Raises:
        ValueError: if a last layer is asked for, and the posterior has none.
    """
    if options.kind == AUTO:
        return LAST_LAYER if head is not None and len(predictor.posterior.layers) == 1 else LINEAR
    if options.kind in (LAST_LAYER, HEADS) and head is None:
        layers = ", ".join(f"'{name}'" for name in list(predictor.posterior.layers)[:3])
        raise ValueError(
            f"kind='{options.kind}' needs a posterior over the layer whose output is the network's output, used once, "
            f"and this one has {layers}; use kind='{SAMPLES}'."
        )
    if options.kind == LINEAR and head is not None and len(predictor.posterior.layers) == 1:
        return LAST_LAYER  # of the last layer alone, linear is one forward pass
    return options.kind


def restricted(predictor: Predictor, head: str) -> Predictor:
    """Return a predictor with the posterior of one layer; layers are independent of each other."""
    return replace(predictor, posterior=Posterior({head: predictor.posterior.layers[head]}))


def build_graph(
    predictor: Predictor,
    copy: ModelCopy,
    batch: Batch,
    *,
    kind: str,
    head: str | None,
    noise: float | None,
    options: ExportOptions,
) -> tuple[nn.Module, tuple[str, ...], tuple[Tensor, ...]]:
    """Return the graph in evaluation mode, the names of its inputs, and some examples of them.

    Args:
        predictor: the network, its posterior and its temperature.
        copy: a private copy of the network's modules, which the graph keeps.
        batch: at least one example.
        kind: "last-layer", "samples" or "heads".
        head: the last layer, for all kinds but "samples".
        noise: standard deviation of the targets, of a regression.
        options: how to export.
    """
    inputs, tensors = read_graph_inputs(copy.model, batch)
    common: dict[str, Any] = {"temperature": predictor.temperature, "noise": noise}
    scorer = None if predictor.novelty is None else predictor.novelty.on(copy)
    count, precision = options.count(kind), options.precision
    graph: nn.Module
    if kind == SAMPLES:
        deviations = _deviations(predictor.posterior, count, options.seed)
        layers = {name: predictor.layers[name] for name in deviations}
        means: dict[str, Tensor] = {}
        moved: dict[str, Tensor] = {}
        for name, layer in layers.items():
            means |= layer.as_parameters(layer.mean)
            moved |= layer.as_parameters(deviations[name].to(layer.mean))
        elsewhere = frozenset(means)
        network = Network(
            copy.model, predictor.likelihood, scorer=scorer, head=None, precision=MEANS[precision], elsewhere=elsewhere
        )
        graph = SampledGraph(network, inputs, means, moved, precision=precision, **common)
        return graph.eval(), inputs.names, tensors
    assert head is not None
    layer, posterior = predictor.layers[head].on(copy), predictor.posterior.layers[head]
    network = Network(copy.model, predictor.likelihood, scorer=scorer, head=layer, precision=precision)
    if kind == HEADS:
        drawn = _deviations(Posterior({head: posterior}), count, options.seed)[head]
        graph = SampledHeadsGraph(network, inputs, drawn, precision=precision, **common)
    else:
        graph = LastLayerGraph(
            network, inputs, posterior, link=options.link, samples=count, seed=options.seed, **common
        )
    return graph.eval(), inputs.names, tensors


def _deviations(posterior: Posterior, count: int, seed: int) -> dict[str, Tensor]:  # (M / 2, G, A) by layer
    generator = torch.Generator().manual_seed(seed)
    return posterior.sample(count // 2, generator=generator)
