"""What a fit has learnt of known inputs: a sparse Gaussian for each layer and for the classes, and percentiles."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from infoform.common.files import under
from infoform.common.float64 import in_double
from infoform.likelihoods import Likelihood
from infoform.novelty.calibration import Calibration, Scores
from infoform.novelty.parts import PARTS, Sight
from infoform.novelty.sparse_gaussian import SparseGaussian, merge_gaussians

LEFT_OUT = "training examples that were left out of the moments"
LEAST_DEVIATION = 1e-3  # of log distances: of a layer whose inputs never vary


@dataclass(frozen=True, eq=False)
class KnownInputs:
    """The inputs of every layer, as the training data have them."""

    layers: Mapping[str, SparseGaussian]  # of pooled inputs, by layer
    head: str  # the layer that the outputs come from
    classes: SparseGaussian  # of its pooled inputs, scaled to length 1; one class where there are no labels
    centre: Tensor  # (L,): mean of each layer's log distance over known examples
    spread: Tensor  # (L,): standard deviation of it
    calibration: Calibration | None = None

    @property
    def layer_names(self) -> tuple[str, ...]:
        """Return the names of the layers, in the order of their distances."""
        return tuple(self.layers)

    @property
    def nbytes(self) -> int:
        """Return the bytes of all that is stored."""
        gaussians = sum(one.nbytes for one in (*self.layers.values(), self.classes))
        tables = 0 if self.calibration is None else self.calibration.nbytes
        return gaussians + self.centre.nbytes + self.spread.nbytes + tables

    def scores(
        self, rows: Mapping[str, Tensor], outputs: Tensor, likelihood: Likelihood, *, strangeness: Tensor | None = None
    ) -> Scores:
        """Return how strange examples look.

        Args:
            rows: Pooled inputs (N, D) by layer; a layer that was not called looks as usual.
            outputs: Of the trained network, (N, C) or (N, *P, C).
            likelihood: What the outputs are for.
            strangeness: Of the answers, (N,), where it is known and the outputs are not.
        """
        distances = self.distances(rows, outputs.shape[0])
        standardised = (distances - self.centre.to(distances)) / self.spread.to(distances)
        head = rows.get(self.head)
        unit = None if head is None else unit_length(in_double(head))
        near = distances.new_zeros(len(distances)) if unit is None else self.classes.log_distance(unit)
        sight = Sight(standardised, near, outputs, likelihood, strangeness)
        found = {name: part.score(sight) for name, part in PARTS.items()}
        return Scores({name: one.double() for name, one in found.items() if one is not None}, standardised)

    def distances(self, rows: Mapping[str, Tensor], examples: int) -> Tensor:  # (N, D) by layer -> (N, L)
        """Return the log distance of each layer's inputs; of a layer that was not called, the usual one."""
        usual = self.centre.double()
        found = [
            gaussian.log_distance(rows[name])
            if name in rows and rows[name].shape[1] == len(gaussian.mean)
            else usual[place].expand(examples)
            for place, (name, gaussian) in enumerate(self.layers.items())
        ]
        return torch.stack([one.cpu() for one in found], dim=1)

    @classmethod
    def uncalibrated(cls, layers: Mapping[str, SparseGaussian], head: str, classes: SparseGaussian) -> "KnownInputs":
        """Return what is known before any distance was measured; the units of distances are those of Gaussians."""
        spread = torch.tensor([(2 / len(one.mean)) ** 0.5 for one in layers.values()])
        return cls(layers, head, classes, torch.zeros_like(spread), spread)

    def merged(self, other: "KnownInputs") -> "KnownInputs":
        """Return what is known of both sets of inputs, with the calibration of the first.

        A layer that the first set has not seen is left out.
        """
        layers = {
            name: merge_gaussians(one, other.layers[name]) if name in other.layers else one
            for name, one in self.layers.items()
        }
        classes = merge_gaussians(self.classes, other.classes) if self.head == other.head else self.classes
        return replace(self, layers=layers, classes=classes)


def unit_length(rows: Tensor) -> Tensor:  # (N, D) -> (N, D)
    """Return the rows scaled to length 1."""
    wide = rows if rows.dtype in (torch.float32, torch.float64) else rows.float()
    return functional.normalize(wide, dim=1, eps=torch.finfo(wide.dtype).tiny)


def calibrated(
    known: KnownInputs,
    rows: Mapping[str, Tensor],
    outputs: Tensor,
    likelihood: Likelihood,
    *,
    strangeness: Tensor | None = None,
) -> KnownInputs:
    """Return what is known, calibrated on examples that are in none of the moments, beside those of an earlier fit.

    Args:
        known: What is known of inputs; of an earlier fit's, the units of distances stay.
        rows: Pooled inputs (n, D) of the examples, by layer.
        outputs: Of the trained network for these examples, (n, C).
        likelihood: What the outputs are for.
        strangeness: Of the answers, (n,), where it is known and the outputs are not.
    """
    if len(outputs) == 0:
        return known
    if known.calibration is None and len(outputs) > 1:
        distances = known.distances(rows, len(outputs)).cpu()
        spread = distances.std(0).clamp_min(LEAST_DEVIATION)
        known = replace(known, centre=distances.mean(0).float(), spread=spread.float())
    scores = known.scores(rows, outputs, likelihood, strangeness=strangeness)
    trust = None if known.calibration is None else known.calibration.trust
    own = Calibration.of(scores, known.layer_names, source=LEFT_OUT, trust=trust)
    return replace(known, calibration=own if known.calibration is None else known.calibration.joined(own))


def pack_known(known: KnownInputs) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return tensors by name, and what JSON can hold."""
    tensors = {f"layer/{name}/{key}": t for name, one in known.layers.items() for key, t in one.tensors().items()}
    tensors |= {f"classes/{key}": one for key, one in known.classes.tensors().items()}
    tensors |= {"centre": known.centre, "spread": known.spread}
    plain: dict[str, Any] = {"layers": list(known.layer_names), "head": known.head}
    if known.calibration is not None:
        tables, plain["calibration"] = known.calibration.pack()
        tensors |= {f"calibration/{key}": one for key, one in tables.items()}
    return tensors, plain


def unpack_known(tensors: Mapping[str, Tensor], plain: Mapping[str, Any]) -> KnownInputs:
    """Undo `pack_known`."""
    names: Sequence[str] = plain["layers"]
    tensors = {name: one.cpu() for name, one in tensors.items()}
    calibration = None
    if "calibration" in plain:
        calibration = Calibration.unpack(under(tensors, "calibration/"), plain["calibration"], tuple(names))
    return KnownInputs(
        {name: SparseGaussian.of(under(tensors, f"layer/{name}/")) for name in names},
        plain["head"],
        SparseGaussian.of(under(tensors, "classes/")),
        tensors["centre"],
        tensors["spread"],
        calibration,
    )
