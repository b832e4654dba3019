"""Which structure, prior, predictive kind, link and way of tuning is best? Small and public networks, side by side.

    python -m benchmarks.predictives digits uci mnist                         # resumes; several may run at a time
    python -m benchmarks.predictives resnet20 resnet56 --cifar cifar10.npz
    python -m benchmarks.predictives --page                                   # writes docs/predictives.md, runs nothing

Rows go to benchmarks/results/predictives.json. A row is one choice of all five on one trained network: NLL, ECE and,
where there are unknown data, AUROC of the predictive entropy and of the mutual information. `tune(val_loader)` with its
defaults finds τ and T (or the noise) together. Whatever is not said in a row's choice or in its task's settings is the
library's default.
"""

import fcntl
import math
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from benchmarks.common import RESULTS, command_line, read_results, rounded, versions, write_page, write_results
from benchmarks.predictives_page import page
from benchmarks.predictives_tasks import (
    BEST,
    EVIDENCE,
    GAUSSIAN_SAMPLES,
    NOISE_TOO,
    TAU_ALONE,
    TUNED,
    Choice,
    Data,
    Task,
    tasks,
)
from torch import Tensor

import infoform
from infoform.metrics import evaluate, ood
from infoform.network.batches import Batch, device_of, read_batch
from infoform.posteriors.network_posterior import Posterior
from infoform.predicting.over_loader import outputs_under
from infoform.predicting.predictor import PredictOptions, Predictor
from infoform.predicting.raw_outputs import RawOutputs
from infoform.prediction import Prediction
from infoform.priors import get_prior


@dataclass(frozen=True)
class Setting:
    """What one way of tuning has chosen."""

    posterior: Posterior
    precision: float
    temperature: float
    noise: float | None
    facts: dict[str, Any]  # that the row keeps

    @classmethod
    def of(cls, laplace: infoform.Laplace, **facts: Any) -> "Setting":
        """Return what the object has now."""
        assert isinstance(laplace.prior_precision, float)
        return cls(laplace.posterior(), laplace.prior_precision, laplace.temperature, laplace.noise, facts)


