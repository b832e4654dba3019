"""What an exported file says of itself: its inputs and outputs, how to decide by them, and what it was made from."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from infoform.common.files import fingerprint
from infoform.export.guaranteed import MEANINGS, SCORE
from infoform.export.options import ExportOptions
from infoform.export.outputs import meanings
from infoform.predicting.predictor import Predictor
from infoform.prediction import FALSE_ALARMS
from infoform.version import __version__

FORMAT = "infoform-export/1"


def make_manifest(
    predictor: Predictor,
    graph: nn.Module,
    inputs: Mapping[str, Tensor],
    outputs: Mapping[str, Tensor],
    *,
    kind: str,
    noise: float | None,
    options: ExportOptions,
    versions: Mapping[str, str],
) -> dict[str, Any]:
    """Return the manifest, of values that JSON can hold.

    Args:
        predictor: what was exported.
        graph: its graph.
        inputs: examples of the inputs, by name.
        outputs: what the graph makes of them, by name.
        kind: form of the posterior.
        noise: standard deviation of the targets, of a regression.
        options: how it was exported.
        versions: of the packages that wrote the file.
    """
    said = {**meanings(tuple(outputs)), **MEANINGS}
    thresholds: dict[str, Any] = {}
    if "novelty" in outputs:
        thresholds["novelty"] = {
            "value": 1 - FALSE_ALARMS,
            "means": f"an input above it is unlike the training data; {FALSE_ALARMS:.0%} of known inputs are, too",
        }
    return {
        "format": FORMAT,
        "infoform": __version__,
        "kind": kind,
        "likelihood": predictor.likelihood.name,
        "inputs": {name: _described(one) for name, one in inputs.items()},
        "outputs": {name: {**_described(one), "means": said[name]} for name, one in outputs.items()},
        "thresholds": thresholds,
        "temperature": predictor.temperature,
        "noise": noise,
        "samples": graph.samples,
        "link": graph.link,
        "precision": options.precision,
        "seed": options.seed,
        "layers": list(predictor.posterior.layers),
        "model": type(predictor.model).__name__,
        "fingerprint": posterior_fingerprint(predictor),
        "versions": dict(versions),
    }


def describe_promise(promise: tuple[Tensor, int] | None, level: float) -> dict[str, Any] | None:
    """Return what sets or intervals promise; None where the file has none."""
    if promise is None:
        return None
    threshold, examples = promise
    return {
        "level": level,
        "score": SCORE if threshold.dim() == 0 else "std",
        "threshold": threshold.tolist(),
        "calibration_examples": examples,
        "means": f"of inputs like the calibration examples, {level:.0%} or more have the answer within; a shift of "
        "the inputs voids it, and novelty tells of one",
    }


def posterior_fingerprint(predictor: Predictor) -> str:
    """Return a hash of the network's weights and of its posterior, by which two files can be told apart."""
    digest = hashlib.sha256(json.dumps(fingerprint(predictor.model), sort_keys=True).encode())
    for name, layer in predictor.posterior.layers.items():
        digest.update(f"{name} {layer.structure} {layer.num_data} {predictor.temperature}".encode())
        digest.update(layer.diagonal().detach().cpu().double().numpy().tobytes())
    return digest.hexdigest()[:32]


def _described(one: Tensor) -> dict[str, Any]:
    return {"dtype": str(one.dtype).removeprefix("torch."), "shape": ["batch", *one.shape[1:]]}


def as_text(manifest: Mapping[str, Any]) -> str:
    """Return the manifest as JSON."""
    return json.dumps(manifest, indent=1)
