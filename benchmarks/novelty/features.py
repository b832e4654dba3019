"""What every method sees of a picture: the network's outputs, the inputs of its last layer, and all layers' pooled."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.novelty.networks import Case
from torch import Tensor, nn

from infoform.experiments.unknown_pictures import spoilt

WEIGHTED = (nn.Conv2d, nn.Linear)
COMPLETE = "complete"  # a file that says that all sets are there: making the pictures takes minutes


@dataclass(frozen=True)
class Features:
    """What was recorded of one set of pictures."""

    logits: Tensor  # (N, C)
    head: Tensor  # (N, A), inputs of the last layer
    pooled: dict[str, Tensor]  # layer -> (N, 2 A), mean and root mean square over positions; (N, A) without any
    labels: Tensor | None  # (N,)


def extract(case: Case, cache: Path) -> None:
    """Write `cache/NAME.npz` for every set of the network that is not there yet: one forward pass each."""
    cache.mkdir(parents=True, exist_ok=True)
    if (cache / COMPLETE).exists():
        return
    known, model = case.known(), None
    sets = {name: getattr(known, name) for name in ("train", "validation", "fresh")}
    unknown = {**case.unknown(), **spoilt(known.fresh.pixels[: case.spoilt])}
    pixels = {**{name: one.pixels for name, one in sets.items()}, **unknown}
    for name, one in pixels.items():
        path = cache / f"{name}.npz"
        if not path.exists():
            model = case.load(cache.parent) if model is None else model
            found = record(model, case, one)
            labels = {"labels": sets[name].labels.numpy()} if name in sets else {}
            beside = path.with_suffix(".part.npz")
            arrays: dict[str, Any] = {**found, **labels}
            np.savez(beside, **arrays)
            beside.replace(path)
            print(f"{case.title}: {name}, {len(one)} pictures", flush=True)
    (cache / COMPLETE).touch()


def record(model: nn.Module, case: Case, pixels: Tensor) -> dict[str, np.ndarray]:
    """Return outputs, inputs of the last layer and pooled inputs of every layer with weights, in batches."""
    seen: dict[str, list[Tensor]] = {}
    layers = {name: module for name, module in model.named_modules() if isinstance(module, WEIGHTED)}
    handles = [
        module.register_forward_pre_hook(lambda _, x, name=name: seen.setdefault(name, []).append(pool(x[0])))
        for name, module in layers.items()
    ]
    with torch.no_grad():
        logits = [model(case.scaled(part)) for part in pixels.split(case.batch)]
    for handle in handles:
        handle.remove()
    pooled = {f"pooled {name}": torch.cat(parts).numpy() for name, parts in seen.items()}
    return {"logits": torch.cat(logits).numpy(), "head": pooled[f"pooled {case.last}"], **pooled}


def pool(x: Tensor) -> Tensor:  # (N, A) or (N, A, H, W) -> (N, A) or (N, 2 A)
    """Return mean and root mean square over positions, where there are any."""
    return x if x.dim() == 2 else torch.cat([x.mean((2, 3)), x.square().mean((2, 3)).sqrt()], 1)


def read(cache: Path, name: str) -> Features:
    """Return what was recorded of a set."""
    with np.load(cache / f"{name}.npz") as arrays:
        found = {key: torch.from_numpy(arrays[key]) for key in arrays.files}
    pooled = {key.removeprefix("pooled "): value for key, value in found.items() if key.startswith("pooled ")}
    return Features(found["logits"], found["head"], pooled, found.get("labels"))
