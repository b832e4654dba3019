"""The comparison itself: every method is made ready, answers the same data, and is scored beside the others."""

import json
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from infoform.common.checks import check_whole
from infoform.common.json_values import to_json
from infoform.common.progress import progress_bar
from infoform.common.whole_files import write_text
from infoform.comparing.answers import Answered
from infoform.comparing.baselines import Given, baseline_methods
from infoform.comparing.bootstrap import RESAMPLES, gain, resampled_scores, separations
from infoform.comparing.kept import Finished, KeptAnswers
from infoform.comparing.measures import CLASSES, NUMBERS, PRIMARY, calibrated_ece
from infoform.comparing.methods import METHODS, PLAIN, TEMPERATURE, Method
from infoform.comparing.recommend import Scored, recommend
from infoform.comparing.task import Task, inputs_of
from infoform.laplace import Laplace
from infoform.network.batches import batch_size
from infoform.records.compare import Apart, ComparedMethod, CompareResult, Cost
from infoform.tuning.validation_data import ValidationData


def compare(
    laplace: Laplace,
    test_loader: Iterable[Any],
    *,
    unknown: Mapping[str, Iterable[Any]] | None = None,
    baselines: Given = (),
    val_loader: Iterable[Any] | None = None,
    train_loader: Iterable[Any] | None = None,
    methods: Sequence[str] | None = None,
    samples: int = 30,
    resamples: int = RESAMPLES,
    seed: int = 0,
    path: str | PathLike[str] | None = None,
    progress: bool = True,
) -> CompareResult:
    """Compare ways to be uncertain on your own test data, and say which one to take.

    The network alone, with a temperature, with a posterior of its last layer, of all layers, with sampled networks, and
    with methods of your own are tuned on the same validation data and scored on the same test data. Nothing is trained
    or tuned on test data. The Laplace is left as it is.

    Args:
        laplace: A fitted Laplace.
        test_loader: Gives batches with targets that nothing was trained, tuned or calibrated on.
        unknown: Data unlike the training data, by name; targets in them are not used.
        baselines: Names of `infoform.baselines.BASELINES` (trained on `train_loader`), fitted baselines, or functions
            that take the inputs of a batch and return a `Prediction`, probabilities, or (mean, variance); in a list,
            or by the names that the table shows.
        val_loader: What methods are tuned on; the data of the last `tune(val_loader)` where not given. Without either,
            the posterior is taken as it is, and methods that have to be tuned are left out.
        train_loader: What baselines given by name are trained on.
        methods: Which of `infoform.comparing.METHODS` are compared; all where not given. The plain network always is.
        samples: Number of sampled networks.
        resamples: Number of bootstrap samples.
        seed: Of the bootstrap and of baselines.
        path: A JSON file for the result; finished methods are kept beside it until then, and a comparison that was
            interrupted goes on from them.
        progress: Whether a bar is shown.

    Returns:
        Scores, costs and the recommendation; printed, it is a table.

    Raises:
        ValueError: If the test data have no targets or are the validation data, the network does not take an unknown
            set, or an argument has a value that it cannot have.

    Example:
        ```python
        found = infoform.compare(laplace, test_loader, unknown={"noise": [torch.randn(40, 4)]}, progress=False)
        print(found)
        ```
    """
    parts = None if path is None else Path(f"{fspath(path)}.parts")
    result = compare_methods(
        laplace,
        test_loader,
        unknown=unknown,
        baselines=baselines,
        val_loader=val_loader,
        train_loader=train_loader,
        methods=methods,
        samples=samples,
        resamples=resamples,
        seed=seed,
        parts=parts,
        progress=progress,
    )
    if path is not None:
        write_text(path, json.dumps(to_json(result), indent=1, allow_nan=False) + "\n")
        KeptAnswers(parts).remove()
    return result


def compare_methods(
    laplace: Laplace,
    test_loader: Iterable[Any],
    *,
    unknown: Mapping[str, Iterable[Any]] | None,
    baselines: Given,
    val_loader: Iterable[Any] | None,
    train_loader: Iterable[Any] | None,
    methods: Sequence[str] | None,
    samples: int,
    resamples: int,
    seed: int,
    parts: Path | None,
    progress: bool,
) -> CompareResult:
    """Do what `compare` does; finished methods stay in the folder `parts` until the caller removes it."""
    check_whole("samples", samples)
    check_whole("resamples", resamples, least=100)
    chosen = _chosen(methods, baselines)
    task = _task(laplace, test_loader, unknown or {}, val_loader, train_loader, samples, seed)
    kept = KeptAnswers.of(parts, task)
    finished: dict[str, Finished] = {}
    with progress_bar(progress) as bar:
        for method in chosen.values():
            tick = bar(method.name, len(task.test.batches) + sum(len(one.batches) for one in task.unknown.values()))
            found = kept.read(method)
            if found is None:
                found = _run(method, task, tick)
                if found is not None:
                    kept.write(method, found)
            if found is not None:
                finished[method.name] = found
                task.notes.extend(note for note in found.notes if note not in task.notes)
    return _scored(task, chosen, finished, resamples)


