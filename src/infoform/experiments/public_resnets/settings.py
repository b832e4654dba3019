"""Sizes of a run on the public ResNets, and the methods that it measures."""

from dataclasses import dataclass

from infoform.experiments.base import Settings, choosing_pieces

DEPTHS = (20, 56)
PLAIN, TEMPERATURE, SWAG = "plain", "temperature", "swag"
CURVE = "curve"  # NLL over the number of training pictures
JOINED = "joined"  # novelty with the answers' spread as one more part
LAST_LAYER, LAST_STAGE = "last-layer", "last-stage"  # `inf` of these layers alone
PEER_LAST, PEER_ALL = "laplace-torch-last", "laplace-torch-all"
NOVEL = f"{LAST_LAYER} activation linear validation"  # whose predictions have the novelty that tables show
ALL_LAYERS, STAGE = "inf activation linear validation", f"{LAST_STAGE} activation linear validation"
CHEAP = (  # what others are compared with first
    TEMPERATURE,
    PLAIN,
    NOVEL,
    f"{LAST_LAYER} isotropic linear validation",
)
OURS = (ALL_LAYERS, "inf isotropic linear validation", "inf activation mc validation", "inf isotropic linear evidence")
WITH_SPREAD = (NOVEL, STAGE, ALL_LAYERS)  # whose answers' spread joins novelty
STRUCTURES = tuple(f"{name} isotropic mc validation" for name in ("inf-paper", "kfac", "efb-paper", "diag"))
OTHERS = (SWAG, PEER_LAST, PEER_ALL)
FULL_METHODS = tuple(
    f"{method} {depth}"
    for group, depth in (
        (CHEAP, 20),
        (CHEAP, 56),
        ((STAGE, ALL_LAYERS), 20),
        ((STAGE,), 56),
        (OURS[1:3], 20),
        (STRUCTURES, 20),
        ((CURVE, JOINED), 20),
        ((ALL_LAYERS, JOINED), 56),
        ((*OURS[3:], *OTHERS), 20),
        ((*OURS[1:], *STRUCTURES, CURVE, *OTHERS), 56),
    )
    for method in group
)
METHODS = (  # what a run does where no other is asked for; `--full` does all
    *(f"{method} {depth}" for depth in DEPTHS for method in (TEMPERATURE, PLAIN, NOVEL)),
    f"{LAST_LAYER} isotropic linear validation 20",
    f"{STAGE} 20",
    f"{ALL_LAYERS} 20",
    f"{STAGE} 56",
)


@dataclass(frozen=True)
class ResnetSettings(Settings):
    """Sizes of a run."""

    methods: tuple[str, ...] = choosing_pieces(METHODS)  # keys, with the depth as the number of the network
    curvature: int = 10_000  # training pictures that `inf` is measured on, and what novelty knows
    curvature_all: int = 2000  # that the other structures are: their statistics take ten times as long
    test: int = 10_000  # known pictures
    unknown: int = 2000  # pictures of an unknown set; all of SVHN
    unknown_slow: int = 2000  # of SVHN, the only set for methods of many passes
    folds: int = 5  # one part of the test pictures in five tunes
    samples: int = 20  # networks of a prediction by `mc`
    trials: int = 27
    batch: int = 100
    resamples: int = 1000
    curve: tuple[int, ...] = (500, 2000, 10_000)
    rank: int = 100
    swag_pictures: int = 10_000  # of training, in each epoch
    swag_epochs: int = 5
    swag_learning_rate: float = 1e-2
