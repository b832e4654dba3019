"""The methods that MNIST and CIFAR-10 are measured with, by their keys."""

from infoform.experiments.method import Method

PAPER_STRUCTURES = ("diag", "kfac", "efb-paper", "inf-paper")  # the paper's estimators

DEFAULT = "inf activation:8x30 linear validation"  # all defaults of the library
WIDE = "inf activation:16x30 linear validation"  # with more directions of the prior
SAMPLED = "inf activation:16x30 mc validation"
WEAK_SAMPLED = "inf activation:16 mc validation"  # with a strength of 1
BYTES = "inf@uint8 activation:16x30 mc validation"
BYTES_LINEAR = "inf@uint8 activation:8x30 linear validation"  # all defaults, stored as bytes
LAST_LAYER = "last-layer activation:16 linear validation"
DIAG, KFAC, EFB, PAPERS_INF = (Method(name, "isotropic", "mc", "validation").key for name in PAPER_STRUCTURES)

METHODS = (
    DEFAULT,
    WIDE,
    SAMPLED,
    BYTES,
    WEAK_SAMPLED,
    "inf isotropic mc validation",
    DIAG,
    KFAC,
    EFB,
    PAPERS_INF,
    LAST_LAYER,
    "inf activation:16 linear evidence",  # whose strength is 1
    "inf activation:16 mc evidence",
    *(Method(name, "isotropic", "mc", "evidence").key for name in PAPER_STRUCTURES),
    *(Method(name, "isotropic", "mc", "search").key for name in PAPER_STRUCTURES),
    "inf activation:16x30 mc search",
)
STRONGER, WEAKER = (  # the paper's estimators with the prior of ours, at both strengths
    tuple(
        Method(name, "activation", "mc", "validation", prior_rank=16, prior_strength=strength).key
        for name in PAPER_STRUCTURES
    )
    for strength in (30.0, None)
)
