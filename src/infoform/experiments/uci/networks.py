"""The trained networks of the UCI experiments: one hidden layer of 50 ReLUs (protein: 100), all splits at once.

Trained weights are kept in the experiments' cache, so that pieces and experiments share them.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor, nn

from infoform.common.tensor_file import write_tensors
from infoform.data.uci import FOLDERS, RegressionSet, RegressionSplit, load_uci
from infoform.experiments.networks.shallow import ShallowStack, Training, train_stack
from infoform.posteriors.network_posterior import Posterior

SETS = tuple(FOLDERS)


def width(name: str) -> int:
    """Return the number of hidden units that the paper uses."""
    return 100 if name == "protein" else 50


def split_of(name: str, split: int, *, held_out: float = 0.0) -> RegressionSplit:
    """Return a standardised split; with `held_out`, of its training part, whose last share is the test part."""
    return prepared(load_uci(name, split), held_out=held_out)


def prepared(raw: RegressionSplit, *, held_out: float = 0.0) -> RegressionSplit:
    """Return a split standardised, or its training part with the last share of that as the test part."""
    return (raw.held_out(held_out) if held_out else raw).standardised()


def networks(
    name: str,
    *,
    training: Training,
    cache: Path,
    decays: Sequence[float] | None = None,
    held_out: float = 0.0,
    kept: Sequence[int] = (),
    splits: int | None = None,
    seed: int = 0,
) -> dict[int, ShallowStack]:
    """Return trained networks by number of epochs (those of `kept`, and the last): one of each split, in turn.

    `splits` is how many, from the first (default: all); `decays` has one weight decay for each network: for the splits
    0, 1, …, again 0, 1, …, and so on.
    """
    settings = {
        "name": name, **asdict(training), "width": width(name), "held_out": held_out, "kept": list(kept), "seed": seed,
        "decays": None if decays is None else list(decays),
    }  # fmt: skip
    whole = RegressionSet.read(name)
    count = whole.num_splits if splits is None else splits
    text = json.dumps(settings | {"splits": count}, sort_keys=True)
    size = f"{training.epochs}-{training.batch_size}-{'held' if held_out else 'all'}-{seed}"
    path = cache / "uci-networks" / f"{name}-{size}.safetensors"
    stacks = _read(path, text)
    if stacks is None:
        data = [prepared(whole.split(split), held_out=held_out) for split in range(count)]
        x, y = (torch.stack([getattr(one, part) for one in data]) for part in ("train_x", "train_y"))
        times = 1 if decays is None else len(decays) // count
        decay = 0.0 if decays is None else torch.tensor(decays, dtype=torch.float64)
        stacks = train_stack(
            x.repeat(times, 1, 1), y.repeat(times, 1, 1), width=width(name), training=training,
            decay=decay, kept=kept, seed=seed,
        )  # fmt: skip
        path.parent.mkdir(parents=True, exist_ok=True)
        tensors = {str(epoch): stack.flat for epoch, stack in stacks.items()}
        write_tensors(path, tensors | {"inputs": torch.tensor(x.shape[2])}, metadata={"settings": text})
    return stacks


def predictions(model: nn.Module, x: Tensor) -> Tensor:  # (N, A) -> (N, 1)
    """Return the plain network's answers."""
    with torch.no_grad():
        found: Tensor = model(x)
    return found


def variances(posterior: Posterior, model: nn.Module, x: Tensor) -> Tensor:  # (N, A) -> (N,)
    """Return ∇ᵀ P⁻¹ ∇, what `Laplace.predict` calls epistemic: the gradient of so small a network is written out."""
    hidden, output = model.get_submodule("0"), model.get_submodule("2")
    assert isinstance(output, nn.Linear)
    with torch.no_grad():
        active = hidden(x).relu()  # (N, H)
        back = (active > 0) * output.weight  # (N, H): the output's gradient in the hidden layer's outputs
        one = x.new_ones(len(x), 1)
        first = posterior.layers["0"].outer_covariance(torch.cat([x, one], 1), back.unsqueeze(1))
        second = posterior.layers["2"].outer_covariance(torch.cat([active, one], 1), one.unsqueeze(1))
    return (first + second)[:, 0, 0]


def _read(path: Path, settings: str) -> dict[int, ShallowStack] | None:
    if not path.exists():
        return None
    with safe_open(path, "pt") as file:
        if file.metadata()["settings"] != settings:
            return None
        inputs = int(file.get_tensor("inputs"))
        hidden = json.loads(settings)["width"]
        epochs = sorted(int(key) for key in file.keys() if key != "inputs")  # noqa: SIM118  (a file is no dict)
        return {epoch: ShallowStack(file.get_tensor(str(epoch)), inputs, hidden) for epoch in epochs}
