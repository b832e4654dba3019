"""Where a fit works, and where what it has measured is kept: on a device, or in files that are read when needed."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from os import PathLike
from pathlib import Path
from urllib.parse import quote

import torch
from torch import Tensor, nn

from infoform.common.processes import Processes
from infoform.common.tensor_file import write_tensors
from infoform.curvature.curvature import Curvature, pack_curvature, unpack_curvature
from infoform.network.batches import device_of

Device = str | torch.device
NAMED = {"cpu": "cpu", "cuda": "cuda", "gpu": "cuda", "mps": "mps", "xpu": "xpu"}  # what people write: what they mean


@dataclass(frozen=True)
class Placement:
    """The device of the work, and the device or folder of the result."""

    device: torch.device
    target: torch.device
    folder: Path | None = None

    @classmethod
    def of(
        cls, model: nn.Module, *, device: Device | None = None, offload: Device | PathLike[str] | None = None
    ) -> "Placement":
        """Read the settings of a fit: work and result are where the model is, unless said otherwise."""
        own = device_of(model)
        work = own if device is None else _device("device", device)
        if offload is None:
            return cls(work, own)
        if isinstance(offload, torch.device) or (isinstance(offload, str) and _is_device(offload)):
            return cls(work, _device("offload", offload))
        folder = Path(offload)
        if isinstance(offload, str) and not folder.exists():
            _check_name(offload)
        if folder.exists() and not folder.is_dir():
            raise NotADirectoryError(f"offload must be a device or a folder, and '{folder}' is a file; name another.")
        folder.mkdir(parents=True, exist_ok=True)
        return cls(work, torch.device("cpu"), folder)

    @property
    def stays(self) -> bool:
        """Whether what is finished takes memory of the device that the work is done on."""
        return self.folder is None and self.target == self.device

    def keep(self, curvature: Curvature) -> Curvature:
        """Return the same, where it is to be kept."""
        if self.folder is None:
            return _moved(curvature, self.target)
        tensors, settings = pack_curvature(curvature)
        return unpack_curvature(self._mapped(curvature.name, tensors), settings)

    def fetch(self, curvature: Curvature) -> Curvature:
        """Return the same, where the work is done."""
        return _moved(curvature, self.device)

    def _mapped(self, name: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Write the tensors, and return them as views of the file, which takes memory only while they are read."""
        assert self.folder is not None
        processes = Processes.running()
        ending = "" if processes.count == 1 else f".{processes.rank}-of-{processes.count}"
        path = self.folder / f"layer-{quote(name, safe='')}{ending}.safetensors"
        write_tensors(path, tensors)  # in the place of an older file, which an earlier fit may still read
        return _views(path, tensors)


def _views(path: Path, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file, of which no page is read before it is used."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    storage = torch.UntypedStorage.from_file(os.fspath(path), False, path.stat().st_size)
    found = {}
    for key, one in like.items():
        begin = 8 + length + header[key]["data_offsets"][0]
        found[key] = torch.empty(0, dtype=one.dtype).set_(storage, begin // one.element_size(), one.shape)  # type: ignore[call-overload]
    return found


def _moved(curvature: Curvature, device: torch.device) -> Curvature:
    tensors, settings = pack_curvature(curvature)
    if all(one.device == device for one in tensors.values()):
        return curvature
    return unpack_curvature({name: one.to(device) for name, one in tensors.items()}, settings)


def _is_device(name: str) -> bool:
    try:
        torch.device(name)
    except RuntimeError:
        return False
    return True


def _check_name(offload: str) -> None:
    """Refuse to make a folder for what looks like a device that was misspelt."""
    near = get_close_matches(offload.partition(":")[0].lower(), NAMED, n=1, cutoff=0.7)
    if os.sep not in offload and (near or re.fullmatch(r"\w+:\d*", offload)):
        meant = NAMED[near[0]] if near else "cpu"
        raise ValueError(
            f"offload must be a device of this machine or a folder, got '{offload}'; write '{meant}' for the device, "
            f"or './{offload}' for a new folder of that name."
        )


def _device(name: str, given: Device) -> torch.device:
    try:
        device = torch.device(given)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # torch asserts that it was built for the device
        reason = str(error).splitlines()[0].rstrip(".")
        raise ValueError(f"{name} must be a device of this machine, got {str(given)!r} ({reason}).") from None
    if device.type == "meta":
        raise ValueError(f"{name} must be a device that holds numbers, got 'meta'; plan() is what needs none.")
    return device if device.index is not None else torch.empty(0, device=device).device
