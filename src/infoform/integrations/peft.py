"""PEFT: a posterior over the adapters of a model, and sampled networks as adapters in PEFT's own format.

`infoform.Laplace(peft_model, ...)` needs nothing from here: what trains gets a posterior, which is the adapters (LoRA,
DoRA) and what is saved with them, such as a new head. The base is held fixed, whatever numbers it is stored in.
"""

import copy
from os import PathLike
from pathlib import Path

from torch import Tensor, nn

from infoform.common.checks import check_whole
from infoform.common.extras import needed_by
from infoform.common.tensor_file import write_tensors
from infoform.laplace import Laplace

with needed_by("sampled adapters need"):
    from peft import PeftModel, get_peft_model_state_dict

WEIGHTS = "adapter_model.safetensors"


def save_samples(laplace: Laplace, folder: str | PathLike[str], count: int, *, seed: int | None = None) -> list[Path]:
    """Write sampled networks as PEFT adapters: whoever serves adapters can serve the ensemble.

    The mean of their probabilities is what `laplace.predict(x, kind="mc", ...)` estimates (but for a temperature).

    Args:
        laplace: A fitted posterior of a PEFT model, or of a model that has one inside.
        folder: Made where it does not exist; every sample gets a folder of its own in it.
        count: How many samples.
        seed: Of the samples; the object's own where not given.

    Returns:
        The folders "sample-000", "sample-001", ...: each has an adapter_config.json and an adapter_model.safetensors,
        and `PeftModel.from_pretrained(base_model, folder)` loads it.

    Raises:
        TypeError: If there is no PEFT model.
        ValueError: If the posterior is also over weights that no adapter holds, or several adapters are active.

    Example:
        ```python
        from infoform.integrations.peft import save_samples

        folders = save_samples(laplace, "ensemble", 8)
        ```
    """
    check_whole("count", count)
    name, model = _peft_model(laplace.model)
    adapter = _active(model)
    samples = laplace.sample(count, seed=seed)
    prefix = f"{name}." if name else ""
    made = []
    for index in range(count):
        sampled = {key.removeprefix(prefix): weights[index] for key, weights in samples.items()}
        outside = sorted(key for key in samples if not key.startswith(prefix))
        state = get_peft_model_state_dict(
            model, state_dict={**model.state_dict(), **sampled}, adapter_name=adapter, save_embedding_layers=False
        )
        held = {one.data_ptr() for one in state.values()}
        outside += sorted(key for key, weights in sampled.items() if weights.data_ptr() not in held)
        if outside:
            raise ValueError(
                f"the posterior must be over weights that adapter '{adapter}' holds, and it is over '{outside[0]}', "
                "too; leave it out with layers=, or add it to modules_to_save."
            )
        made.append(_write(Path(folder) / f"sample-{index:03d}", model, adapter, state))
    return made


def _write(folder: Path, model: PeftModel, adapter: str, state: dict[str, Tensor]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    config = copy.deepcopy(model.peft_config[adapter])
    config.inference_mode = True
    config.save_pretrained(str(folder))
    tensors = {key: one.detach().cpu().contiguous().clone() for key, one in state.items()}
    write_tensors(folder / WEIGHTS, tensors, metadata={"format": "pt"})
    return folder


def _peft_model(model: nn.Module) -> tuple[str, PeftModel]:
    found = [(name, module) for name, module in model.named_modules() if isinstance(module, PeftModel)]
    if len(found) != 1:
        raise TypeError(
            f"the model must be a PEFT model, or have one inside, got {len(found)} in {type(model).__name__}."
        )
    return found[0]


def _active(model: PeftModel) -> str:
    active = model.active_adapter
    names = [active] if isinstance(active, str) else list(active)
    if len(names) != 1:
        raise ValueError(
            f"one adapter must be active to be written, got {', '.join(names) or 'none'}; set_adapter one."
        )
    return str(names[0])
