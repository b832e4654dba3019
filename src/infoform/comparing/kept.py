"""Answers of finished methods in a folder, so that an interrupted comparison goes on from them.

A file's name has a checksum of all that its answers depend on: network, posterior, data, and the method. Answers of
another comparison are simply not found.
"""

import json
import shutil
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from infoform.common import files
from infoform.common.files import under
from infoform.common.json_values import from_json, to_json
from infoform.comparing.answers import Answered
from infoform.comparing.methods import Method
from infoform.comparing.task import Task
from infoform.records.compare import Cost


@dataclass(frozen=True)
class Finished:
    """What a method has answered, and what it took."""

    test: Answered
    unknown: Mapping[str, Answered]
    settings: Mapping[str, str | float | None]
    cost: Cost
    notes: list[str]


@dataclass(frozen=True)
class KeptAnswers:
    """A folder of finished methods; None keeps nothing."""

    folder: Path | None
    identity: str = ""

    @classmethod
    def of(cls, folder: Path | None, task: Task) -> "KeptAnswers":
        """Return the folder for a comparison."""
        return cls(folder, "" if folder is None else _identity(task))

    def read(self, method: Method) -> Finished | None:
        """Return a finished method, if it is there and whole."""
        path = self._path(method)
        if path is None or not path.is_file():
            return None
        try:
            tensors, plain = files.read_file(path)
        except ValueError:  # damaged: it is made again
            return None
        unknown = {name: Answered.read(under(tensors, f"unknown/{at}/")) for at, name in enumerate(plain["unknown"])}
        cost = from_json(Cost, plain["cost"])
        return Finished(Answered.read(under(tensors, "test/")), unknown, plain["settings"], cost, plain["notes"])

    def write(self, method: Method, finished: Finished) -> None:
        """Keep a finished method."""
        path = self._path(method)
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        tensors = {f"test/{key}": one for key, one in finished.test.tensors().items()}
        for at, answered in enumerate(finished.unknown.values()):
            tensors |= {f"unknown/{at}/{key}": one for key, one in answered.tensors().items()}
        plain = {"unknown": list(finished.unknown), "settings": dict(finished.settings), "notes": finished.notes}
        files.write_file(path, tensors, {**plain, "cost": to_json(finished.cost)})

    def remove(self) -> None:
        """Remove the folder, once the comparison is written."""
        if self.folder is not None and self.folder.is_dir():
            shutil.rmtree(self.folder)

    def _path(self, method: Method) -> Path | None:
        if self.folder is None or method.key is None:
            return None
        digest = zlib.crc32(json.dumps([method.name, method.key, self.identity], default=str).encode())
        return self.folder / f"{digest:08x}.safetensors"


def _identity(task: Task) -> str:
    laplace = task.laplace
    data = {name: one.checksum for name, one in task.unknown.items()}
    own = [None if one is None else one.checksum for one in (task.test, task.validation, task.train)]
    posterior: list[Any] = [laplace.settings.flat(), laplace.prior.name, laplace.prior.settings(), laplace.num_data]
    posterior += [laplace.noise, laplace.temperature, asdict(laplace._fitted().fit.summary)]
    values = [files.fingerprint(laplace.model), data, own, posterior, task.samples, task.seed]
    return json.dumps(values, default=str, sort_keys=True)
