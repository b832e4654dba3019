"""Other ways to be uncertain, to compare with: to add one, write a file with a final `Baseline` and a line here."""

from infoform.baselines.baseline import Baseline, WeightBaseline

BASELINES: dict[str, type[Baseline]] = {}

__all__ = [
    "BASELINES",
    "Baseline",
    "WeightBaseline",
]
