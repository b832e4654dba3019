"""What an exported graph puts out: one line for each output, with its name, its meaning and where it comes from.

An output that a graph has nothing for (no novelty in the fit, no classes in a regression) is left out of the file.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from infoform.prediction import Prediction


@dataclass(frozen=True)
class Computed:
    """What a graph has found for N examples."""

    plain: Tensor  # (N, C): outputs of the trained network
    prediction: Prediction
    features: Tensor | None = None  # (N, D): inputs of the last layer
    variance: Tensor | None = None  # (N, C): of the outputs, before the temperature
    has_draws: bool = True  # whether the prediction tells the model's share of the uncertainty


@dataclass(frozen=True)
class Output:
    """One output of a graph."""

    name: str
    meaning: str
    read: Callable[[Computed], Tensor | None]


def _novelty(found: Computed) -> Tensor | None:
    return None if found.prediction.input_novelty is None else found.prediction.input_novelty.novelty


def _information(found: Computed) -> Tensor | None:
    return found.prediction.mutual_information if found.has_draws else None


def _std(found: Computed) -> Tensor | None:
    return None if found.prediction.mean is None else found.prediction.std


OUTPUTS: tuple[Output, ...] = (
    Output("features", "inputs of the last layer, (batch, features)", lambda found: found.features),
    Output(
        "logits",
        "outputs of the trained network, before any temperature, (batch, classes)",
        lambda found: None if found.prediction.probs is None else found.plain,
    ),
    Output("mean", "predicted numbers, (batch, outputs)", lambda found: found.prediction.mean),
    Output(
        "variance", "variance of the logits or means due to uncertain weights, (batch, outputs)", lambda f: f.variance
    ),
    Output("std", "standard deviation of the targets: uncertain weights and noise, (batch, outputs)", _std),
    Output("probs", "calibrated probabilities, (batch, classes)", lambda found: found.prediction.probs),
    Output("entropy", "entropy of the prediction in nats, (batch,)", lambda found: found.prediction.entropy),
    Output("mutual_information", "share of the entropy that is due to uncertain weights, (batch,)", _information),
    Output("novelty", "share of known inputs that look less strange, between 0 and 1, (batch,)", _novelty),
)


def read_outputs_of(found: Computed) -> dict[str, Tensor]:
    """Return all outputs that there are, by name, in the order of the table."""
    values = {one.name: one.read(found) for one in OUTPUTS}
    return {name: value for name, value in values.items() if value is not None}


def meanings(names: tuple[str, ...]) -> dict[str, str]:
    """Return what these outputs mean."""
    return {one.name: one.meaning for one in OUTPUTS if one.name in names}
