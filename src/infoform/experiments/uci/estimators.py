"""The estimators that the UCI experiments compare, by the labels of their JSON."""

from collections.abc import Mapping

from infoform.experiments.estimator import Estimator

ESTIMATORS: Mapping[str, Estimator] = {  # ranks are shares of a layer's eigenvalues, as the paper gives them
    "diag": Estimator("diag"),
    "kfac": Estimator("kfac"),
    "efb": Estimator("efb-paper"),
    "inf 100%": Estimator("inf-paper", rank=1.0),
    "inf 75%": Estimator("inf-paper", rank=0.75),
    "inf 50%": Estimator("inf-paper", rank=0.5),
    "inf 25%": Estimator("inf-paper", rank=0.25),
    "inf 5%": Estimator("inf-paper", rank=0.05),
    "ours 5%": Estimator("inf", rank=0.05),
    "ours": Estimator("inf"),
    "ours 100%": Estimator("inf", rank=1.0),
}
EXACT = Estimator("full")  # the exact block of every layer
