"""Other ways to be uncertain, to compare with: to add one, write a file with a final `Baseline` and a line here."""

from infoform.baselines.baseline import Baseline, WeightBaseline
from infoform.baselines.ensemble import Ensemble
from infoform.baselines.mc_dropout import MCDropout
from infoform.baselines.swa import SWA
from infoform.baselines.swag import SWAG

BASELINES: dict[str, type[Baseline]] = {
    "mc-dropout": MCDropout,
    "ensemble": Ensemble,
    "swa": SWA,
    "swag": SWAG,
}

__all__ = [
    "BASELINES",
    "SWA",
    "SWAG",
    "Baseline",
    "Ensemble",
    "MCDropout",
    "WeightBaseline",
]