@dataclass
class Measured:
    """A network whose rows are measured, fitted when the first of them is missing."""

    task: Task

    @cached_property
    def laplace(self) -> infoform.Laplace:
        options = infoform.FitOptions(statistics=self.task.statistics, block_limit=1)
        laplace = infoform.Laplace(self.task.model, self.task.likelihood, fit_options=options)
        begun = time.perf_counter()
        laplace.fit(batches(self.task.train, self.task.batch), progress=False)
        self.residual_noise = laplace.noise
        print(f"{self.task.name} {self.task.seed}: fitted in {time.perf_counter() - begun:.0f} s", flush=True)
        return laplace

    def settings(self, choice: Choice, wanted: Sequence[str]) -> dict[str, Setting]:
        """Return what each of these ways of tuning chooses."""
        regression = self.task.likelihood == "regression"
        searches: dict[str, dict[str, Any]] = {
            TUNED: {},
            BEST: {"standard_errors": 0},
            TAU_ALONE: {"noise": "residuals"} if regression else {"temperature": False},
        }
        found = {name: self._search(choice, **more) for name, more in searches.items() if name in wanted}
        for name in {EVIDENCE, NOISE_TOO} & set(wanted):
            found[name] = self._by_evidence(choice, "evidence" if name == NOISE_TOO else "residuals")
        return {name: found[name] for name in wanted}

    def _search(self, choice: Choice, **more: Any) -> Setting:
        laplace, task = self._fresh(), self.task
        how = {"kind": choice.kind, "samples": self.samples(choice), "progress": False, **more}
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            laplace.tune(
                batches(task.validation, task.batch), structure=choice.structure, prior=get_prior(choice.prior),
                link=choice.link or "mc", **how,
            )  # fmt: skip
        at_end = any("is at an end of the searched range" in str(one.message) for one in warned)
        trial, plain = laplace.trials[self._place()], laplace.plain_trial
        assert plain is not None
        return Setting.of(
            laplace, at=self._place(), trials=len(laplace.trials), warned=at_end, validation_nll=trial.scores["nll"],
            plain_validation_nll=plain.scores["nll"], plain_temperature=plain.temperature, plain_noise=plain.noise,
        )  # fmt: skip

    def _by_evidence(self, choice: Choice, noise: str) -> Setting:
        laplace = self._fresh()
        laplace.tune(structure=choice.structure, prior=get_prior(choice.prior), noise=noise)
        return Setting.of(laplace)

    def _fresh(self) -> infoform.Laplace:
        """Return the object as it was after the fit, whatever was tuned before."""
        laplace = self.laplace
        laplace.temperature, laplace.noise, laplace.num_data = 1.0, self.residual_noise, float(len(self.task.train[0]))
        return laplace

    def _place(self) -> int:
        """Return the place of the present τ among the trials."""
        return next(
            place for place, trial in enumerate(self.laplace.trials)
            if trial.prior_precision == self.laplace.prior_precision
        )  # fmt: skip

    def samples(self, choice: Choice) -> int:
        return GAUSSIAN_SAMPLES if choice.kind == "linear" else self.task.samples

    def outputs(self, choice: Choice, posteriors: Sequence[Posterior]) -> list[tuple[RawOutputs, RawOutputs | None]]:
        """Return the outputs of test and unknown data under each posterior; Jacobians are found once for all."""
        options = self.options(choice)
        device, predictor = device_of(self.task.model), self.predictor(posteriors[0])
        known, _ = outputs_under(
            predictor, posteriors, _read(batches(self.task.test, self.task.batch), device), options
        )
        if self.task.unknown is None:
            return [(one, None) for one in known]
        strange = _read(list(self.task.unknown.split(self.task.batch)), device)
        unknown, _ = outputs_under(predictor, posteriors, strange, options)
        return list(zip(known, unknown, strict=True))

    def options(self, choice: Choice) -> PredictOptions:
        return PredictOptions(choice.kind, self.samples(choice), choice.link or "mc", self.laplace.settings.seed)

    def predictor(self, posterior: Posterior, temperature: float = 1.0) -> Predictor:
        return Predictor(self.task.model, self.laplace.layers, self.laplace.likelihood, posterior, temperature)

    def scores(self, choice: Choice, setting: Setting, raw: tuple[RawOutputs, RawOutputs | None]) -> dict[str, Any]:
        """Return the measures of the test data."""
        predictor, options = self.predictor(setting.posterior, setting.temperature), self.options(choice)
        known, unknown = (
            None if one is None else predictor.from_outputs(one, options, noise=setting.noise) for one in raw
        )
        assert known is not None
        found = {"prior_precision": setting.precision, "temperature": setting.temperature, "noise": setting.noise}
        return {**found, **measures(known, self.task.test[1], unknown), **setting.facts}

    def alone(self, structure: str) -> dict[str, Any]:
        """Score the network alone: "plain", or "temperature" with its best temperature or noise on validation data."""
        laplace = self._fresh()
        temperature, noise = 1.0, laplace.noise
        if structure == "temperature":
            laplace.tune(
                batches(self.task.validation, self.task.batch), structure="diag", prior=get_prior("isotropic"),
                kind="linear", trials=2, progress=False,
            )  # fmt: skip
            assert laplace.plain_trial is not None
            temperature = laplace.plain_trial.temperature
            noise = noise if laplace.plain_trial.noise is None else laplace.plain_trial.noise
        posterior = laplace.posterior(structure="diag", prior="isotropic", prior_precision=1.0)
        predictor, options = self.predictor(posterior, temperature), PredictOptions("mc", 1, "mc", 0)
        device = device_of(self.task.model)

        def predicted(parts: list[Any]) -> Prediction:
            plain = torch.cat([predictor.outputs(batch) for batch in _read(parts, device)])
            return predictor.from_outputs(RawOutputs(plain, samples=plain.unsqueeze(0)), options, noise=noise)

        known = predicted(batches(self.task.test, self.task.batch))
        strange = self.task.unknown
        unknown = None if strange is None else predicted(list(strange.split(self.task.batch)))
        found = measures(known, self.task.test[1], unknown)
        found.pop("auroc_mi", None)  # one network has none
        return {"temperature": temperature, "noise": noise, **found}


