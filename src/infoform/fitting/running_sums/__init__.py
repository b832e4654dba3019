"""Running sums over examples from which a layer's curvature is made, one class a statistic."""

from infoform.fitting.running_sums.base import Operations, Sums
from infoform.fitting.running_sums.input_energy import InputEnergy
from infoform.fitting.running_sums.measured import Block, ProjectedSquares, Squares
from infoform.fitting.running_sums.moments import GradientFactor, InputFactor, Moment, SecondMoment, Sketch

__all__ = [
    "Block",
    "GradientFactor",
    "InputEnergy",
    "InputFactor",
    "Moment",
    "Operations",
    "ProjectedSquares",
    "SecondMoment",
    "Sketch",
    "Squares",
    "Sums",
]
