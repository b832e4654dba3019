"""From scores to novelty: p-values of each part on known examples, joined by Fisher's rule, and calibrated once more.

    F = −2 Σ_k w_k log p_k,    novelty = 1 − p(F) = the share of known examples with a smaller F

`trust.py` says how far distances count in that sum.
The parts are not independent, so that F of known examples is no χ²: its own distribution on known examples is taken.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from infoform.common.files import under
from infoform.novelty.percentiles import Percentiles
from infoform.novelty.trust import fisher_sum, trust_of
from infoform.prediction import Novelty

TABLES = ("single", "whole")


@dataclass(frozen=True, eq=False)
class Scores:
    """How strange N examples look, in numbers that mean nothing before they are calibrated."""

    parts: Mapping[str, Tensor]  # (N,) by part
    layers: Tensor  # (N, L): standardised log distances

    def __len__(self) -> int:
        return len(self.layers)

    def matrix(self, names: Sequence[str]) -> Tensor:  # (N, P + L)
        """Return the scores of these parts, then those of all layers."""
        return torch.column_stack([*(self.parts[name] for name in names), self.layers])

    @staticmethod
    def joined(scores: "list[Scores]") -> "Scores":
        """Return the scores of several batches as one."""
        parts = {name: torch.cat([one.parts[name] for one in scores]) for name in scores[0].parts}
        return Scores(parts, torch.cat([one.layers for one in scores]))

    def first(self, count: int) -> "Scores":
        """Return the scores of the first examples."""
        return Scores({name: one[:count] for name, one in self.parts.items()}, self.layers[:count])

    def to(self, device: torch.device | str) -> "Scores":
        """Return the same on a device."""
        return Scores({name: one.to(device) for name, one in self.parts.items()}, self.layers.to(device))


@dataclass(frozen=True, eq=False)
class Calibration:
    """The scores of known examples, as tables of percentiles."""

    part_names: tuple[str, ...]
    layer_names: tuple[str, ...]
    single: Percentiles  # of each part, then of each layer
    whole: Percentiles  # of F
    source: str  # which known examples these were
    trust: float = 1.0  # how far distances order ordinary inputs

    @classmethod
    def of(
        cls, scores: Scores, layer_names: tuple[str, ...], *, source: str, trust: float | None = None
    ) -> "Calibration":
        """Return the tables of known examples' scores.

        Args:
            scores: Of the known examples.
            layer_names: Of the columns of `scores.layers`.
            source: Which examples these are, in a few words.
            trust: How far distances order ordinary inputs; where None, as these examples say.

        Raises:
            ValueError: If there are no examples, or a score is not finite.
        """
        if len(scores) == 0:
            raise ValueError("novelty is calibrated on known examples, and the loader gave none; check the data.")
        names = tuple(scores.parts)
        every = scores.matrix(names)
        bad = int((~every.isfinite().all(1)).sum())
        if bad:
            raise ValueError(
                f"novelty is calibrated on inputs that the network has finite activations for, got {bad} of "
                f"{len(every)} others; look for missing values (NaN) in the data."
            )
        single = Percentiles.of(every)
        trust = trust_of(scores.parts) if trust is None else trust
        whole = Percentiles.of(fisher_sum(single.log_p_values(every)[:, : len(names)], names, trust))
        return cls(names, layer_names, single, whole, source, trust)

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
        single = self.single.log_p_values(scores.matrix(self.part_names))
        count = len(self.part_names)
        whole = self.whole.log_p_values(fisher_sum(single[:, :count], self.part_names, self.trust))
        logs = torch.cat([whole, single], dim=1)
        below = torch.expm1(logs).neg_().to(dtype)
        novelty, by_part, by_layer = below[:, 0].clone(), below[:, 1 : count + 1].clone(), below[:, count + 1 :].clone()
        return Novelty(novelty, by_part, by_layer, self.part_names, self.layer_names, logs.to(dtype), self.source)

    def joined(self, other: "Calibration") -> "Calibration":
        """Return about the calibration on the known examples of both."""
        tables = {name: getattr(self, name).joined(getattr(other, name)) for name in TABLES}
        return Calibration(self.part_names, self.layer_names, source=self.source, trust=self.trust, **tables)

    def pack(self) -> tuple[dict[str, Tensor], dict[str, object]]:
        """Return tensors by name, and what JSON can hold."""
        tensors = {f"{name}/{key}": one for name in TABLES for key, one in getattr(self, name).tensors().items()}
        return tensors, {"part_names": list(self.part_names), "source": self.source, "trust": self.trust}

    @classmethod
    def unpack(
        cls, tensors: Mapping[str, Tensor], plain: Mapping[str, object], layer_names: tuple[str, ...]
    ) -> "Calibration":
        """Undo `pack`."""
        tables = {name: Percentiles(**under(tensors, f"{name}/")) for name in TABLES}
        names, trust = plain["part_names"], plain.get("trust", 1.0)  # files of earlier versions trust all parts
        assert isinstance(names, list)
        assert isinstance(trust, float | int)
        return cls(tuple(names), layer_names, source=str(plain["source"]), trust=float(trust), **tables)
