"""What is to be fitted: model, likelihood and layers, the statistics that are asked for, and how and where."""

import zlib
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from torch import nn

from infoform.common import files as storage
from infoform.curvature.curvature import Fit, pack_curvature
from infoform.curvature.request import FitSettings, StatisticsRequest
from infoform.fitting.placement import Placement
from infoform.likelihoods import Likelihood
from infoform.network.layer import Layer

KEEP_BYTES = 256 * 2**20


@dataclass(frozen=True)
class FitTask:
    """All that a fit is told besides its data."""

    model: nn.Module
    likelihood: Likelihood
    layers: Mapping[str, Layer]
    request: StatisticsRequest
    settings: FitSettings
    place: Placement
    novelty_bytes: int | None = None  # about what novelty may store; None where it is not collected
    named: frozenset[str] = frozenset()  # layers that the user named one by one: refused, not held fixed, where odd
    check: bool = True  # whether captured gradients of a few examples are compared with autograd's
    keep_bytes: int = KEEP_BYTES  # for what a last layer saw: a second pass need not run the network on these examples

    def of(self, names: Collection[str]) -> "FitTask":
        """Return the task of some of the layers, in their order."""
        return replace(self, layers={name: layer for name, layer in self.layers.items() if name in names})

    def identity(self, previous: Fit | None) -> dict[str, Any]:
        """Return what tells this fit from others, by names that an error can use; the data are told by their digest.

        Args:
            previous: The fit that this one adds to, if it is an update.
        """
        request, settings = asdict(self.request), asdict(self.settings)
        own = {f"statistics of layer '{name}'": _plain(value) for name, value in request.pop("own").items()}
        return {
            **{f"parameter '{name}'": storage.describe(value) for name, value in self.model.named_parameters()},
            **{f"buffer '{name}'": storage.describe(value) for name, value in self.model.named_buffers()},
            "likelihood": [self.likelihood.name, self.likelihood.settings()],
            **{f"layer '{name}'": list(layer.shape) for name, layer in self.layers.items()},
            **{name: str(value) if name == "autocast" else value for name, value in settings.items()},
            "bases": sorted(self.request.bases),
            **{f"statistics '{name}'": _plain(value) for name, value in request.items()},
            **own,
            "novelty": self.novelty_bytes,
            "digests of data": "after 1, 2, 4, ... batches, and of all",  # earlier versions kept others
            "the fit before": None if previous is None else _digest(previous),
        }


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items() if name != "own"}
    return sorted(value) if isinstance(value, frozenset) else list(value) if isinstance(value, tuple) else value


def _digest(fit: Fit) -> str:
    digest = zlib.crc32(repr(fit.summary).encode())
    for name, one in fit.curvature.items():
        tensors, settings = pack_curvature(one)
        told = {key: storage.describe(value) for key, value in tensors.items()}
        digest = zlib.crc32(repr((name, settings, told)).encode(), digest)
    return f"{digest:08x}"
