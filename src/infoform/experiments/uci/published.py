"""Published numbers that the UCI experiments are set beside."""

from collections.abc import Mapping
from typing import NamedTuple


class Errors(NamedTuple):
    """Relative errors of the information matrix, in Frobenius norm; the diagonal of INF has none."""

    diagonal_kfac: float
    diagonal_efb: float
    off_diagonal_kfac: float
    off_diagonal_efb: float  # and of INF at all ranks
    off_diagonal_inf: float  # at 5 % of the ranks


# Lee et al. 2020, section 5, table `results:tab:frobenius`
ERRORS: Mapping[str, Errors] = {
    "boston": Errors(0.238, 0.296, 0.672, 0.524, 0.608),
    "concrete": Errors(0.185, 0.253, 0.632, 0.506, 0.639),
    "energy": Errors(0.138, 0.335, 0.646, 0.504, 0.619),
    "kin8nm": Errors(0.077, 0.256, 0.594, 0.526, 0.670),
    "naval": Errors(0.235, 0.224, 0.716, 0.465, 0.480),
    "power": Errors(0.113, 0.252, 0.681, 0.492, 0.570),
    "protein": Errors(0.323, 0.332, 0.779, 0.541, 0.548),
    "wine": Errors(0.221, 0.287, 0.638, 0.535, 0.685),
    "yacht": Errors(0.104, 0.201, 0.653, 0.516, 0.699),
}
# Lee et al. 2020, supplement, table `results:uci:rmse`
RMSE: Mapping[str, float] = {
    "boston": 3.361, "concrete": 6.181, "energy": 0.573, "kin8nm": 0.164, "naval": 0.010, "power": 4.322,
    "protein": 4.516, "wine": 0.637, "yacht": 9.568,
}  # fmt: skip
# MC-dropout, test log-likelihood, one hidden layer, 20 splits, trained to convergence: Mukhoti et al. 2018; Gal's
# repository
DROPOUT_EPOCHS = 4_000
DROPOUT: Mapping[str, float] = {
    "boston": -2.40, "concrete": -2.93, "energy": -1.21, "kin8nm": 1.14, "naval": 4.45, "power": -2.80,
    "protein": -2.87, "wine": -0.93, "yacht": -1.25,
}  # fmt: skip
