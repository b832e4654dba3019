"""Files: named tensors and readable metadata in one safetensors file, checked when read; no pickle anywhere.

The file appears under its name only when it is complete, and the same tensors and metadata always give the same bytes.
A checksum over tensors and metadata tells a file that was edited afterwards; a fingerprint (dtype, shape and hash of
every parameter) tells a posterior of another model.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from infoform.common.bad_files import BadFileError
from infoform.common.tensor_file import tensor_bytes, write_tensors
from infoform.version import __version__

FORMAT = "infoform/4"


def write_file(path: str | os.PathLike[str], tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
    """Write tensors and metadata (anything JSON can hold); an error leaves no file and an older one as it was."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    texts = {"format": FORMAT, "version": __version__}
    texts |= {key: value if isinstance(value, str) else json.dumps(value) for key, value in metadata.items()}
    texts["checksum"] = _checksum(plain, texts)
    write_tensors(path, plain, metadata=texts)


def read_file(
    path: str | os.PathLike[str], *, device: torch.device | str = "cpu"
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return tensors and metadata of a file that `write_file` made; a BadFileError if it is anything else."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file '{path}'.")
    try:
        with safe_open(os.fspath(path), framework="pt") as file:
            texts = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, MemoryError, RuntimeError) as error:
        raise BadFileError(f"'{path}' is truncated or no safetensors file ({error}); save it again.") from error
    if not texts.get("format", "").startswith("infoform/"):
        raise BadFileError(f"'{path}' was not written by infoform; give a file made by Laplace.save.")
    if texts["format"] != FORMAT:
        raise BadFileError(
            f"'{path}' has the format {texts['format']!r} of infoform {texts.get('version')}, and this version "
            f"({__version__}) reads {FORMAT!r}; install that version, or save the posterior again."
        )
    if texts.pop("checksum", None) != _checksum(tensors, texts):
        raise BadFileError(f"'{path}' was changed after it was saved (its checksum does not fit); save it again.")
    metadata = {key: value if key in ("format", "version") else _parse(value) for key, value in texts.items()}
    return {name: tensor.to(device) for name, tensor in tensors.items()}, metadata


def fingerprint(model: nn.Module) -> dict[str, str]:
    """Return dtype, shape and a hash of the values of every parameter."""
    return {name: describe(parameter) for name, parameter in model.named_parameters()}


def describe(parameter: Tensor) -> str:
    """Return dtype, shape and a hash of the values."""
    shape = "x".join(map(str, parameter.shape)) or "scalar"
    digest = hashlib.sha256()
    for part in _stored_parts(parameter):
        digest.update(tensor_bytes(part))
    return f"{str(parameter.dtype).removeprefix('torch.')} {shape} {digest.hexdigest()[:16]}"


def _stored_parts(tensor: Tensor) -> Iterator[Tensor]:
    """Give the tensors that a tensor's numbers are stored in: of quantised weights (torchao's) codes and scales."""
    if not is_traceable_wrapper_subclass(tensor):
        yield tensor
        return
    names, _ = tensor.__tensor_flatten__()
    for name in names:
        yield from _stored_parts(getattr(tensor, name))


def check_fingerprint(saved: Mapping[str, str], model: nn.Module, *, strict: bool = True) -> None:
    """Raise a BadFileError that says in what the model differs from the one that was saved for."""
    found = fingerprint(model)
    differences = [f"'{name}' is missing" for name in saved if name not in found]
    differences += [f"'{name}' is new" for name in found if name not in saved]
    for name in saved:
        if name in found and saved[name] != found[name]:
            if len(saved[name].split()) != 3:
                raise BadFileError(f"the fingerprint of '{name}' is no dtype, shape and hash; save it again.")
            (dtype, shape, values), (new_dtype, new_shape, new_values) = saved[name].split(), found[name].split()
            if shape != new_shape:
                differences.append(f"'{name}' has shape {new_shape}, not {shape}")
            elif strict and dtype != new_dtype:
                differences.append(f"'{name}' has dtype {new_dtype}, not {dtype}")
            elif strict and values != new_values:
                differences.append(f"'{name}' has other values")
    if differences:
        shown = "; ".join(differences[:4]) + (f"; and {len(differences) - 4} more" if len(differences) > 4 else "")
        raise BadFileError(
            f"the file belongs to another model: {shown}; load the weights that the posterior was fitted on"
            + (", or use strict=False if only the values differ on purpose." if strict else ".")
        )


def _checksum(tensors: Mapping[str, Tensor], texts: Mapping[str, str]) -> str:
    digest = hashlib.sha256(json.dumps(sorted(texts.items())).encode())
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}".encode())
        digest.update(tensor_bytes(tensors[name]))
    return digest.hexdigest()


def _parse(value: str) -> Any:
    try:
        return json.loads(value)
    except json.JSONDecodeError:
        return value
    except RecursionError:
        raise BadFileError("metadata of the file are nested too deeply; save it again.") from None


def under(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names begin so, by the rest of their names."""
    return {name.removeprefix(prefix): one for name, one in tensors.items() if name.startswith(prefix)}