def measures(known: Prediction, targets: Tensor, unknown: Prediction | None) -> dict[str, Any]:
    """Return the scores of known data, and how well entropy and mutual information tell unknown data from them."""
    if not bool(known.value.isfinite().all()):
        return {"nll": math.inf}
    found: dict[str, Any] = dict(evaluate(known, targets))
    if unknown is not None and bool(unknown.value.isfinite().all()):
        found["auroc"] = ood(known.entropy, unknown.entropy)["auroc"]
        found["auroc_mi"] = ood(known.mutual_information, unknown.mutual_information)["auroc"]
        found["mi_known"] = float(known.mutual_information.mean())
        found["mi_unknown"] = float(unknown.mutual_information.mean())
    return found


def run(task: Task) -> None:
    """Add the rows that are missing, and save after each group that shares its predictions."""
    measured, base = Measured(task), {"task": task.name, "seed": task.seed}
    with kept() as results:
        results["tasks"][task.name] = task.settings
    done = [row["choice"] for row in read_results("predictives")["rows"]]
    for structure in ("plain", "temperature"):
        own = {**base, "structure": structure}
        if own not in done:
            begun = time.perf_counter()
            keep([{"choice": own, **measured.alone(structure), "seconds": time.perf_counter() - begun}])
    for (structure, prior, kind), group in groupby(task.choices, key=lambda one: one[:3]):
        begun = time.perf_counter()
        wanted: list[tuple[Choice, dict[str, Any], Setting]] = []
        for choice in group:
            named = {tuning: {**base, **choice._asdict(), "tuning": tuning} for tuning in task.tunings_of(choice)}
            missing = [tuning for tuning, own in named.items() if own not in done]
            settings = measured.settings(choice, missing) if missing else {}
            wanted += [(choice, named[tuning], setting) for tuning, setting in settings.items()]
        if not wanted:
            continue
        tuned, same = time.perf_counter(), {}
        for _, _, setting in wanted:
            same.setdefault(
                (setting.precision, setting.noise, structure, prior, _by_evidence(setting)), setting.posterior
            )
        raws = dict(zip(same, measured.outputs(wanted[0][0], list(same.values())), strict=True))
        rows = []
        for choice, own, setting in wanted:
            raw = raws[(setting.precision, setting.noise, structure, prior, _by_evidence(setting))]
            rows.append({"choice": own, **measured.scores(choice, setting, raw)})
        ended = time.perf_counter()
        for row in rows:  # a search serves several rows, and so does a pass over the test data
            row["seconds"] = (ended - begun) / len(rows)
        keep(rows)
        print(f"{task.name} {task.seed} {structure} {prior} {kind}: {tuned - begun:.0f} s to tune, "
              f"{ended - tuned:.0f} s for {len(same)} posteriors", flush=True)  # fmt: skip


def _by_evidence(setting: Setting) -> bool:
    return "at" not in setting.facts


def _read(parts: list[Any], device: torch.device) -> list[Batch]:
    return [read_batch(one, device) for one in parts]


def batches(data: Data, size: int = 500) -> list[Data]:
    return list(zip(data[0].split(size), data[1].split(size), strict=True))


@contextmanager
def kept() -> Iterator[dict[str, Any]]:
    """Give the results, and write them when changed; processes take turns."""
    turn = os.open(RESULTS, os.O_RDONLY)
    try:
        fcntl.flock(turn, fcntl.LOCK_EX)
        results = read_results("predictives", empty={"tasks": {}, "rows": []})
        yield results
        results["versions"] = versions()
        write_results("predictives", results)
    finally:
        os.close(turn)


def keep(rows: list[dict[str, Any]]) -> None:
    """Add rows to the results."""
    with kept() as results:
        results["rows"] += rounded(rows)
    for row in rows:
        told = {name: round(row[name], 4) for name in ("nll", "ece", "auroc", "auroc_mi") if name in row}
        print(" ".join(str(one) for one in row["choice"].values()), told, flush=True)


def main() -> None:
    parser = command_line(__doc__)
    names = list(tasks(None))
    parser.add_argument("tasks", nargs="*", choices=[*names, []], metavar="TASK", help=f"any of {', '.join(names)}")
    parser.add_argument("--cifar", type=Path, help="cifar10.npz, for the ResNets")
    options = parser.parse_args()
    for name in options.tasks:
        for task in tasks(options.cifar)[name]():
            run(task)
    if options.page:
        write_page("predictives", page())


if __name__ == "__main__":
    main()
