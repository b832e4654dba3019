"""Other methods of a comparison: our baselines, fitted or by name, and any function of a user's own.

All of them are tuned on the same validation data by one number that leaves their answers as they are:

    classes   a temperature T of the averaged probabilities, p^(1/T) / Σ p^(1/T)
    labels    the same of every label by itself, p^(1/T) / (p^(1/T) + (1 − p)^(1/T))
    numbers   a factor s of all standard deviations, s² = the mean of their squared standardised residuals
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from infoform.baselines import BASELINES, Baseline
from infoform.comparing.answers import Answered
from infoform.comparing.methods import METHODS, Method, Ready
from infoform.comparing.task import Task, inputs_of
from infoform.likelihoods import Likelihood
from infoform.prediction import Prediction
from infoform.tuning.losses import nll_terms
from infoform.tuning.temperature import best_temperature

Given = Mapping[str, Any] | Sequence[Any]


def baseline_methods(given: Given) -> dict[str, Method]:
    """Return what a user has given as methods, by name.

    Args:
        given: Names of `BASELINES`, fitted baselines or functions, in a list or by the names that the table shows.

    Raises:
        TypeError: If one is nothing of that kind.
        ValueError: If a name is unknown, or occurs twice.
    """
    pairs = list(given.items()) if isinstance(given, Mapping) else [(_name(one), one) for one in given]
    methods: dict[str, Method] = {}
    for name, one in pairs:
        if name in methods or name in METHODS:
            raise ValueError(f"each method of a comparison needs a name of its own, got {name!r} twice; use a dict.")
        if isinstance(one, str):
            if one not in BASELINES:
                raise ValueError(f"a baseline must be one of {', '.join(BASELINES)}, got {one!r}.")
            methods[name] = Method(name, f"infoform.baselines, {one}", partial(_trained, one), {"baseline": one})
        elif isinstance(one, Baseline):
            methods[name] = Method(name, f"infoform.baselines, {one.name}", partial(_of_baseline, one))
        elif callable(one):
            methods[name] = Method(name, "a method of your own", partial(_of_function, one, name))
        else:
            raise TypeError(
                f"a baseline is a name, a fitted baseline or a function of inputs, got {type(one).__name__}."
            )
    return methods


def _name(one: Any) -> str:
    return one if isinstance(one, str) else str(getattr(one, "name", getattr(one, "__name__", type(one).__name__)))


def _trained(name: str, task: Task) -> Ready | None:
    """Train a baseline on the training data."""
    if task.train is None:
        task.notes.append(f"{name} was left out: it has to be trained; give train_loader, or a fitted baseline.")
        return None
    begun = time.perf_counter()
    baseline = BASELINES[name](task.laplace.model, task.laplace.likelihood, seed=task.seed)
    baseline.fit(task.train.batches, progress=False)
    seconds = time.perf_counter() - begun
    ready = _of_baseline(baseline, task)
    examples = sum(len(next(iter(batch.tensors()))) for batch in task.batches(task.train))
    return Ready(ready.predict, ready.settings, ready.nbytes, ready.tune_seconds, seconds, examples)


def _of_baseline(baseline: Baseline, task: Task) -> Ready:
    size = sum(one.nbytes for one in baseline.network.parameters())
    members = getattr(baseline, "members", None)
    nbytes = (len(members) - 1) * size if isinstance(members, list) else None
    return _tuned(task, lambda x: Answered.of(baseline.predict(x)), nbytes)


def _of_function(function: Callable[..., Any], name: str, task: Task) -> Ready:
    def predict(x: Any) -> Answered:
        with torch.no_grad():
            return _read(function(x), name, task.laplace.likelihood)

    return _tuned(task, predict, None)


def _read(found: Any, name: str, likelihood: Likelihood) -> Answered:
    """Return the answers that a user's function gave."""
    if isinstance(found, Prediction):
        return Answered.of(found)
    if not likelihood.has_logits and isinstance(found, tuple) and len(found) == 2:
        mean, variance = (one.detach().double().cpu() for one in found)
        if mean.dim() == 2 and mean.shape == variance.shape and bool((variance > 0).all()):
            return Answered(mean, variance, {"entropy": 0.5 * (2 * math.pi * math.e * variance).log().sum(1)})
    if likelihood.has_logits and isinstance(found, Tensor) and found.dim() == 2:
        probs = found.detach().double().cpu()
        shares = bool(((probs >= 0) & (probs <= 1)).all())
        if shares and (not likelihood.one_of_many or bool(((probs.sum(1) - 1).abs() < 1e-3).all())):
            return Answered(probs, None, {"entropy": _entropy(probs, one_of_many=likelihood.one_of_many)})
    if not likelihood.has_logits:
        wanted = "(mean, variance), two tensors (N, C), variances above 0"
    elif likelihood.one_of_many:
        wanted = "probabilities (N, C) whose rows add up to 1"
    else:
        wanted = "probabilities (N, C), one for each label"
    remedy = f"; call {'softmax' if likelihood.one_of_many else 'sigmoid'} on logits first" * likelihood.has_logits
    raise ValueError(f"the method {name!r} must return a Prediction or {wanted}{remedy}.")


def _tuned(task: Task, predict: Callable[[Any], Answered], nbytes: int | None) -> Ready:
    """Return a method at the best temperature of its probabilities, or factor of its standard deviations."""
    if task.validation is None:
        return Ready(predict, {}, nbytes)
    begun = time.perf_counter()
    found = Answered.joined([predict(inputs_of(batch)) for batch in task.batches(task.validation)])
    targets = task.targets(task.validation, found.value).cpu()
    of_many = targets.dim() == 1 and found.value.shape[1] > 1  # also of ordered classes
    if found.variance is not None:
        away = targets.reshape(found.value.shape).to(found.value) - found.value
        settings = {"std_factor": float((away.square() / found.variance).mean().sqrt())}  # of the least NLL
    else:
        settings = {
            "temperature": best_temperature(
                lambda one: nll_terms(_at_temperature(found, one, of_many).answers, targets).score()
            )
        }

    def tuned(x: Any) -> Answered:
        answered = predict(x)
        if answered.variance is not None:
            return _with_factor(answered, settings["std_factor"])
        return _at_temperature(answered, settings["temperature"], of_many)

    return Ready(tuned, settings, nbytes, time.perf_counter() - begun)


def _at_temperature(found: Answered, temperature: float, one_of_many: bool) -> Answered:
    least = torch.finfo(torch.float32).tiny
    logs = found.value.clamp_min(least).log()
    if one_of_many:
        probs = (logs / temperature).softmax(1)
    else:
        probs = ((logs - (1 - found.value).clamp_min(least).log()) / temperature).sigmoid()
    return Answered(probs, None, {**found.signs, "entropy": _entropy(probs, one_of_many=one_of_many)})


def _with_factor(found: Answered, factor: float) -> Answered:
    assert found.variance is not None
    entropy = found.signs["entropy"] + found.variance.shape[1] * math.log(factor)
    return Answered(found.value, found.variance * factor**2, {**found.signs, "entropy": entropy})


def _entropy(probs: Tensor, *, one_of_many: bool) -> Tensor:  # (N, C) -> (N,)
    terms: Tensor = torch.special.entr(probs)
    return terms.sum(1) if one_of_many else (terms + torch.special.entr(1 - probs)).sum(1)
