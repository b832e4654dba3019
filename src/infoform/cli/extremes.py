"""The examples worth looking at: those a prediction is most and least sure of, and those it was wrong about."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from infoform.cli.pictures import Tones, as_image, png
from infoform.cli.unknown_sets import strangest
from infoform.network.batches import batch_size, device_of, read_batch, read_outputs
from infoform.prediction import select_examples
from infoform.records.examples import ChosenExamples, ClassAnswer, NumberAnswer, ShownExample, TableRow

if TYPE_CHECKING:
    from torch import nn

    from infoform.cli.run_folder import OpenRun
    from infoform.cli.sources import Data
    from infoform.prediction import Prediction

SHOWN = 8  # examples of each kind
TOP = 3  # classes told of an example
NUMBERS = 12  # columns told of an example that is no picture
OTHER_ORDER = "the data come in another order each time: the examples are listed without their inputs."


def choose(predicted: "Prediction", targets: Tensor | None) -> dict[str, list[int]]:
    """Return the positions of the examples, the most telling first."""
    order = predicted.entropy.argsort(descending=True, stable=True)
    places = {"least_certain": order[:SHOWN].tolist(), "most_certain": order.flip(0)[:SHOWN].tolist()}
    if predicted.input_novelty is not None:
        places["strangest"] = strangest(predicted, SHOWN)
    if targets is None:
        return places
    if predicted.probs is not None and targets.dim() == 1:
        wrong = (predicted.labels != targets.to(predicted.labels.device)).nonzero()[:, 0]
        surest = predicted.confidence[wrong].argsort(descending=True, stable=True)
        places["confidently_wrong"] = wrong[surest][:SHOWN].tolist()
    elif predicted.mean is not None:
        distance = (targets.to(predicted.mean).reshape(predicted.mean.shape) - predicted.mean).abs() / predicted.std
        places["farthest_off"] = distance.amax(1).argsort(descending=True, stable=True)[:SHOWN].tolist()
    return places


def describe(
    run: "OpenRun", data: "Data", predicted: "Prediction", targets: Tensor | None
) -> tuple[ChosenExamples | None, str | None]:
    """Return the chosen examples, each with what was predicted and what it looks like, and a note for the user.

    Examples with many answers, at positions, are not shown.
    """
    if predicted.positions:
        return None, None
    chosen = choose(predicted, targets)
    places = sorted({place for places in chosen.values() for place in places})
    inputs = pick(data.loader, places)
    note = None
    if any(x is None for x in inputs.values()):  # examples of several tensors, or texts, are not shown
        inputs = {}
    elif not _same(run.laplace.model, inputs, predicted.plain):
        inputs, note = {}, OTHER_ORDER
    examples = {place: _answer(place, data, predicted, targets, run.classes) for place in places}
    examples = _with_looks(examples, inputs, run)
    return ChosenExamples(**{name: [examples[place] for place in places] for name, places in chosen.items()}), note


def pick(loader: Iterable[Any], places: Sequence[int]) -> dict[int, Tensor | None]:
    """Return the inputs at these positions of a loader; None where an example is not one tensor."""
    wanted, start = set(places), 0
    inputs: dict[int, Tensor | None] = {}
    for raw in loader:
        batch = read_batch(raw, torch.device("cpu"))
        single = batch.args[0] if len(batch.args) == 1 and not batch.kwargs else None
        size = batch_size(batch)
        for place in sorted(wanted & set(range(start, start + size))):
            inputs[place] = single[place - start].clone() if isinstance(single, Tensor) else None
        start += size
        if len(inputs) == len(wanted):
            break
    return inputs


def _same(model: "nn.Module", inputs: Mapping[int, Tensor | None], plain: Tensor) -> bool:
    """Tell whether the network gives these outputs for these inputs: it does not where a loader shuffles."""
    stacked = torch.stack([x for x in inputs.values() if x is not None])
    with torch.no_grad():
        outputs = read_outputs(model(stacked.to(device_of(model))))
    expected = plain[list(inputs)].to(outputs)
    return torch.allclose(outputs.reshape(expected.shape), expected, rtol=1e-2, atol=1e-2 * float(expected.abs().max()))


def _with_looks(
    examples: Mapping[int, ShownExample], inputs: Mapping[int, Tensor | None], run: "OpenRun"
) -> dict[int, ShownExample]:
    """Return the examples with their pictures, or with the numbers of their rows."""
    there = {place: x for place, x in inputs.items() if x is not None}
    images = {place: image for place, x in there.items() if (image := as_image(x)) is not None}
    if images:
        tones = Tones.of(list(images.values()), run.options)
        shown = {place: replace(examples[place], png=png(image, tones)) for place, image in images.items()}
    else:
        rows = {place: x for place, x in there.items() if x.dim() <= 1}
        shown = {place: replace(examples[place], row=_row(x, run.facts.columns)) for place, x in rows.items()}
    return {**examples, **shown}


def _row(x: Tensor, columns: Sequence[str] | None) -> TableRow:
    values = x.reshape(-1)[:NUMBERS].tolist()
    names = columns or [f"input {index}" for index in range(x.numel())]
    return TableRow(dict(zip(names, values, strict=False)), left_out=max(0, x.numel() - NUMBERS))


def _answer(
    place: int, data: "Data", predicted: "Prediction", targets: Tensor | None, classes: Sequence[str] | None
) -> ShownExample:
    """Return what was predicted for one example, and the truth where it is known."""
    example = ShownExample(
        index=place,
        example=data.name(place),
        entropy=float(predicted.entropy[place]),
        mutual_information=float(predicted.mutual_information[place]),
    )
    if predicted.input_novelty is not None:
        columns = select_examples(predicted.input_novelty, torch.tensor([place])).columns()
        example = replace(example, **{name: values[0] for name, values in columns.items()})
    if predicted.mean is not None:
        answer = NumberAnswer(predicted.mean[place].tolist(), predicted.std[place].tolist())
        truth = None if targets is None else targets[place].reshape(-1).tolist()
        return replace(example, numbers=answer, target=truth)
    assert predicted.probs is not None
    probs = predicted.probs[place]
    names = classes or [str(index) for index in range(len(probs))]
    best = probs.argsort(descending=True, stable=True)[:TOP].tolist()
    top = [(names[index], float(probs[index])) for index in best]
    example = replace(example, classes=ClassAnswer(confidence=float(probs.max()), top=top))
    if targets is None or targets.dim() != 1:
        return example
    label = int(targets[place])
    return replace(example, target=names[label], right=best[0] == label)
