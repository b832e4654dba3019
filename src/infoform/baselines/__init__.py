"""Other ways to be uncertain, to compare with: to add one, write a file with a final `Baseline` and a line here."""

from infoform.baselines.baseline import Baseline, WeightBaseline
from infoform.baselines.bbb import BBB
from infoform.baselines.ensemble import Ensemble
from infoform.baselines.hmc import HMC
from infoform.baselines.mc_dropout import MCDropout
from infoform.baselines.swa import SWA
from infoform.baselines.swag import SWAG

BASELINES: dict[str, type[Baseline]] = {
    "mc-dropout": MCDropout,
    "ensemble": Ensemble,
    "swa": SWA,
    "swag": SWAG,
    "bbb": BBB,
    "hmc": HMC,
}

__all__ = [
    "BASELINES",
    "BBB",
    "HMC",
    "SWA",
    "SWAG",
    "Baseline",
    "Ensemble",
    "MCDropout",
    "WeightBaseline",
]