def _chosen(names: Sequence[str] | None, baselines: Given) -> dict[str, Method]:
    for name in names or ():
        if name not in METHODS:
            raise ValueError(f"methods must be some of {', '.join(METHODS)}, got {name!r}.")
    own = {name: one for name, one in METHODS.items() if names is None or name in names or name == PLAIN}
    return {**own, **baseline_methods(baselines)}


def _task(
    laplace: Laplace,
    test_loader: Iterable[Any],
    unknown: Mapping[str, Iterable[Any]],
    val_loader: Iterable[Any] | None,
    train_loader: Iterable[Any] | None,
    samples: int,
    seed: int,
) -> Task:
    laplace._fitted()
    notes = []
    if val_loader is None and laplace._tuned_on is not None:
        val_loader = laplace._tuned_on
        notes.append("all methods were tuned on the data of the last tune(val_loader).")
    test = ValidationData.read(test_loader, seed=seed)
    validation = None if val_loader is None else ValidationData.read(val_loader, seed=seed)
    train = None if train_loader is None else ValidationData.read(train_loader, seed=seed)
    task = Task(laplace, test, {n: ValidationData.read(o, seed=seed) for n, o in unknown.items()}, validation, train,
                samples, seed, notes)  # fmt: skip
    _check_labelled(task, test, "test data")
    _check_comparable(task, test)
    if validation is not None:
        _check_labelled(task, validation, "validation data")
        if validation.checksum == test.checksum:
            raise ValueError(
                "test data must be other data than those that methods are tuned on, got the same; split the data."
            )
    for name, data in task.unknown.items():
        _check_unknown(task, name, data)
    return task


def _check_comparable(task: Task, data: ValidationData) -> None:
    """Raise where outputs are such as a comparison has no scores for, example by example."""
    likelihood, batch = task.laplace.likelihood, task.batches(data)[0]
    with task.laplace._predictor().private() as predictor:
        outputs = predictor.outputs(batch)
    told = "score each with likelihood.scores(*laplace.predict_loader(test_loader))"
    if outputs.dim() > 2:
        raise ValueError(f"compare is of one answer an example, and this network answers at positions; {told}.")
    if likelihood.plain_prediction(outputs, noise=task.laplace.noise).draws is not None:
        raise ValueError(
            f"compare scores classes, labels and Gaussian numbers, and the {likelihood.name} likelihood has a density "
            f"of its own; {told}."
        )


def _check_labelled(task: Task, data: ValidationData, what: str) -> None:
    batches = task.batches(data)
    if not sum(map(batch_size, batches)):
        raise ValueError(f"a comparison needs {what}, and the loader gave no examples; check the data.")
    if any(batch.targets is None for batch in batches):
        raise ValueError(f"a comparison needs targets, and the {what} have none; give (input, target) batches.")


def _check_unknown(task: Task, name: str, data: ValidationData) -> None:
    """Raise in a sentence where the network does not take an unknown set."""
    batches = task.batches(data)
    if not sum(map(batch_size, batches)):
        raise ValueError(f"the unknown set {name!r} has no examples; check the data.")
    try:
        with task.laplace._predictor().private() as predictor:
            predictor.outputs(batches[0])
    except (RuntimeError, ValueError, TypeError) as error:
        shapes, wanted = (", ".join(str(tuple(one.shape)) for one in batch.tensors()) for batch in
                          (batches[0], task.batches(task.test)[0]))  # fmt: skip
        raise ValueError(
            f"unknown inputs must be such as the network takes, and it fails on {name!r}, of shape {shapes}, where "
            f"test data have {wanted} ({str(error).splitlines()[0]}); bring them to that form."
        ) from error


