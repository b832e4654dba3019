"""Predictions that survive an interruption: those of finished batches, in a folder beside the output until it is there.

A file holds the batches since the last one. It says which command, posterior and network it is of, with a checksum of
each batch's data, and no other command goes on from it. Every batch draws its own random numbers, so that a verb that
goes on ends with the bits of one that was never stopped.
"""

import hashlib
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import torch
import typer
from torch import Tensor

from infoform.cli.config_file import used_options
from infoform.cli.mistakes import Mistake, say
from infoform.cli.run_folder import OpenRun
from infoform.common import files as storage
from infoform.common.digest import update_digest
from infoform.network.batches import device_of
from infoform.predicting.resumable_batches import BatchStore, StoredBatch
from infoform.version import __version__

FREE = ("run", "out", "model", "weights", "model-arg", "number", "by")  # options that say nothing about predictions
EVERY = 1.0  # seconds between two files, at least
SHARE = 0.05  # of the time, at most, is spent on writing
REMEDY = "add --restart to forget them"


@contextmanager
def resumable(context: typer.Context, output: Path, run: OpenRun, *, restart: bool) -> Iterator["Parts"]:
    """Keep what is predicted until the verb is done, and go on from what an earlier one kept."""
    folder = output.with_name(f"{output.name}.part")
    parts = Parts(folder, _identity(context, run), device_of(run.laplace.model), restart=restart)
    try:
        yield parts
    except BaseException as error:
        parts.write()
        if parts.any and not isinstance(error, Mistake):
            say(f"note: the predictions so far are in '{folder}'; the same command goes on from there.", style="yellow")
        raise
    parts.forget()


class Parts:
    """The finished batches of one command, by the name of the data and their number."""

    def __init__(self, folder: Path, identity: Mapping[str, Any], device: torch.device, *, restart: bool) -> None:
        self._folder, self._identity, self._device = folder, dict(identity), device
        self._outdated = restart  # what is in the folder is forgotten when there is something new
        self._digests: dict[str, int] = {}
        self._found: dict[str, dict[str, Tensor]] = {}
        self._waiting: dict[str, Mapping[str, Tensor]] = {}
        self._files = 0
        self._next = 0.0  # when to write again
        if not restart:
            self._read()

    @property
    def any(self) -> bool:
        """Whether there is something to go on from."""
        return bool(self._digests)

    def of(self, data: str) -> BatchStore:
        """Return the hook for one pass over these data."""
        numbers = count()

        def keep(raw: Any) -> StoredBatch:
            number = next(numbers)
            key, digest = f"{data}/{number}", update_digest(raw, 0)
            if key in self._found and self._digests[key] != digest:
                raise Mistake(f"'{self._folder}' holds predictions of other data (batch {number} differs); {REMEDY}.")
            return _Place(self, key, digest, self._found.get(key))

        return keep

    def add(self, key: str, digest: int, made: Mapping[str, Tensor]) -> None:
        """Keep what was made of a batch, and write it if it is time to."""
        self._digests[key], self._waiting[key] = digest, made
        if time.monotonic() >= self._next:
            self.write()

    def write(self) -> None:
        """Write the batches that are not in a file yet, as one file that is there as a whole or not at all."""
        if not self._waiting:
            return
        started = time.monotonic()
        waiting = self._waiting
        if self._outdated:
            self.forget()
        self._folder.mkdir(exist_ok=True)
        tensors = {f"{key}/{name}": one for key, made in waiting.items() for name, one in made.items()}
        about = {"identity": self._identity, "digests": {key: self._digests[key] for key in waiting}}
        storage.write_file(self._folder / f"{self._files:06d}.safetensors", tensors, {"parts": about})
        self._files += 1
        self._waiting = {}
        now = time.monotonic()
        self._next = now + max(EVERY, (now - started) / SHARE)

    def forget(self) -> None:
        """Remove the folder, and what was to be written."""
        self._outdated, self._waiting = False, {}
        shutil.rmtree(self._folder, ignore_errors=True)

    def _read(self) -> None:
        if self._folder.exists() and not self._folder.is_dir():
            raise Mistake(f"'{self._folder}' is a file where a folder is needed; move it away.")
        for path in sorted(self._folder.glob("*.safetensors")):
            try:
                tensors, saved = storage.read_file(path, device=self._device)
                about = saved["parts"]
            except (ValueError, KeyError):
                raise Mistake(f"'{path}' is damaged, and its predictions are lost; {REMEDY}, and the others.") from None
            self._check(about["identity"])
            self._digests |= about["digests"]
            for key, one in tensors.items():
                batch, _, name = key.rpartition("/")
                self._found.setdefault(batch, {})[name] = one
            self._files = int(path.stem) + 1
        if self._found:
            say(f"note: going on from {len(self._found)} batches in '{self._folder}'.", style="yellow")

    def _check(self, earlier: Mapping[str, Any]) -> None:
        for name in {**earlier, **self._identity}:
            was, found = (one.get(name, "not given") for one in (earlier, self._identity))
            if was != found:
                told = f"{name} was {was}, is {found}"
                raise Mistake(f"'{self._folder}' holds predictions of another command ({told}); {REMEDY}.")


@dataclass
class _Place:
    """The place of one batch."""

    parts: Parts
    key: str
    digest: int
    result: Mapping[str, Tensor] | None

    def save(self, result: Mapping[str, Tensor]) -> None:
        self.parts.add(self.key, self.digest, result)


def _identity(context: typer.Context, run: OpenRun) -> dict[str, Any]:
    """Return all that predictions depend on besides the data's values, by names for people."""
    options = {f"--{name}": value for name, value in used_options(context).items() if name not in FREE}
    network = hashlib.sha256()
    for name, one in run.laplace.model.state_dict().items():
        network.update(f"{name} {storage.describe(one)}".encode() if isinstance(one, Tensor) else name.encode())
    return {
        **options,
        "the posterior": hashlib.sha256(run.folder.posterior.read_bytes()).hexdigest()[:12],
        "the network": network.hexdigest()[:12],
        "the device": str(device_of(run.laplace.model)),
        "infoform": __version__,
        "torch": str(torch.__version__),
    }
