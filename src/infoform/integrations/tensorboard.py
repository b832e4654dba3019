"""Scores, entropies and a reliability diagram of predictions in TensorBoard, by torch's own writer."""

from typing import TYPE_CHECKING

from torch import Tensor

from infoform.common.extras import needed_by
from infoform.metrics import evaluate, reliability
from infoform.prediction import Prediction

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch.utils.tensorboard import SummaryWriter


def log_prediction(
    writer: "SummaryWriter", prediction: Prediction, targets: Tensor, *, step: int = 0, prefix: str = "laplace"
) -> dict[str, float]:
    """Write the scores and the entropies of a prediction to TensorBoard; of a classifier also its reliability diagram.

    Args:
        writer: A `SummaryWriter` of torch.
        prediction: The prediction.
        targets: The targets, (N,) classes or (N, C) numbers.
        step: The step to write them at.
        prefix: The first part of their names, as in `laplace/nll`.

    Returns:
        The scores by name, as `infoform.metrics.evaluate` finds them.

    Examples:
        >>> with SummaryWriter("runs/a") as writer:  # doctest: +SKIP
        ...     log_prediction(writer, laplace.predict(x), y)
    """
    scores = evaluate(prediction, targets)
    for name, score in scores.items():
        writer.add_scalar(f"{prefix}/{name}", score, step)
    writer.add_histogram(f"{prefix}/entropies_nats", prediction.entropy, step)
    if prediction.probs is not None:
        writer.add_figure(f"{prefix}/reliability", reliability_figure(prediction.probs, targets), step)
    return scores


def reliability_figure(probs: Tensor, targets: Tensor) -> "Figure":  # (N, C), (N,)
    """Return a reliability diagram: the share of right answers at each confidence.

    Args:
        probs: The probabilities of the classes, (N, C).
        targets: The true classes, (N,).

    Returns:
        A figure of matplotlib.

    Examples:
        >>> import torch
        >>> from infoform.integrations.tensorboard import reliability_figure
        >>> figure = reliability_figure(torch.tensor([[0.9, 0.1], [0.4, 0.6]]), torch.tensor([0, 1]))
        >>> len(figure.axes)
        1
    """
    with needed_by("a reliability diagram needs", extra="tensorboard"):
        from matplotlib.figure import Figure

    found = reliability(probs, targets)
    filled = found.count > 0
    figure = Figure(figsize=(4, 4), layout="constrained")
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1], color="gray", linestyle="--")
    axes.plot(found.confidence[filled].tolist(), found.accuracy[filled].tolist(), marker="o")
    axes.set(xlabel="confidence", ylabel="share of right answers", xlim=(0, 1), ylim=(0, 1))
    return figure
