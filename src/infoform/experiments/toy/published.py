"""The hyperparameters that the paper gives for its toy regression: Lee et al. 2020, supplement, training details."""

from collections.abc import Mapping

NUM_DATA = 1.0  # N
PRECISIONS: Mapping[str, float] = {  # τ; not told are EFB's, which is taken as INF's, and OKF's, taken as KFAC's
    "Diag": 0.45,
    "KFAC": 0.2,
    "OKF": 0.2,
    "EFB": 0.0,
    "exact block": 0.0,
    "INF": 0.0,
    "INF rank 1": 0.0,
    "ours": 0.0,
    "ours rank 1": 0.0,
}
