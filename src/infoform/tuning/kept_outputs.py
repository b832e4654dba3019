"""Outputs of validation data that a search has computed, in a file beside its trials until the search is done."""

import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from infoform.common import files
from infoform.common.same_work import Identity
from infoform.predicting.raw_outputs import RawOutputs


@dataclass(frozen=True)
class LastingTrials(os.PathLike[str]):
    """The file of a search's trials, whose outputs stay beside it until whoever saves the choice removes them."""

    path: Path

    def __fspath__(self) -> str:
        return str(self.path)


def outputs_beside(path: str | os.PathLike[str]) -> Path:
    """Return where a search keeps outputs, beside its trials."""
    return Path(f"{os.fspath(path)}.outputs")


@dataclass
class KeptOutputs:
    """Raw outputs and targets by name; kept in `path`, and found there again by the same search."""

    path: Path | None
    identity: Identity
    tensors: dict[str, Tensor] = field(default_factory=dict)
    found: dict[str, RawOutputs] = field(default_factory=dict)  # by this search itself

    @classmethod
    def beside(cls, path: str | os.PathLike[str] | None, identity: Identity, *, device: torch.device) -> "KeptOutputs":
        """Return what the same search has kept beside its trials; nothing where there is none, or another's."""
        kept = cls(None if path is None else outputs_beside(path), identity)
        if kept.path is not None and kept.path.exists():
            # a damaged file is of no use, and is written anew
            with suppress(ValueError, KeyError, TypeError, AttributeError):
                tensors, saved = files.read_file(kept.path, device=device)
                kept.tensors = tensors if not identity.differences(saved["settings"]) else {}
        return kept

    def get(self, name: str) -> RawOutputs | None:
        """Return the outputs of that name, if they are there."""
        if name in self.found:
            return self.found[name]
        prefix = f"{name}/"
        own = {key.removeprefix(prefix): value for key, value in self.tensors.items() if key.startswith(prefix)}
        if not own:
            return None
        return RawOutputs(own["plain"], own.get("covariance"), own.get("samples"), examples=own.get("examples"))

    def put(self, outputs: dict[str, RawOutputs], targets: dict[str, Tensor]) -> None:
        """Keep outputs and targets by their names."""
        self.found |= outputs
        self.tensors |= {f"targets:{name}": value for name, value in targets.items()}
        for name, raw in outputs.items():
            if raw.covariance is None and raw.samples is None:
                continue  # which are known from the posterior alone
            fields = {name: getattr(raw, name) for name in ("plain", "covariance", "samples", "examples")}
            self.tensors |= {f"{name}/{key}": value for key, value in fields.items() if value is not None}
        if self.path is not None:
            files.write_file(self.path, self.tensors, {"settings": dict(self.identity.values)})

    def targets(self, name: str) -> Tensor:
        """Return the targets that were kept under a name."""
        return self.tensors[f"targets:{name}"]

    def remove(self) -> None:
        """Remove the file: the search is done."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)
