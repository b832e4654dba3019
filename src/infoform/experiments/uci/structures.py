"""The structures that the UCI experiments compare, by the labels of their JSON."""

from collections.abc import Mapping

from infoform.posteriors import Diag, Full, Inf, Kfac, Structure, get_structure

STRUCTURES: Mapping[str, Structure] = {  # ranks are shares of a layer's eigenvalues, as the paper gives them
    "diag": Diag(),
    "kfac": Kfac(),
    "efb": get_structure("efb-paper"),
    "inf 100%": get_structure("inf-paper", rank=1.0),
    "inf 75%": get_structure("inf-paper", rank=0.75),
    "inf 50%": get_structure("inf-paper", rank=0.5),
    "inf 25%": get_structure("inf-paper", rank=0.25),
    "inf 5%": get_structure("inf-paper", rank=0.05),
    "ours 5%": Inf(rank=0.05),
    "ours": Inf(),
    "ours 100%": Inf(rank=1.0),
}
EXACT = Full()  # the exact block of every layer
