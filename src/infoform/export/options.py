"""What an export is asked for: which form of the posterior, how many samples, in which precision."""

from dataclasses import dataclass

from infoform.common.checks import check_choice, check_whole
from infoform.conformal.threshold import check_level
from infoform.export.last_layer import GRAPH_LINKS
from infoform.export.stored_weights import PRECISIONS

AUTO, LAST_LAYER, SAMPLES, HEADS, LINEAR = "auto", "last-layer", "samples", "heads", "linear"
EXPORT_KINDS = (AUTO, LAST_LAYER, SAMPLES, HEADS, LINEAR)
DRAWS = 100  # of a last layer's outputs: they cost next to nothing
NETWORKS = 16  # sampled ones, or sampled last layers


@dataclass(frozen=True)
class ExportOptions:
    """How a posterior is exported.

    Raises:
        ValueError: if a choice is unknown, or `samples` is no even whole number.
    """

    kind: str = AUTO  # one of EXPORT_KINDS
    samples: int | None = None
    link: str | None = None  # one of GRAPH_LINKS; chosen where None
    precision: str = "float32"
    seed: int = 0
    coverage: float = 0.9  # of prediction sets or intervals

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, EXPORT_KINDS)
        check_choice("precision", self.precision, PRECISIONS)
        check_choice("link", self.link, (None, *GRAPH_LINKS))
        check_level(self.coverage)
        if self.samples is not None:
            check_whole("samples", self.samples, least=2)
            if self.samples % 2:
                raise ValueError(f"samples must be even, since networks come in opposite pairs, got {self.samples}.")

    def count(self, kind: str) -> int:
        """Return how many samples a graph of this kind has."""
        return self.samples or (DRAWS if kind == LAST_LAYER else NETWORKS)
