"""A posterior and its network in one folder, as the Hugging Face Hub keeps models.

    model.safetensors       the network's weights
    posterior.safetensors   the posterior
    config.json             what both are, and versions
    README.md               the model card, generated; what a person has changed in it is not written over

The network's code is not in the folder: as everywhere on the Hub, the one who loads brings it.
"""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_model
from torch import nn

from infoform.common.whole_files import flush_folder, write_text
from infoform.model_card import model_card
from infoform.version import __version__

WEIGHTS, POSTERIOR, CONFIG, CARD = "model.safetensors", "posterior.safetensors", "config.json", "README.md"


def save_folder(
    laplace: Any, folder: str | os.PathLike[str], *, base_model: str | None, comparison: str | None
) -> Path:
    """Write a network and its posterior into a folder; an error leaves an older folder's files as they were.

    Args:
        laplace: A fitted `Laplace`, which stands above this file.
        folder: Made where it does not exist.
        base_model: The model that the network is, or was made from, as the Hub names it.
        comparison: A Markdown table for the model card.
    """
    target = Path(folder)
    if target.exists() and not target.is_dir():
        raise FileExistsError(f"'{target}' is a file, and a folder is needed; give another path.")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"the folder '{target.parent}' does not exist; create it before saving there.")
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as name:
        written = Path(name)
        save_model(laplace.model, str(written / WEIGHTS))
        with (written / WEIGHTS).open("rb+") as file:
            os.fsync(file.fileno())  # as whole_files does for the others
        laplace.save(written / POSTERIOR)
        config = configuration(laplace, base_model=base_model)
        write_text(written / CONFIG, json.dumps(config, indent=2) + "\n")
        if not (target / CARD).exists():
            write_text(written / CARD, model_card(config, comparison=comparison))
        target.mkdir(exist_ok=True)
        for staged in written.iterdir():
            os.replace(staged, target / staged.name)
        flush_folder(target)
    return target


def load_folder(folder: Path, model: nn.Module) -> None:
    """Read the weights of a folder into a model.

    Raises:
        FileNotFoundError: If the folder has no posterior or no weights.
        ValueError: If the weights do not fit the model.
    """
    for name in (WEIGHTS, POSTERIOR, CONFIG):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"'{folder}' has no {name}; give a folder that save_pretrained wrote.")
    weights = load_file(folder / WEIGHTS)
    state = model.state_dict(keep_vars=True)
    tied = {name for name, one in state.items() for other in weights if name not in weights and one is state.get(other)}
    bad = [name for name in weights if name not in state or weights[name].shape != state[name].shape]
    bad += [name for name in state if name not in weights and name not in tied]
    if bad:
        names = ", ".join(f"'{name}'" for name in bad[:3])
        raise ValueError(
            f"the weights in '{folder}' are of another model, which differs in {names}; give the one they are of."
        )
    model.load_state_dict(weights, strict=False)


def configuration(laplace: Any, *, base_model: str | None) -> dict[str, Any]:
    """Return what config.json says."""
    return {
        "library_name": "infoform",
        "infoform_version": __version__,
        "model": type(laplace.model).__name__,
        "base_model": base_model,
        "likelihood": laplace.likelihood.name,
        "structure": laplace.structure.label,
        "prior": laplace.prior.name,
        "prior_precision": laplace.prior_precision,
        "num_data": laplace.num_data,
        "temperature": laplace.temperature,
        "noise": laplace.noise,
        "layers": list(laplace.posterior().layers),
        "parameters": sum(one.numel() for one in laplace.model.parameters()),
        "posterior_bytes": laplace.posterior().nbytes,
    }
