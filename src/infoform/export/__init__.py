"""A posterior as a file for other runtimes: ONNX, torch.export, ExecuTorch. One deterministic graph with named outputs.

predictor -> form (kinds.py) -> graph (last_layer.py, sampled.py) -> program (trace.py) -> file (targets/), compared
"""

from collections.abc import Iterable
from dataclasses import replace
from os import PathLike
from typing import Any

import torch
from torch import Tensor

from infoform.conformal import Conformal
from infoform.export.guaranteed import GuaranteedGraph, find_threshold, made_as
from infoform.export.kinds import build_graph, choose_kind, find_head, restricted
from infoform.export.losses import first_examples, measured_losses, predict_options, refusal, tuned_temperature
from infoform.export.manifest import as_text, describe_promise, make_manifest
from infoform.export.options import EXPORT_KINDS, HEADS, LAST_LAYER, LINEAR, ExportOptions
from infoform.export.outputs import OUTPUTS, Output
from infoform.export.stored_weights import PRECISIONS
from infoform.export.targets import TARGETS, Names, Target
from infoform.export.write import Export, find_target, latency, write_export
from infoform.network.batches import Batch, batch_size, cut_batch, device_of
from infoform.network.last_layer import plain_outputs
from infoform.network.private_copy import PrivateCopies
from infoform.predicting.predictor import Predictor

__all__ = ["EXPORT_KINDS", "OUTPUTS", "PRECISIONS", "TARGETS", "Export", "ExportOptions", "Output", "Target"]


def export_predictor(
    predictor: Predictor,
    path: str | PathLike[str],
    *,
    example: Batch | None,
    validation: Iterable[Any] | None,
    noise: float | None,
    conformal: Conformal | None,
    to: str | None,
    options: ExportOptions,
) -> Export:
    """Write a predictor to a file that other runtimes read; `Laplace.export` says how.

    Args:
        predictor: the network and its posterior; it is left as found.
        path: the file.
        example: inputs that the graph is traced with and compared on; the first ones of `validation` where None.
        validation: batches with targets, on which the exported form gets a temperature and its loss is measured.
        noise: standard deviation of the targets, of a regression.
        conformal: the calibration of the predictor's sets or intervals, where there is one.
        to: format; by the suffix of the file where None.
        options: which form, and how it is stored.
    """
    file, target = find_target(path, to)
    batches = None if validation is None else first_examples(validation, device_of(predictor.model))
    batch = example if example is not None else None if batches is None else batches[0]
    if batch is None:
        raise ValueError(
            "an export is traced with some inputs, and none are known here; give example=, a batch as for predict, or "
            "validation=."
        )
    _check_exportable(predictor, batch, noise=noise)
    head = find_head(predictor, batch)
    kind = choose_kind(predictor, head, options)
    if kind == LINEAR:
        losses = batches and measured_losses(predictor, head, batches, noise=noise, options=options)
        raise ValueError(refusal(losses or None, samples=options.count("samples")))
    how = None  # by which options `predict` gives the same
    if kind == LAST_LAYER and len(predictor.posterior.layers) == 1:
        link = options.link or "mc"
        how = made_as("linear", link, options.count(kind), options.seed, predictor.likelihood)
    elif kind in (LAST_LAYER, HEADS) and head is not None and len(predictor.posterior.layers) > 1:
        predictor = restricted(predictor, head)
        if batches is not None:  # the temperature of all layers is not that of one
            predictor = tuned_temperature(predictor, batches, predict_options(kind, options))
    with PrivateCopies(predictor.model).private() as copy:
        shared = copy.model is predictor.model
        if shared:
            raise ValueError(
                f"an export works on a copy of the model's modules, and {type(predictor.model).__name__} cannot be "
                "copied, since a closure or a script holds one of them; keep modules as attributes of modules."
            )
        graph, inputs, tensors = build_graph(predictor, copy, batch, kind=kind, head=head, noise=noise, options=options)
        how = how if not predictor.likelihood.has_logits or graph.link == "mc" or options.link is not None else None
        promise = find_threshold(
            graph,
            conformal=conformal,
            how=how,
            calibration=None if batches is None else _as_inputs(predictor, batches),
            level=options.coverage,
            likelihood=predictor.likelihood,
        )
        whole = graph if promise is None else GuaranteedGraph(graph, promise[0]).eval()
        with torch.no_grad():
            reference = whole(*tensors)
        names = Names(inputs, tuple(reference))
        examples = dict(zip(inputs, tensors, strict=True))
        versions = target.versions()
        manifest = make_manifest(
            predictor, graph, examples, reference, kind=kind, noise=noise, options=options, versions=versions
        )
        manifest["guarantee"] = describe_promise(promise, options.coverage)
        differences, seconds = write_export(
            whole, tensors, reference, file, target, names=names, manifest=manifest, text=as_text(manifest)
        )
    single = cut_batch(replace(batch, targets=None), slice(0, 1))
    plain = latency(lambda: plain_outputs(predictor.model, single))
    return Export(file, target.name, manifest, file.stat().st_size, differences, seconds, plain)


def _check_exportable(predictor: Predictor, batch: Batch, *, noise: float | None) -> None:
    """Raise where outputs are such as no graph is written for."""
    likelihood = predictor.likelihood
    if likelihood.joins:
        raise ValueError("an export is of a network with one head; export one that returns a single head.")
    with predictor.private() as private:
        outputs = private.outputs(batch)
    if outputs.dim() > 2:
        places = "×".join(map(str, outputs.shape[1:-1]))
        raise ValueError(
            f"an export is of one answer an example, and this network answers at {places} positions; export the "
            "network alone, or one whose outputs are (examples, outputs)."
        )
    if likelihood.plain_prediction(outputs, noise=noise).draws is not None:
        raise ValueError(
            f"an export has the probabilities of classes and labels or Gaussian numbers, and the {likelihood.name} "
            "likelihood has a density of its own, which draws targets; export the network alone."
        )


def _as_inputs(predictor: Predictor, batches: list[Batch]) -> list[tuple[tuple[Tensor, ...], Tensor]]:
    """Return the tensors and the checked targets of validation data."""
    found = []
    for batch in batches:
        assert batch.targets is not None
        tensors = tuple(batch.tensors())
        outputs = predictor.likelihood.check_outputs(plain_outputs(predictor.model, batch))
        if batch_size(batch):
            found.append((tensors, predictor.likelihood.check_targets(batch.targets, outputs)))
    return found