def _run(method: Method, task: Task, tick: Any) -> Finished | None:
    """Make a method ready and let it answer all data."""
    before = len(task.notes)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ready = method.make(task)
        if ready is None:
            return None

        def answers(data: ValidationData) -> Answered:
            found = []
            for batch in task.batches(data):
                if batch_size(batch):
                    found.append(ready.predict(inputs_of(batch)))
                    tick(batch_size(batch))
            return Answered.joined(found)

        test = answers(task.test)
        strange = {name: answers(data) for name, data in task.unknown.items()}
        predict = 1.0 if method.name in (PLAIN, TEMPERATURE) else task.forwards(ready.predict)  # one division more
    notes = [f"{method.name}: {' '.join(str(one.message).split())}" for one in caught]
    each = task.plain_seconds / task.first_batch
    validation = 0 if task.validation is None else sum(map(batch_size, task.batches(task.validation)))
    cost = Cost(
        predict=predict,
        tune=None if ready.tune_seconds is None else ready.tune_seconds / (each * validation),
        fit=None if ready.fit_seconds is None or not ready.fit_examples
        else ready.fit_seconds / (each * ready.fit_examples),
        nbytes=ready.nbytes,
    )  # fmt: skip
    return Finished(test, strange, ready.settings, cost, [*task.notes[before:], *dict.fromkeys(notes)])


def _scored(
    task: Task, chosen: Mapping[str, Method], finished: Mapping[str, Finished], resamples: int
) -> CompareResult:
    """Score the answers of all methods beside those of the plain network and of a temperature."""
    numbers = finished[PLAIN].test.variance is not None
    measures, primary = (NUMBERS, PRIMARY["numbers"]) if numbers else (CLASSES, PRIMARY["classes"])
    seed, targets = task.seed, task.test_targets
    values: dict[str, dict[str, tuple[float, Tensor]]] = {}
    for name, found in finished.items():
        values[name] = {}
        for key, measure in measures.items():
            terms = measure.terms(found.test.answers, targets).double()
            value = float(measure.score(terms.mean(0, keepdim=True)))
            again = resampled_scores(measure, terms, resamples=resamples, seed=seed)
            values[name][key] = (value, again)
    apart = {name: _apart(finished, name, resamples, seed) for name in task.unknown}
    methods = []
    for name, found in finished.items():
        gains = {
            other: {
                key: gain(*values[name][key], *values[other][key]) for key in measures
            }
            for other in (PLAIN, TEMPERATURE)
            if other in finished and other != name
        }  # fmt: skip
        methods.append(
            ComparedMethod(
                name=name,
                says=chosen[name].says,
                scores={key: value for key, (value, _) in values[name].items()},
                to_plain=gains.get(PLAIN, {}),
                to_temperature=gains.get(TEMPERATURE, {}),
                unknown={key: sets[name] for key, sets in apart.items()},
                cost=found.cost,
                settings=found.settings,
                calibrated_ece=calibrated_ece(found.test.answers, seed=seed)
                if task.laplace.likelihood.one_of_many
                else None,
            )
        )
    sign = -1.0 if numbers else 1.0
    losses = {name: Scored(sign * own[primary][0], sign * own[primary][1], numbers) for name, own in values.items()}
    bad = [name for name, one in losses.items() if not math.isfinite(one.value)]
    notes = [*task.notes, *(f"{name} has no finite NLL, and is not recommended." for name in bad)]
    able = {name: one for name, one in losses.items() if name not in bad}
    examples = len(targets)
    return CompareResult(
        likelihood=task.laplace.likelihood.name,
        examples=examples,
        validation_examples=None if task.validation is None else sum(map(batch_size, task.batches(task.validation))),
        unknown_examples={name: sum(map(batch_size, task.batches(data))) for name, data in task.unknown.items()},
        plain_seconds=task.plain_seconds / task.first_batch,
        resamples=resamples,
        methods=methods,
        recommendation=recommend([one for one in methods if one.name in able], able, examples),
        notes=notes,
    )


def _apart(finished: Mapping[str, Finished], name: str, resamples: int, seed: int) -> dict[str, dict[str, Apart]]:
    """Return how well each score of each method tells one unknown set, beside the entropies of the first two."""
    found: dict[str, dict[str, Apart]] = {}
    aurocs: dict[str, dict[str, Tensor]] = {}
    for method, one in finished.items():
        found[method], aurocs[method] = {}, {}
        for sign, known in one.test.signs.items():
            strange = one.unknown[name].signs[sign]
            if not bool(torch.cat([known, strange]).isfinite().all()):
                continue
            auroc, fpr95, aurocs[method][sign] = separations(known, strange, resamples=resamples, seed=seed)
            found[method][sign] = Apart(auroc, fpr95)
    for method, signs in found.items():
        for sign, apart in signs.items():
            gains: dict[str, Any] = {}
            for field, other in (("to_plain", PLAIN), ("to_temperature", TEMPERATURE)):
                if (method, sign) != (other, "entropy") and "entropy" in found.get(other, {}):
                    reference = found[other]["entropy"].auroc, aurocs[other]["entropy"]
                    gains[field] = gain(apart.auroc, aurocs[method][sign], *reference)
            signs[sign] = replace(apart, **gains)
    return found
