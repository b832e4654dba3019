"""One prediction for all of a loader's data, by one process or several, and a warning where sampling has spoiled it."""

import math
import warnings
from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor
from torch.utils.data import DistributedSampler

from infoform.distributed import Processes
from infoform.kept import Keep
from infoform.predict import How, Predictor
from infoform.prediction import Prediction, join_predictions


def predict_all(
    predictor: Predictor,
    loader: Iterable[Any],
    how: How,
    *,
    noise: float | None,
    sampler: DistributedSampler[Any] | None,
    gather: bool,
    tick: Callable[[int], None] | None = None,
    keep: Keep | None = None,
) -> tuple[Prediction, Tensor | None]:
    """Return one prediction for all data, and the targets where every batch has them.

    With `gather` each process predicts its part, which the sampler may have dealt out, and all return the whole.
    """
    processes = Processes.running() if gather else Processes()
    with processes.together():
        parts, targets = predictor.predict_parts(loader, how, noise=noise, tick=tick, keep=keep)
        own = join_predictions(parts) if parts else None
        every = processes.join(own, targets, processes.dealt(sampler))
        if every is None:
            raise ValueError("the loader gave no examples to predict.")
    return every


def warn_if_worse(kind: str, prediction: Prediction, targets: Tensor | None) -> bool:
    """Warn the caller's caller if sampled networks are much worse than the trained one; return whether that was done.

    The prior is to blame for it, not the method.
    """
    trouble = sampling_trouble(prediction, targets) if kind == "mc" else None
    if trouble is None:
        return False
    warnings.warn(
        f"networks with sampled weights are much worse than the trained one ({trouble}): the posterior is too "
        "wide for this network; call tune(val_loader, kind='mc'), raise prior_precision, or predict with "
        "kind='linear'.",
        stacklevel=3,
    )
    return True


def sampling_trouble(prediction: Prediction, targets: Tensor | None) -> str | None:
    """Say what is wrong if the sampled networks are much worse than the trained one; None if they are not."""
    if not bool(prediction.value.isfinite().all()):
        return "the sampled networks' outputs are not finite"
    if prediction.probs is None:
        if targets is None:
            return None
        shape = prediction.plain.shape
        plain, sampled = (
            (out - targets.reshape(shape)).square().mean().sqrt() for out in (prediction.plain, prediction.value)
        )
        return f"their RMSE is {sampled:.3g}, the trained network's {plain:.3g}" if sampled > 1.5 * plain else None
    if not math.isclose(prediction.max_entropy, math.log(prediction.plain.shape[1])):
        return None  # yes/no questions have no single label to compare
    plain_labels = prediction.plain.argmax(1)
    if targets is None:
        agreement = float((prediction.labels == plain_labels).float().mean())
        return f"they agree with the trained network on {agreement:.0%} of the inputs" if agreement < 0.5 else None
    plain, sampled = ((labels == targets).double().mean() for labels in (plain_labels, prediction.labels))
    error = (plain * (1 - plain) / len(targets)).sqrt()
    if plain - sampled > 0.05 + 2 * error:
        return f"their accuracy is {sampled:.1%}, the trained network's {plain:.1%}"
    return None
