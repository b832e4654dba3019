"""A fit in a folder: all that it has summed is written there every so often, and read when the fit is started again.

There is one file for the pass that is under way. It is replaced as a whole, so that there is always a complete file.
The file says which fit it belongs to (model, settings, layers, likelihood), and no other fit goes on from it. Tensors
come back with the strides that they had: products, and so the last bits of the result, may depend on how a matrix lies
in memory.
"""

import json
import math
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from infoform.common import files as storage
from infoform.common.bad_files import BadFileError, refusing
from infoform.common.json_values import from_json
from infoform.common.same_work import Difference, Identity, refusal
from infoform.common.whole_files import sweep

SHARE = 0.05  # share of the time, at most, that is spent on writing, unless the fit is to be written after every batch
SHOWN = 3  # differences that an error names
FINISHED = 3  # the stage after both passes, of a group of layers that waits for the other groups
LOOSEST = 1000  # room that a tensor's numbers may be spread over, in terms of their own
GROUP = re.compile(r"group-\d+")
NAME = re.compile(r"pass-(\d+)(?:\.(\d+)-of-(\d+))?\.safetensors")


@dataclass(frozen=True)
class Snapshot:
    """All that is needed to go on after some batch of a pass."""

    stage: int  # number of the pass
    tensors: Mapping[str, Tensor]
    values: Mapping[str, Any]  # what JSON can hold


@dataclass(frozen=True)
class _Pass:
    stage: int
    values: Mapping[str, Any]


@dataclass(frozen=True)
class _Saved:
    """The metadata of a snapshot's file, as JSON holds them."""

    checkpoint: _Pass
    identity: Mapping[str, Any]
    strides: Mapping[str, list[int]]
    tensors: Mapping[str, str]  # dtype and shape of each, by name


