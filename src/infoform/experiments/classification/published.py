"""Published numbers of the classification experiments: Lee et al. 2020, section 5, table `results:tab:final`."""

from collections.abc import Mapping
from typing import NamedTuple

from infoform.experiments.classification.methods import DIAG, EFB, KFAC, PAPERS_INF

SEARCHED_PAIRS = 300  # (N, τ) of every Laplace method; same section


class Published(NamedTuple):
    """What the table has of a method: both are fractions, the entropy of the largest possible one."""

    ece: float  # on known images
    entropy: float  # on unknown images


MNIST: Mapping[str, Published] = {  # by the method of ours that stands beside it; unknown images are notMNIST's
    "plain": Published(0.395, 0.055),
    DIAG: Published(0.0075, 0.555),
    KFAC: Published(0.0078, 0.599),
    "mc-dropout": Published(0.0105, 0.562),
    "ensemble": Published(0.0635, 0.596),
    EFB: Published(0.012, 0.618),
    PAPERS_INF: Published(0.0069, 0.635),
}
CIFAR10: Mapping[str, Published] = {  # unknown images are SVHN's
    "plain": Published(0.0819, 0.245),
    DIAG: Published(0.0358, 0.413),
    KFAC: Published(0.0351, 0.408),
    "ensemble": Published(0.0809, 0.370),
    EFB: Published(0.0343, 0.417),
    PAPERS_INF: Published(0.0084, 0.434),
}
