"""The methods of a comparison: to add one, write a function that makes it ready, and a line in `METHODS`.

A method is made ready on validation data, and never sees test data before it predicts them.
"""

import copy
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from glob import escape
from typing import Any

from torch import Tensor

from infoform.comparing.answers import Answered
from infoform.comparing.task import Task
from infoform.fitted import Fitted
from infoform.laplace import Laplace
from infoform.network.batches import device_of, read_inputs
from infoform.network.coverage import find_layers
from infoform.tuning.losses import Answers, nll_terms
from infoform.tuning.temperature import best_temperature

PLAIN, TEMPERATURE, LAST, ALL, SAMPLED = "plain", "temperature", "last layer", "all layers", "sampled"
TEMPERATURE_BYTES = 8


@dataclass(frozen=True)
class Ready:
    """A method that can predict."""

    predict: Callable[[Any], Answered]  # inputs of a batch -> answers
    settings: Mapping[str, str | float | None]  # what was tuned
    nbytes: int | None  # besides the network
    tune_seconds: float | None = None
    fit_seconds: float | None = None
    fit_examples: int | None = None


@dataclass(frozen=True)
class Method:
    """One way to be uncertain."""

    name: str
    says: str
    make: Callable[[Task], Ready | None]  # None, with a note, where it cannot be had
    key: Mapping[str, Any] | None = None  # what else its answers depend on; None where that is not known


def plain(task: Task) -> Ready:
    """Return the network alone."""
    return Ready(_network_alone(task, 1.0, task.laplace.noise), {}, 0)


def temperature(task: Task) -> Ready | None:
    """Return the network alone, at the temperature or the noise of least NLL on validation data."""
    laplace = task.laplace
    likelihood = laplace.likelihood
    if not likelihood.has_logits and not likelihood.free_noise:
        task.notes.append("temperature was left out: these outputs have neither a temperature nor a free noise.")
        return None
    if task.validation is None:
        trial = laplace.plain_trial
        if trial is None:
            task.notes.append("temperature was left out: it is found on validation data; give val_loader.")
            return None
        chosen, noise, seconds = trial.temperature, trial.noise, None
    else:
        begun = time.perf_counter()
        outputs = task.outputs(task.validation)
        targets = task.targets(task.validation, outputs)
        chosen, noise = 1.0, laplace.noise
        if likelihood.has_logits:
            chosen = best_temperature(lambda one: _loss(task, outputs / one, targets, None))
        else:
            assert noise is not None
            noise *= best_temperature(lambda one: _loss(task, outputs, targets, one * (laplace.noise or 1.0)))
        seconds = time.perf_counter() - begun
    settings: dict[str, str | float | None] = {"temperature": chosen} if likelihood.has_logits else {"noise": noise}
    return Ready(_network_alone(task, chosen, noise), settings, TEMPERATURE_BYTES, seconds)


def last_layer(task: Task) -> Ready | None:
    """Return a posterior of the last layer alone, from the same fit."""
    laplace = task.laplace
    name = _last_layer_name(laplace)
    if name is None:
        task.notes.append("last layer was left out: the fit does not tell which layer it is, or it has no posterior.")
        return None
    return _tuned(task, _of_one_layer(laplace, name), kind="auto", what=LAST)


def all_layers(task: Task) -> Ready | None:
    """Return the posterior as it was fitted, in closed form or as `kind="auto"` says."""
    if list(task.laplace.layers) == [_last_layer_name(task.laplace)]:
        task.notes.append("all layers was left out: the posterior is of the last layer alone.")
        return None
    return _tuned(task, copy.copy(task.laplace), kind="auto", what=ALL, needs_tuning=False)


def sampled(task: Task) -> Ready | None:
    """Return networks with sampled weights."""
    return _tuned(task, copy.copy(task.laplace), kind="mc", what=SAMPLED)


METHODS: dict[str, Method] = {
    PLAIN: Method(PLAIN, "the network alone", plain, {}),
    TEMPERATURE: Method(TEMPERATURE, "the network alone, at the best temperature (or noise)", temperature, {}),
    LAST: Method(LAST, "a posterior of the last layer, in one forward pass", last_layer, {}),
    ALL: Method(ALL, "a posterior of all layers", all_layers, {}),
    SAMPLED: Method(SAMPLED, "networks with weights drawn from the posterior of all layers", sampled, {}),
}


def _network_alone(task: Task, temperature: float, noise: float | None) -> Callable[[Any], Answered]:
    laplace = task.laplace

    def predict(x: Any) -> Answered:
        with laplace._predictor().private() as predictor:
            outputs = predictor.outputs(read_inputs(x, device_of(laplace.model)))
        scaled = outputs if temperature == 1 else outputs / temperature
        return Answered.of(laplace.likelihood.plain_prediction(scaled, noise=noise), has_spread=False)

    return predict


def _loss(task: Task, outputs: Tensor, targets: Tensor, noise: float | None) -> float:  # (N, C)
    prediction = task.laplace.likelihood.plain_prediction(outputs, noise=noise)
    return nll_terms(Answers.of(prediction), targets).score()


def _tuned(task: Task, laplace: Laplace, *, kind: str, what: str, needs_tuning: bool = True) -> Ready | None:
    """Return a posterior tuned on the validation data; as it is where there are none and it need not be."""
    seconds = None
    if task.validation is not None:
        begun = time.perf_counter()
        laplace.tune(task.validation.batches, kind=kind, samples=task.samples_of(kind), progress=False)
        seconds = time.perf_counter() - begun
    elif needs_tuning:
        task.notes.append(f"{what} was left out: it is tuned on validation data of its own; give val_loader.")
        return None

    def predict(x: Any) -> Answered:
        return Answered.of(laplace.predict(x, kind=kind, samples=task.samples_of(kind)))

    precision = laplace.prior_precision
    settings: dict[str, str | float | None] = {
        "prior_precision": precision if isinstance(precision, float) else "by layer",
        "temperature": laplace.temperature,
        "noise": laplace.noise,
        "structure": laplace.structure.label,
    }
    known = laplace._known
    nbytes = laplace.posterior().nbytes + (0 if known is None else known.nbytes)
    examples = laplace._fitted().fit.summary.num_examples
    return Ready(predict, settings, nbytes, seconds, laplace.fit_seconds, examples)


def _last_layer_name(laplace: Laplace) -> str | None:
    """Return the layer that the outputs come from, where the fit knows it and has given it a posterior."""
    head = None if laplace._known is None else laplace._known.head
    if head is None and len(laplace.layers) == 1 and laplace.settings.layers == "last":
        (head,) = laplace.layers
    return head if head in laplace.layers else None


def _of_one_layer(laplace: Laplace, name: str) -> Laplace:
    """Return the same fit with a posterior of one layer alone."""
    fitted = laplace._fitted()
    fitted.layers(laplace.structure)
    curvature = {key: one for key, one in fitted.fit.curvature.items() if key == name}
    if laplace.prior.needs_inputs and name not in fitted.only_diagonal:
        fitted.spectrum(name)
    other = copy.copy(laplace)
    other._built = Fitted(
        replace(fitted.fit, curvature=curvature),
        fitted.prior_rank,
        {key: {name: layers[name]} for key, layers in fitted.by_structure.items()},
        {key: one for key, one in fitted.inputs.items() if key == name},
        fitted.saved_as,
    )
    other.layers, other._fixed = find_layers(laplace.model, [escape(name)])
    other.settings = replace(laplace.settings, layers=(name,))
    other._present = None
    return other