class Checkpoint:
    """The files of one fit, or of one process of it, in a folder."""

    def __init__(
        self,
        folder: str | PathLike[str],
        *,
        every: float = 60.0,
        process: int = 0,
        processes: int = 1,
        whole: Path | None = None,
        lasting: bool = False,
    ) -> None:
        if not 0 <= every < math.inf:
            raise ValueError(f"checkpoint_every must be a number of seconds, at least 0, got {every!r}.")
        self.folder = Path(folder)
        self._whole = whole  # the folder of a fit in groups, of which this is one
        self._lasting = lasting  # whether the files stay until whoever saves the fit discards them
        self._every = every
        self._process, self._processes = process, processes
        self._ending = "" if processes == 1 else f".{process}-of-{processes}"
        self._identity: dict[str, Any] = {}
        self._next = math.inf  # when to write again
        self._asked = False  # to stop, by Ctrl-C

    @property
    def lasts(self) -> bool:
        """Whether what is finished must be kept, as the fit has more groups of layers."""
        return self._whole is not None

    def group(self, number: int) -> "Checkpoint":
        """Return the checkpoint of one group of layers, in a folder of its own."""
        return Checkpoint(
            self.folder / f"group-{number}",
            every=self._every,
            process=self._process,
            processes=self._processes,
            whole=self.folder,
            lasting=self._lasting,
        )

    def __fspath__(self) -> str:
        return str(self.folder)

    @contextmanager
    def open(self, identity: Mapping[str, Any]) -> Iterator[None]:
        """Use the folder for one fit; Ctrl-C waits for the end of a batch.

        Args:
            identity: Names and values that tell the fit from others.
        """
        if self.folder.exists() and not self.folder.is_dir():
            raise NotADirectoryError(f"checkpoint must be a folder, and '{self.folder}' is a file; name another.")
        for other in self._whole.glob("pass-*") if self._whole is not None else self.folder.glob("group-*/pass-*"):
            raise ValueError(
                f"the checkpoint '{other}' is of a fit with another max_memory; give the same, name another folder, or "
                "delete it to start again."
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        self._identity = json.loads(json.dumps(identity))
        self._asked, self._next = False, time.monotonic() + self._every
        sweep(self.folder)
        with self._waiting():
            yield
        if not self._lasting:
            self.remove(1, 2)

    def stage(self) -> int:
        """Return the pass that the latest file is about; 0 where there is none."""
        own = [0]
        for path in sorted(self.folder.glob("pass-*.safetensors")):
            match = NAME.fullmatch(path.name)
            if match is None:
                continue
            stage, process, processes = (int(one) for one in match.groups(default="0"))
            if max(1, processes) != self._processes:
                raise ValueError(
                    f"the checkpoint '{path}' was written by {max(1, processes)} processes, and these are "
                    f"{self._processes}; start as many as then, name another folder, or delete it to start again."
                )
            own += [stage] if process == self._process else []
        return max(own)

    def read(self, stage: int, *, device: torch.device) -> Snapshot:
        """Return the snapshot of a pass, with its tensors on a device.

        Raises:
            ValueError: The file is damaged, or is of another fit.
        """
        path = self._path(stage)
        remedy = "name another folder, or delete it to start again"
        try:
            tensors, saved = storage.read_file(path)
        except ValueError as error:
            reason = str(error).rsplit(";", 1)[0]
            raise BadFileError(f"the checkpoint cannot be read: {reason}; {remedy}.") from error
        if "checkpoint" not in saved:
            raise BadFileError(f"'{path}' is a saved posterior and no checkpoint; {remedy}.")
        with self.refusing(stage):
            about = from_json(_Saved, {key: saved[key] for key in ("checkpoint", "identity", "strides", "tensors")})
            differences = Identity(self._identity).differences(about.identity)
            if differences:
                what = f"the checkpoint '{path}' is of another fit"
                raise ValueError(refusal(what, differences, remedy=remedy, describe=_described))
            _check(tensors, about.tensors, f"the checkpoint '{path}'", remedy)
            restored = {name: _laid_out(one, about.strides.get(name), device) for name, one in tensors.items()}
            return Snapshot(about.checkpoint.stage, restored, about.checkpoint.values)

    @contextmanager
    def refusing(self, stage: int) -> Iterator[None]:
        """Turn whatever values of a snapshot's file lead to into a BadFileError."""
        with refusing(f"the checkpoint '{self._path(stage)}'", "name another folder, or delete it to start again"):
            yield

    def write(self, snapshot: Snapshot) -> None:
        """Write a snapshot in the place of the one that was written of its pass before."""
        started = time.monotonic()
        strides = {name: list(one.stride()) for name, one in snapshot.tensors.items() if not one.is_contiguous()}
        path = self._path(snapshot.stage)
        storage.write_file(
            path,
            snapshot.tensors,
            {
                "checkpoint": {"stage": snapshot.stage, "values": dict(snapshot.values)},
                "identity": self._identity,
                "strides": strides,
                "tensors": {name: _described_tensor(one) for name, one in snapshot.tensors.items()},
            },
        )
        now = time.monotonic()
        self._next = now + (max(self._every, (now - started) / SHARE) if self._every else 0)

    def remove(self, *stages: int) -> None:
        for stage in stages:
            self._path(stage).unlink(missing_ok=True)

    def discard(self) -> None:
        """Remove the files of a fit that has been saved, and the folder if nothing else is in it."""
        for path in sorted(self.folder.glob("pass-*.safetensors")):
            if NAME.fullmatch(path.name):
                path.unlink(missing_ok=True)
        for group in sorted(self.folder.glob("group-*")):
            if GROUP.fullmatch(group.name):
                Checkpoint(group).discard()
        with suppress(OSError):
            self.folder.rmdir()

    def clear(self) -> None:
        """Remove the files of a group, and its folder when all processes have done so."""
        if self._lasting:
            return
        self.remove(*range(1, FINISHED + 1))
        with suppress(OSError):
            self.folder.rmdir()

    def pause(self, take: Callable[[], Snapshot], *, now: bool = False) -> None:
        """Write what `take` returns if it is time to, or Ctrl-C was pressed, and stop in that case."""
        if now or self._asked or time.monotonic() >= self._next:
            self.write(take())
        self.stop_if_asked()

    def stop_if_asked(self) -> None:
        """Raise KeyboardInterrupt if Ctrl-C was pressed; what was written last is the state to go on from."""
        if self._asked:
            self._asked, told = False, self._whole or self.folder
            raise KeyboardInterrupt(
                f"the fit was stopped and is saved in '{told}'; call fit with the same arguments and "
                f"checkpoint='{told}' to go on."
            )

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """Remember the first Ctrl-C; a second one stops at once, as it would without this."""
        before = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is not threading.main_thread() or not callable(before):
            yield
            return

        def remember(number: int, frame: FrameType | None) -> None:
            if self._asked:
                before(number, frame)
            self._asked = True

        signal.signal(signal.SIGINT, remember)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
        if self._asked:  # after the last batch: nothing was left to save
            signal.raise_signal(signal.SIGINT)

    def _path(self, stage: int) -> Path:
        return self.folder / f"pass-{stage}{self._ending}.safetensors"


def _check(tensors: Mapping[str, Tensor], told: Mapping[str, str], what: str, remedy: str) -> None:
    """Raise a BadFileError unless a snapshot has the tensors that it had when it was written, and finite ones."""
    for name in sorted(tensors.keys() | told.keys()):
        found = _described_tensor(tensors[name]) if name in tensors else None
        if found != told.get(name):
            raise BadFileError(f"{what} must have {told.get(name, 'nothing')} as '{name}', got {found}; {remedy}.")
        if tensors[name].is_floating_point() and not tensors[name].isfinite().all():
            raise BadFileError(f"{what} has numbers that are not finite ('{name}'); {remedy}.")


def _described_tensor(tensor: Tensor) -> str:
    return " ".join([str(tensor.dtype).removeprefix("torch."), *map(str, tensor.shape)])


def _described(difference: Difference) -> str:
    if difference.now is None or difference.earlier is None:
        return f"{difference.name} is {'missing' if difference.now is None else 'new'}"
    return f"{difference.name} was {difference.earlier!r} and is {difference.now!r}"


def _laid_out(tensor: Tensor, stride: Sequence[int] | None, device: torch.device) -> Tensor:
    # memory of its own: products with numbers that begin at odd addresses of a file are rounded in another way
    layout = tensor.stride() if stride is None else tuple(stride)
    reach = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, layout, strict=True))
    if tensor.numel() and (min(layout, default=1) < 0 or reach > LOOSEST * max(1, tensor.numel())):
        raise ValueError(f"a tensor of shape {tuple(tensor.shape)} cannot have the strides {layout}")
    return torch.empty_strided(tensor.shape, layout, dtype=tensor.dtype, device=device).copy_(tensor)
