"""What others report on the same weights and the same test pictures: Ortega et al. 2024 (VaLLA)."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """One row of a published table."""

    title: str
    accuracy: float
    nll: float
    ece: float
    auroc: float  # against SVHN, by entropy
    seconds: float | None  # of training the posterior


PUBLISHED = {
    20: (
        Published("published: network alone", 0.9260, 0.2815, 0.0390, 0.8808, None),
        Published("published: VaLLA", 0.9240, 0.2314, 0.0053, 0.9299, 6936.0),
    ),
    56: (Published("published: VaLLA", 0.9418, 0.1864, 0.0107, 0.9601, 26910.0),),
}


@dataclass(frozen=True)
class Aims:
    """What was to be reached on a network; None where nothing was asked."""

    nll: float
    ece: float | None
    entropy: float | None
    novelty: float


AIMS = {20: Aims(0.228, 0.006, 0.91, 0.975), 56: Aims(0.183, None, None, 0.975)}
