"""What the file of a posterior must hold: checked once, when it is loaded, before anything is built from it.

The checksum of a file tells that it was not changed; this tells that it was right when it was signed.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from infoform.common.bad_files import BadFileError
from infoform.common.files import under
from infoform.common.json_values import NotThisRecord, from_json
from infoform.curvature.input_spectrum import InputSpectrum
from infoform.likelihoods import DataSummary
from infoform.network.coverage import find_layers
from infoform.network.last_layer import LAST
from infoform.network.layer import Layer
from infoform.network.selection import ALL
from infoform.novelty.parts import PARTS
from infoform.options import Settings
from infoform.posteriors import LayerPosterior, structure_for
from infoform.priors import LayerPrior, Prior

GAUSSIAN = {  # of novelty
    "counts": "C",
    "mean": "D",
    "deviation": "D",
    "factor": "D K",
    "scale": "K",
    "places": "C r",
    "directions": "r D",
}
PERCENTILES = {"count": "", "levels": "Q", "points": "R Q", "tails": "R"}
WHOLE = ("pairs", "counts", "count")  # tensors of whole numbers
MOST_DATA = 2.0**64  # examples; products with a larger number would overflow
SPECTRUM = {"diagonal": "A", "vectors": "A p", "values": "p"}  # of a layer's inputs


@dataclass(frozen=True)
class Named:
    """A likelihood or a prior."""

    name: str
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class SavedPosterior:
    """The metadata of the file, as JSON holds them."""

    format: str
    version: str
    structure: str
    options: Mapping[str, Any]
    likelihood: Named
    prior: Named
    num_data: float
    noise: float | None
    data: DataSummary
    layers: Mapping[str, Mapping[str, Any]]
    unreached: Mapping[str, str]
    model: Any  # the name of a class, which may read as JSON
    fingerprint: Mapping[str, str]
    default_prior: bool
    temperature: float = 1.0
    novelty: Mapping[str, Any] | None = None
    curvature: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    conformal: Mapping[str, Any] | None = None
    odd: tuple[str, ...] = ()
    only_diagonal: tuple[str, ...] = ()  # layers of which the diagonal alone is measured
    frozen: tuple[str, ...] | None = None  # layers that the user had frozen; files of earlier versions do not say


def check_metadata(saved: Mapping[str, Any], path: object) -> SavedPosterior:
    """Return the metadata of a file, or raise a BadFileError that says what is wrong with them."""
    try:
        found = from_json(SavedPosterior, dict(saved))
    except NotThisRecord as error:
        raise BadFileError(f"'{path}' is no saved posterior ({error}); save it again.") from error
    numbers = {"num_data": found.num_data, "temperature": found.temperature, "noise": found.noise}
    numbers |= {"data.num_examples": found.data.num_examples, "data.num_outputs": found.data.num_outputs}
    for name, value in numbers.items():
        if value is not None and not 0 < value < math.inf:
            raise BadFileError(f"'{path}' must have a positive, finite '{name}', got {value}; save it again.")
    if found.num_data > MOST_DATA:
        raise BadFileError(f"'{path}' must have a 'num_data' of at most 2⁶⁴, got {found.num_data}; save it again.")
    if not found.layers:
        raise BadFileError(f"'{path}' must have at least one layer; save it again.")
    return found


def check_contents(
    tensors: Mapping[str, Tensor],
    found: SavedPosterior,
    settings: Settings,
    prior: Prior,
    model: nn.Module,
    path: object,
) -> None:
    """Raise a BadFileError unless layers and tensors are those that settings, prior and network ask for.

    Args:
        tensors: Of the file, by name.
        found: Its metadata.
        settings: What they say of structure and layers.
        prior: The prior of the file, which may need what is known of the layers' inputs.
        model: The network.
        path: The file, for the sentence of an error.
    """
    layers = find_layers(model, ALL, frozen=True)[0]
    wanted = _selected(model, settings) - {*found.unreached, *(found.frozen or ())}
    missing = set() if found.frozen is None or settings.layers == LAST else wanted - found.layers.keys()
    extra = found.layers.keys() - layers.keys()
    if missing or extra or (settings.layers == LAST and len(found.layers) != 1):
        name = min(missing or extra or found.layers)
        told, why = ("no", "which the network has") if missing else ("a", "which is none of the network's")
        raise BadFileError(f"'{path}' has {told} posterior of layer '{name}', {why}; save it again.")
    _check_names(tensors, found, path)
    for name in found.layers:
        diagonal = layers[name].rule.only_diagonal
        if diagonal != (name in found.only_diagonal):
            raise BadFileError(
                f"'{path}' must name as only_diagonal the layers of which the diagonal alone is measured, got "
                f"{list(found.only_diagonal)}; save it again."
            )
        own_structure = structure_for(settings.structure, only_diagonal=diagonal)
        kind = own_structure.of_layer(name, layers[name].shape).posterior
        own, what = under(tensors, f"layer/{name}/"), f"layer '{name}' of '{path}'"
        if kind.tensor_shapes:
            _check_shapes(own, kind.tensor_shapes, _sizes(layers[name]), what)
        for key in kind.not_negative:
            if key in own and own[key].is_floating_point() and bool((own[key] < 0).any()):
                raise BadFileError(f"'{key}' of {what} must not be negative; save it again.")
        kind.check_stored(own, what)
        known = under(tensors, f"inputs/{name}/")
        _check_shapes(known, SPECTRUM, _sizes(layers[name]), f"the inputs of {what}")
        needed = prior.needs_inputs and not diagonal and name not in found.curvature
        if known.keys() != SPECTRUM.keys() and (known or needed):
            raise BadFileError(f"{what} must have what the prior knows of its inputs; save it again.")
        if known and (bool((known["diagonal"] < 0).any()) or bool((known["values"] < 0).any())):
            raise BadFileError(f"the inputs of {what} must have squares that are not negative; save it again.")
        if known or not needed:
            inputs = InputSpectrum(**known) if prior.needs_inputs and known else None
            _check_prior(prior.layer(name, num_data=found.num_data, inputs=inputs), what)
    if found.novelty is not None:
        _check_novelty(under(tensors, "novelty/"), found.novelty, path)


def _check_prior(prior: LayerPrior, what: str) -> None:
    for one in (prior.precision, prior.values):
        if one is not None and not bool(torch.as_tensor(one).isfinite().all()):
            raise BadFileError(f"the prior of {what} must be finite; save it again.")


def frozen_layers(model: nn.Module, settings: Settings, covered: Collection[str]) -> list[str]:
    """Return the layers that the settings select and that got no posterior because the user had frozen them."""
    return [] if settings.layers == LAST else sorted(_selected(model, settings) - set(covered))


def _selected(model: nn.Module, settings: Settings) -> set[str]:
    patterns = None if settings.layers == LAST else settings.layers
    return set(find_layers(model, patterns, frozen=True)[0])


def check_built(layers: Mapping[str, LayerPosterior], model: nn.Module, path: object) -> None:
    """Raise a BadFileError unless the posterior of every layer has the shape of the layer."""
    known = find_layers(model, ALL, frozen=True)[0]
    for name, layer in layers.items():
        if layer.shape != known[name].shape:
            raise BadFileError(
                f"the posterior of layer '{name}' in '{path}' must have the shape {known[name].shape}, got "
                f"{layer.shape}; save it again."
            )


def _check_names(tensors: Mapping[str, Tensor], found: SavedPosterior, path: object) -> None:
    owners = {"layer": found.layers, "inputs": found.layers, "curvature": found.curvature}
    known = tuple(f"{part}/{name}/" for part, names in owners.items() for name in names)
    for name, tensor in tensors.items():
        if not name.startswith(("novelty/", "conformal/", *known)):
            raise BadFileError(f"'{path}' has the tensor '{name}', which belongs to no layer; save it again.")
        # novelty's scores may be infinite, and so may what it keeps in half precision
        free = name.startswith("conformal/") or (
            name.startswith("novelty/") and ("/calibration/" in name or tensor.dtype == torch.float16)
        )
        if tensor.is_floating_point() and not free and not tensor.isfinite().all():
            raise BadFileError(f"'{path}' has values in '{name}' that are not finite; save it again.")


def _check_novelty(tensors: Mapping[str, Tensor], plain: Mapping[str, Any], path: object) -> None:
    names = from_json(list[str], plain.get("layers"), "novelty.layers")
    for part in (*(f"layer/{name}/" for name in names), "classes/"):
        own, what = under(tensors, part), f"'novelty/{part}' of '{path}'"
        _check_shapes(own, GAUSSIAN, {}, what)
        for one, other in (("factor", "scale"), ("places", "directions")):  # which are left out where they are empty
            if (one in own) != (other in own):
                raise BadFileError(f"{what} must have both '{one}' and '{other}', or none; save it again.")
        if bool((own["deviation"] <= 0).any()) or bool((own["counts"] < 0).any()):
            raise BadFileError(f"{what} must have positive deviations and counts; save it again.")
    own = {key: tensors[key] for key in ("centre", "spread")}
    if bool((own["spread"] <= 0).any()):
        raise BadFileError(f"'novelty/spread' of '{path}' must be positive; save it again.")
    _check_shapes(own, {"centre": "L", "spread": "L"}, {"L": len(names)}, f"the novelty of '{path}'")
    if "calibration" in plain:
        parts = from_json(list[str], from_json(dict[str, Any], plain["calibration"]).get("part_names"), "part_names")
        if not set(parts) <= PARTS.keys():
            raise BadFileError(
                f"the parts of the novelty of '{path}' must be of {sorted(PARTS)}, got {parts}; save it again."
            )
        for table, rows in (("single", len(parts) + len(names)), ("whole", 1)):
            what = f"'novelty/calibration/{table}' of '{path}'"
            _check_shapes(under(tensors, f"calibration/{table}/"), PERCENTILES, {"R": rows}, what)
    if plain.get("head") not in names:
        raise BadFileError(f"the head of the novelty of '{path}' must be one of its layers; save it again.")
    columns, head = (tensors[f"{part}/mean"].shape[-1] for part in ("classes", f"layer/{plain['head']}"))
    if columns != head:
        raise BadFileError(
            f"the classes of the novelty of '{path}' must have {head} columns, got {columns}; save it again."
        )


def _sizes(layer: Layer) -> dict[str, int]:
    outputs, inputs = layer.shape
    return {"G": outputs, "A": inputs, "W": outputs * inputs}


def _check_shapes(
    tensors: Mapping[str, Tensor], shapes: Mapping[str, str], sizes: Mapping[str, int], what: str
) -> None:
    """Check tensors against shapes as "A a": the same letter is the same size in all of them."""
    bound = dict(sizes)
    for name, tensor in tensors.items():
        if name not in shapes:
            raise BadFileError(f"{what} has the tensor '{name}', which its structure does not know; save it again.")
        letters = shapes[name].split()
        wanted = [int(letter) if letter.isdigit() else bound.get(letter) for letter in letters]
        if tensor.dim() != len(letters) or any(w not in (None, s) for w, s in zip(wanted, tensor.shape, strict=True)):
            shown = ", ".join(str(size or letter) for letter, size in zip(letters, wanted, strict=True))
            raise BadFileError(
                f"'{name}' of {what} must have the shape ({shown}), got {tuple(tensor.shape)}; save it again."
            )
        bound |= {letter: size for letter, size in zip(letters, tensor.shape, strict=True) if not letter.isdigit()}
        if not tensor.is_floating_point() and tensor.dtype not in (torch.uint8, torch.int8) and name not in WHOLE:
            raise BadFileError(f"'{name}' of {what} must hold real numbers, got {tensor.dtype}; save it again.")
