"""From scores to novelty: p-values of each part on known examples, joined by Fisher's rule, and calibrated once more.

    F = −2 Σ_k log p_k,    novelty = 1 − p(F) = the share of known examples with a smaller F

The parts are not independent, so that F of known examples is no χ²: its own distribution on known examples is taken.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from infoform.common.files import under
from infoform.novelty.percentiles import Percentiles
from infoform.prediction import Novelty

TABLES = ("parts", "layers", "whole")


@dataclass(frozen=True, eq=False)
class Scores:
    """How strange N examples look, in numbers that mean nothing before they are calibrated."""

    parts: Mapping[str, Tensor]  # (N,) by part
    layers: Tensor  # (N, L): standardised log distances

    def __len__(self) -> int:
        return len(self.layers)

    @staticmethod
    def joined(scores: "list[Scores]") -> "Scores":
        """Return the scores of several batches as one."""
        parts = {name: torch.cat([one.parts[name] for one in scores]) for name in scores[0].parts}
        return Scores(parts, torch.cat([one.layers for one in scores]))

    def to(self, device: torch.device | str) -> "Scores":
        """Return the same on a device."""
        return Scores({name: one.to(device) for name, one in self.parts.items()}, self.layers.to(device))


@dataclass(frozen=True, eq=False)
class Calibration:
    """The scores of known examples, as tables of percentiles."""

    part_names: tuple[str, ...]
    layer_names: tuple[str, ...]
    parts: Percentiles
    layers: Percentiles
    whole: Percentiles  # of F
    source: str  # which known examples these were

    @classmethod
    def of(cls, scores: Scores, layer_names: tuple[str, ...], *, source: str) -> "Calibration":
        """Return the tables of known examples' scores.

        Args:
            scores: Of the known examples.
            layer_names: Of the columns of `scores.layers`.
            source: Which examples these are, in a few words.

        Raises:
            ValueError: If there are no examples, or a score is not finite.
        """
        if len(scores) == 0:
            raise ValueError("novelty is calibrated on known examples, and the loader gave none; check the data.")
        names = tuple(scores.parts)
        parts = torch.stack([scores.parts[name].double() for name in names], dim=1)
        bad = int((~(parts.isfinite().all(1) & scores.layers.isfinite().all(1))).sum())
        if bad:
            raise ValueError(
                f"novelty is calibrated on inputs that the network has finite activations for, got {bad} of "
                f"{len(parts)} others; look for missing values (NaN) in the data."
            )
        tables = Percentiles.of(parts)
        whole = Percentiles.of(_fisher(tables.log_p_values(parts)))
        return cls(names, layer_names, tables, Percentiles.of(scores.layers), whole, source)

    @property
    def count(self) -> int:
        """Return the number of known examples."""
        return int(self.whole.count)

    @property
    def nbytes(self) -> int:
        """Return the bytes of all tables."""
        return sum(getattr(self, name).nbytes for name in TABLES)

    def novelty(self, scores: Scores, *, dtype: torch.dtype) -> Novelty:
        """Return the novelty of examples with these scores, in a dtype."""
        parts = torch.stack([scores.parts[name].double() for name in self.part_names], dim=1)
        by_part = self.parts.log_p_values(parts)
        whole = self.whole.log_p_values(_fisher(by_part))[:, 0]

        def below(log_p: Tensor) -> Tensor:
            return -torch.expm1(log_p).to(dtype)

        return Novelty(
            below(whole),
            below(by_part),
            below(self.layers.log_p_values(scores.layers)),
            self.part_names,
            self.layer_names,
        )

    def joined(self, other: "Calibration") -> "Calibration":
        """Return about the calibration on the known examples of both."""
        tables = {name: getattr(self, name).joined(getattr(other, name)) for name in TABLES}
        return Calibration(self.part_names, self.layer_names, source=self.source, **tables)

    def pack(self) -> tuple[dict[str, Tensor], dict[str, object]]:
        """Return tensors by name, and what JSON can hold."""
        tensors = {f"{name}/{key}": one for name in TABLES for key, one in getattr(self, name).tensors().items()}
        return tensors, {"part_names": list(self.part_names), "source": self.source}

    @classmethod
    def unpack(
        cls, tensors: Mapping[str, Tensor], plain: Mapping[str, object], layer_names: tuple[str, ...]
    ) -> "Calibration":
        """Undo `pack`."""
        tables = {name: Percentiles(**under(tensors, f"{name}/")) for name in TABLES}
        names = plain["part_names"]
        assert isinstance(names, list)
        return cls(tuple(names), layer_names, source=str(plain["source"]), **tables)


def _fisher(log_p: Tensor) -> Tensor:  # (N, P) -> (N, 1)
    return -2 * log_p.sum(1, keepdim=True)
