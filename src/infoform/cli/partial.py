"""Predictions that survive an interruption: finished batches wait in a folder beside the output until all are done.

Each file of the folder holds the batches that were finished since the file before it, a checksum of the data of each
batch, and the identity of the command: its options, the posterior and the network. No other command goes on from it.
Every batch draws its own random numbers, so the result has the same bits whether the command was stopped or not.
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
from infoform.cli.record import Record
from infoform.cli.run_folder import OpenRun
from infoform.cli.run_lock import RunLock
from infoform.common import files as storage
from infoform.common.digest import update_digest
from infoform.common.json_values import from_json
from infoform.common.same_work import Identity, refusal
from infoform.common.whole_files import sweep
from infoform.network.batches import device_of
from infoform.predicting.resumable_batches import BatchStore, StoredBatch
from infoform.version import __version__

FREE = ("run", "out", "model", "weights", "model-arg", "number", "by")  # options that change no prediction
EVERY = 1.0  # seconds between two files, at least
SHARE = 0.05  # of the time, at most, is spent on writing
REMEDY = "add --restart to forget them"


@contextmanager
def resumable(
    context: typer.Context, output: Path, run: OpenRun, record: Record, *, restart: bool
) -> Iterator["Parts"]:
    """Save the predictions of finished batches until the verb is done, and go on from those of an earlier command."""
    folder = output.with_name(f"{output.name}.part")
    try:
        lock = RunLock(output.with_name(f".{output.name}.lock"), f"'{output}'", record.verb, alone=True)
    except OSError as error:
        raise Mistake(f"'{output}' cannot be written: {error.strerror or error}; give another path.") from error
    record.after.append(lock.release)
    try:
        sweep(folder)
        yield from _resumable(context, folder, run, record, restart=restart)
    except BaseException:
        lock.release()
        raise


def _resumable(
    context: typer.Context, folder: Path, run: OpenRun, record: Record, *, restart: bool
) -> Iterator["Parts"]:
    parts = Parts(folder, _identity(context, run), device_of(run.laplace.model), restart=restart)
    try:
        yield parts
    except BaseException as error:
        parts.write()
        if parts.any and not isinstance(error, Mistake):
            say(f"note: the predictions so far are in '{folder}'; the same command goes on from there.", style="yellow")
        raise
    record.after.insert(0, parts.forget)  # when the result is written


class Parts:
    """The finished batches of one command, by the name of the data and their number."""

    def __init__(self, folder: Path, identity: Identity, device: torch.device, *, restart: bool) -> None:
        self._folder, self._identity, self._device = folder, identity, device
        self._outdated = restart  # the folder's files are removed before the first new one is written
        self._digests: dict[str, int] = {}
        self._earlier: dict[str, dict[str, Tensor]] = {}  # batches of an earlier command
        self._waiting: dict[str, Mapping[str, Tensor]] = {}  # batches that are in no file yet
        self._files = 0
        self._next = 0.0  # when to write again
        if not restart:
            self._read()

    @property
    def any(self) -> bool:
        """Tell whether there are batches to go on from."""
        return bool(self._digests)

    def of(self, data: str) -> BatchStore:
        """Return the function that finds and stores the batches of one pass over these data."""
        numbers = count()

        def keep(raw: Any) -> StoredBatch:
            number = next(numbers)
            key, digest = f"{data}/{number}", update_digest(raw, 0)
            if key in self._earlier and self._digests[key] != digest:
                raise Mistake(f"'{self._folder}' holds predictions of other data (batch {number} differs); {REMEDY}.")
            return _Place(self, key, digest, self._earlier.get(key))

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
        tensors = {f"{key}/{name}": tensor for key, made in waiting.items() for name, tensor in made.items()}
        about = {"identity": self._identity.values, "digests": {key: self._digests[key] for key in waiting}}
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
                about = from_json(_About, saved["parts"])
            except (ValueError, KeyError):
                raise Mistake(f"'{path}' is damaged, and its predictions are lost; {REMEDY}, and the others.") from None
            self._check(about.identity)
            self._digests |= about.digests
            for key, tensor in tensors.items():
                batch, _, name = key.rpartition("/")
                self._earlier.setdefault(batch, {})[name] = tensor
            self._files = int(path.stem) + 1 if path.stem.isdigit() else self._files
        if self._earlier:
            say(f"note: going on from {len(self._earlier)} batches in '{self._folder}'.", style="yellow")

    def _check(self, earlier: Mapping[str, Any]) -> None:
        differences = self._identity.differences(earlier)
        if differences:
            raise Mistake(refusal(f"'{self._folder}' holds predictions of another command", differences, remedy=REMEDY))


@dataclass(frozen=True)
class _About:
    """What a file of finished batches says of itself, as JSON holds it."""

    identity: Mapping[str, Any]
    digests: Mapping[str, int]


@dataclass
class _Place:
    """The place of one batch."""

    parts: Parts
    key: str
    digest: int
    result: Mapping[str, Tensor] | None

    def save(self, result: Mapping[str, Tensor]) -> None:
        self.parts.add(self.key, self.digest, result)


def _identity(context: typer.Context, run: OpenRun) -> Identity:
    """Return all that the predictions depend on besides the values of the data."""
    options = {f"--{name}": value for name, value in used_options(context).items() if name not in FREE}
    network = hashlib.sha256()
    for name, value in run.laplace.model.state_dict().items():
        network.update(f"{name} {storage.describe(value)}".encode() if isinstance(value, Tensor) else name.encode())
    values = {
        **options,
        "the posterior": hashlib.sha256(run.folder.posterior.read_bytes()).hexdigest()[:12],
        "the network": network.hexdigest()[:12],
        "the device": str(device_of(run.laplace.model)),
        "infoform": __version__,
        "torch": str(torch.__version__),
    }
    return Identity(values)
