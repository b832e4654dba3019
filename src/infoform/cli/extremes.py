"""The examples worth looking at: those a prediction is most and least sure of, and those it was wrong about."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from infoform.cli.pictures import Tones, as_image, png
from infoform.network.batches import batch_size, device_of, read_batch, read_outputs

if TYPE_CHECKING:
    from torch import nn

    from infoform.cli.run_folder import OpenRun
    from infoform.cli.sources import Data
    from infoform.prediction import Prediction

SHOWN = 8  # of each
TOP = 3  # classes told of an example
NUMBERS = 12  # columns told of an example that is no picture
OTHER_ORDER = "the data come in another order each time: examples are told without their inputs."


def choose(predicted: "Prediction", targets: Tensor | None) -> dict[str, list[int]]:
    """Return the positions of the examples, the most telling first."""
    order = predicted.entropy.argsort(descending=True, stable=True)
    found = {"least_certain": order[:SHOWN].tolist(), "most_certain": order.flip(0)[:SHOWN].tolist()}
    if targets is None:
        return found
    if predicted.probs is not None and targets.dim() == 1:
        wrong = (predicted.labels != targets.to(predicted.labels.device)).nonzero()[:, 0]
        surest = predicted.confidence[wrong].argsort(descending=True, stable=True)
        found["confidently_wrong"] = wrong[surest][:SHOWN].tolist()
    elif predicted.mean is not None:
        distance = (targets.to(predicted.mean).reshape(predicted.mean.shape) - predicted.mean).abs() / predicted.std
        found["farthest_off"] = distance.amax(1).argsort(descending=True, stable=True)[:SHOWN].tolist()
    return found


def describe(
    run: "OpenRun", data: "Data", predicted: "Prediction", targets: Tensor | None
) -> tuple[dict[str, list[dict[str, Any]]], str | None]:
    """Return the chosen examples, each with what was said of it and what it looks like, and what users should know."""
    chosen = choose(predicted, targets)
    places = sorted({place for places in chosen.values() for place in places})
    inputs = pick(data.loader, places)
    note = None
    if any(x is None for x in inputs.values()):  # several inputs, or texts: nothing to show
        inputs = {}
    elif not _same(run.laplace.model, inputs, predicted.plain):
        inputs, note = {}, OTHER_ORDER
    looks = _looks(inputs, run)
    told = {place: _told(place, data, predicted, targets, run.classes) | looks.get(place, {}) for place in places}
    return {name: [told[place] for place in places] for name, places in chosen.items()}, note


def pick(loader: Iterable[Any], places: Sequence[int]) -> dict[int, Tensor | None]:
    """Return the inputs at these positions of a loader; None where an example is not one tensor."""
    wanted, start = set(places), 0
    found: dict[int, Tensor | None] = {}
    for raw in loader:
        batch = read_batch(raw, torch.device("cpu"))
        single = batch.args[0] if len(batch.args) == 1 and not batch.kwargs else None
        size = batch_size(batch)
        for place in sorted(wanted & set(range(start, start + size))):
            found[place] = single[place - start].clone() if isinstance(single, Tensor) else None
        start += size
        if len(found) == len(wanted):
            break
    return found


def _same(model: "nn.Module", inputs: Mapping[int, Tensor | None], plain: Tensor) -> bool:
    """Whether these inputs are those that the outputs are of: a loader may shuffle."""
    stacked = torch.stack([x for x in inputs.values() if x is not None])
    with torch.no_grad():
        outputs = read_outputs(model(stacked.to(device_of(model))))
    expected = plain[list(inputs)].to(outputs)
    return torch.allclose(outputs.reshape(expected.shape), expected, rtol=1e-2, atol=1e-2 * float(expected.abs().max()))


def _looks(inputs: Mapping[int, Tensor | None], run: "OpenRun") -> dict[int, dict[str, Any]]:
    images = {place: as_image(x) for place, x in inputs.items() if x is not None}
    shown = [image for image in images.values() if image is not None]
    if shown:
        tones = Tones.of(shown, run.options)
        return {place: {"png": png(image, tones)} for place, image in images.items() if image is not None}
    columns = run.facts.get("columns")
    found = {}
    for place, x in inputs.items():
        if x is None or x.dim() > 1:
            continue
        values = x.reshape(-1)[:NUMBERS].tolist()
        names = columns or [f"input {index}" for index in range(x.numel())]
        found[place] = {"inputs": dict(zip(names, values, strict=False)), "left_out": max(0, x.numel() - NUMBERS)}
    return found


def _told(
    place: int, data: "Data", predicted: "Prediction", targets: Tensor | None, classes: Sequence[str] | None
) -> dict[str, Any]:
    told: dict[str, Any] = {
        "index": place,
        "example": data.name(place),
        "entropy": float(predicted.entropy[place]),
        "mutual_information": float(predicted.mutual_information[place]),
    }
    if predicted.mean is not None:
        told |= {"mean": predicted.mean[place].tolist(), "std": predicted.std[place].tolist()}
        return told | ({} if targets is None else {"target": targets[place].reshape(-1).tolist()})
    assert predicted.probs is not None
    probs = predicted.probs[place]
    names = classes or [str(index) for index in range(len(probs))]
    best = probs.argsort(descending=True, stable=True)[:TOP].tolist()
    told |= {"confidence": float(probs.max()), "top": [[names[index], float(probs[index])] for index in best]}
    if targets is not None and targets.dim() == 1:
        told |= {"target": names[int(targets[place])], "right": best[0] == int(targets[place])}
    return told
