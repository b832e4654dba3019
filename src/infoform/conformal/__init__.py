"""Prediction sets and intervals that hold the answer as often as they say: split conformal prediction.

    score.py       how badly a class suits an input; one line in SET_SCORES each
    threshold.py   the score that a share of fresh examples stays below, for any number of calibration examples
    conformal.py   the scores of calibration examples, as a frozen value that makes sets and intervals

The room knows tensors only: probabilities, means and standard deviations of whatever method.
"""

from infoform.conformal.conformal import NOVELTY_EDGES, Conformal
from infoform.conformal.score import SET_SCORES, adaptive_scores, least_ambiguous_scores

__all__ = [
    "NOVELTY_EDGES",
    "SET_SCORES",
    "Conformal",
    "adaptive_scores",
    "least_ambiguous_scores",
]
