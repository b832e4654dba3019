"""A network from a factory and a file of weights; the file can hold tensors only, no code."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from infoform.cli.mistakes import Mistake
from infoform.cli.options import ModelOptions
from infoform.cli.plain_yaml import read_yaml
from infoform.cli.references import absolute, describe_failure, find_object, shown
from infoform.cli.trust import signature
from infoform.records.fit import NetworkSource

NESTED = ("state_dict", "model_state_dict", "model", "weights")  # where training frameworks keep it
PREFIXES = ("module.", "_orig_mod.", "model.", "net.", "network.")  # what wrappers put before every name


@dataclass(frozen=True)
class ModelSource:
    """Where a network comes from; a run keeps it, so that later verbs can load the network."""

    model: str
    weights: str | None
    arguments: dict[str, Any]

    @classmethod
    def given(cls, options: ModelOptions, earlier: NetworkSource | None = None) -> "ModelSource":
        """Return what the options say, and what an earlier run had where they say nothing."""
        if options.model is None and earlier is None:
            raise Mistake("a network is needed: give --model file.py:factory or --model package.module:factory.")
        before = earlier or NetworkSource("", None, {})
        return cls(
            model=before.model if options.model is None else absolute(options.model),
            weights=before.weights if options.weights is None else str(options.weights.resolve()),
            arguments=_arguments(options.model_arg) if options.model_arg else dict(before.arguments),
        )

    @property
    def record(self) -> NetworkSource:
        """Return where the network comes from, as a run keeps it."""
        source = NetworkSource(self.model, self.weights, self.arguments)
        return replace(source, signature=signature(source))

    def load(self, device: str, *, shapes: bool = False) -> nn.Module:
        """Build the network in evaluation mode, with its weights, on the device.

        With `shapes`, a network on the meta device, which has no weights, stays there.
        """
        model = build_model(self.model, self.arguments)
        if shapes and self.weights is None and any(parameter.is_meta for parameter in model.parameters()):
            return model.eval()
        if self.weights is not None:
            load_weights(model, Path(self.weights))
        try:
            return model.eval().to(find_device(device))
        except (RuntimeError, AssertionError) as error:
            reason = str(error).splitlines()[0]
            raise Mistake(f"--device {device} cannot be used here: {reason}; try --device cpu.") from error


def build_model(reference: str, arguments: Mapping[str, Any]) -> nn.Module:
    """Call the factory; a module that is named directly is taken as it is."""
    factory = find_object(reference, "--model")
    if isinstance(factory, nn.Module):
        return factory
    if not callable(factory):
        raise Mistake(f"--model must name a function or class that gives a network, got a {type(factory).__name__}.")
    try:
        model = factory(**arguments)
    except Exception as error:
        raise Mistake(
            f"the factory '{shown(reference)}' fails: {describe_failure(error)}; arguments can be given by --model-arg."
        ) from error
    if not isinstance(model, nn.Module):
        raise Mistake(f"the factory '{shown(reference)}' must give a torch.nn.Module, got a {type(model).__name__}.")
    return model


def load_weights(model: nn.Module, path: Path) -> None:
    """Read weights into the model; an error says which of them do not fit."""
    state = read_state(path)
    wanted = model.state_dict()
    for prefix in ("", *PREFIXES):
        if state and all(name.startswith(prefix) for name in state):
            cut = {name[len(prefix) :]: tensor for name, tensor in state.items()}
            if cut.keys() == wanted.keys():
                state = cut
                break
    differences = [f"'{name}' is missing" for name in wanted if name not in state]
    differences += [f"'{name}' is not in the network" for name in state if name not in wanted]
    differences += [
        f"'{name}' has shape {_shape(state[name])}, not {_shape(wanted[name])}"
        for name in wanted
        if name in state and state[name].shape != wanted[name].shape
    ]
    differences += [
        f"'{name}' holds {_dtype(state[name])} numbers, and the network's are {_dtype(wanted[name])}"
        for name in wanted
        if name in state and _kind(state[name]) != _kind(wanted[name])
    ]
    if differences:
        more = f"; and {len(differences) - 3} more" if len(differences) > 3 else ""
        raise Mistake(
            f"the weights in '{shown(str(path))}' do not fit the network: {'; '.join(differences[:3])}{more}."
        )
    model.load_state_dict(state)


def read_state(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file or of a state_dict, which torch reads without running code."""
    if not path.is_file():
        raise Mistake(f"there is no file '{shown(str(path))}' to read weights from; check --weights.")
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
        except (SafetensorError, OSError) as error:
            raise Mistake(
                f"'{shown(str(path))}' is truncated or no safetensors file ({error}); save the weights again."
            ) from error
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise Mistake(
            f"'{shown(str(path))}' holds something else than tensors, or is broken; save the weights alone, by "
            "torch.save(model.state_dict(), path) or safetensors."
        ) from error
    for key in NESTED:
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
            break
    if not isinstance(content, dict) or not content or not all(isinstance(v, Tensor) for v in content.values()):
        raise Mistake(f"'{shown(str(path))}' holds no state_dict; save one by torch.save(model.state_dict(), path).")
    return content


def find_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.device(name)
    except RuntimeError:
        raise Mistake(f"--device must be auto, cpu, cuda or mps, got '{name}'.") from None


def _arguments(texts: list[str]) -> dict[str, Any]:
    arguments = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise Mistake(f"--model-arg must be name=value, got '{text}'.")
        try:
            arguments[name] = read_yaml(value)
        except yaml.YAMLError as error:
            raise Mistake(
                f"--model-arg must be name=value with a value in YAML, got '{text}' ({' '.join(str(error).split())})."
            ) from None
    return arguments


def _kind(tensor: Tensor) -> str:
    """Return what a copy between dtypes would keep: whole numbers in place of weights are codes, not weights."""
    if tensor.is_complex():
        return "complex"
    return "real" if tensor.is_floating_point() else "whole"


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _shape(tensor: Tensor) -> str:
    return "×".join(map(str, tensor.shape)) or "scalar"
