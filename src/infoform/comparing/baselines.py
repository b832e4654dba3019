"""Other methods of a comparison: our baselines, fitted or by name, and any function of a user's own.

All of them are tuned on the same validation data by one temperature T of their averaged probabilities,
p^(1/T) / Σ p^(1/T), which leaves the order of classes as it is. Regressions are taken as they are.
"""

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
from infoform.prediction import Prediction
from infoform.tuning.losses import Answers, nll_terms
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
    return _with_temperature(task, lambda x: Answered.of(baseline.predict(x)), nbytes)


def _of_function(function: Callable[..., Any], name: str, task: Task) -> Ready:
    def predict(x: Any) -> Answered:
        with torch.no_grad():
            return _read(function(x), name, is_numbers=not task.laplace.likelihood.has_logits)

    return _with_temperature(task, predict, None)


def _read(found: Any, name: str, *, is_numbers: bool) -> Answered:
    """Return the answers that a user's function gave."""
    if isinstance(found, Prediction):
        return Answered.of(found)
    if is_numbers and isinstance(found, tuple) and len(found) == 2:
        mean, variance = (one.detach().double().cpu() for one in found)
        return Answered(mean, variance, {"entropy": 0.5 * variance.log().sum(1)})
    if isinstance(found, Tensor) and not is_numbers and found.dim() == 2:
        probs = found.detach().double().cpu()
        if bool((probs >= 0).all()) and bool(((probs.sum(1) - 1).abs() < 1e-3).all()):
            return Answered(probs, None, {"entropy": torch.special.entr(probs).sum(1)})
    wanted = "(mean, variance), two tensors (N, C)" if is_numbers else "probabilities (N, C) whose rows add up to 1"
    raise ValueError(f"the method {name!r} must return a Prediction or {wanted}; call softmax on logits first.")


def _with_temperature(task: Task, predict: Callable[[Any], Answered], nbytes: int | None) -> Ready:
    """Return a classifier's method at the best temperature of its probabilities on validation data."""
    if task.validation is None or not task.laplace.likelihood.one_of_many:
        return Ready(predict, {}, nbytes)
    begun = time.perf_counter()
    probs = torch.cat([predict(inputs_of(batch)).value for batch in task.batches(task.validation)])
    targets = task.targets(task.validation, probs).cpu()
    chosen = best_temperature(lambda one: nll_terms(Answers(_scaled(probs, one)), targets).score())

    def scaled(x: Any) -> Answered:
        found = predict(x)
        probs = _scaled(found.value, chosen)
        return Answered(probs, None, {**found.signs, "entropy": torch.special.entr(probs).sum(1)})

    return Ready(scaled, {"temperature": chosen}, nbytes, time.perf_counter() - begun)


def _scaled(probs: Tensor, temperature: float) -> Tensor:  # (N, C)
    least = torch.finfo(torch.float32).tiny
    return (probs.clamp_min(least).log() / temperature).softmax(1)
