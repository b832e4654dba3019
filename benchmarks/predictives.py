"""Which structure, prior, predictive kind and way of tuning is best? Digits and UCI, side by side.

    python -m benchmarks.predictives digits uci      # resumes; writes benchmarks/results/predictives.json
    python -m benchmarks.predictives --page          # writes docs/predictives.md from it, runs nothing

UCI is read from the folder INFOFORM_DATA. A row is one choice of all four on one trained network: NLL, ECE and, where
there is unknown data (pixel-shuffled digits), AUROC of the predictive entropy. Whatever is not said in a row's choice
or in its task's settings is the library's default; `linear` has the default link. MNIST: `infoform reproduce mnist`.
"""

import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.common import command_line, laplace_of, read_results, versions, write_page, write_results
from benchmarks.predictives_page import page
from torch import Tensor, nn
from torch.nn import functional

import infoform
from infoform.demo.digits import DigitsSettings, load_digits_parts, train_classifier
from infoform.metrics import evaluate, ood

STRUCTURES = ("diag", "kfac", "efb-paper", "inf-paper", "inf")
PRIORS = ("isotropic", "activation")
TUNING = ("validation", "evidence")
NOISE_TOO = "evidence, noise too"  # of a regression
Data = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Task:
    """One trained network with its data."""

    name: str
    what: str
    seed: int
    networks: int  # of this task
    model: nn.Module
    likelihood: str
    train: Data  # for the curvature
    validation: Data
    test: Data
    unknown: Tensor | None
    precisions: tuple[float, ...]
    structures: tuple[str, ...] = STRUCTURES
    samples: int = 30
    kinds: tuple[str, ...] = ("linear", "mc", "linear-mc")
    priors: tuple[str, ...] = PRIORS
    tunings: tuple[str, ...] = TUNING

    @property
    def settings(self) -> dict[str, Any]:
        """What the page must know of the task."""
        names = ("what", "networks", "precisions", "structures", "samples", "kinds", "priors", "tunings")
        return {name: getattr(self, name) for name in names}


def digits() -> Iterator[Task]:
    for seed in range(3):
        settings = DigitsSettings(seed=seed)
        train, validation, test = load_digits_parts(settings)
        model = train_classifier(train, settings)
        shuffled = test.images.flatten(1)[:, torch.randperm(64, generator=torch.Generator().manual_seed(seed))]
        pairs = ((part.images, part.labels) for part in (train, validation, test))
        taus = tuple(10.0**power for power in np.arange(-5, 5.1, 0.5))
        what = "the demo's CNN on 400 noisy digits; unknown: shuffled pixels"
        unknown = shuffled.reshape(test.images.shape)
        yield Task("digits", what, seed, 3, model, "classification", *pairs, unknown, taus)


def uci() -> Iterator[Task]:
    root = Path(os.environ["INFOFORM_DATA"]) / "uci"
    for name in ("bostonHousing", "concrete", "yacht"):
        for split in range(3):
            folder = root / name
            data = np.loadtxt(folder / "data.txt")
            features = np.loadtxt(folder / "index_features.txt").astype(int)
            target = int(np.loadtxt(folder / "index_target.txt"))
            rows = [np.loadtxt(folder / f"index_{part}_{split}.txt").astype(int) for part in ("train", "test")]
            mean, std = data[rows[0]].mean(0), data[rows[0]].std(0) + 1e-12
            table = torch.tensor((data - mean) / std)
            x, y = table[:, features], table[:, [target]]
            fit, validation = rows[0][len(rows[0]) // 5 :], rows[0][: len(rows[0]) // 5]
            torch.manual_seed(split)
            model = nn.Sequential(nn.Linear(x.shape[1], 50), nn.ReLU(), nn.Linear(50, 1)).double()
            optimizer = torch.optim.Adam(model.parameters(), 1e-2)
            for _ in range(400):
                optimizer.zero_grad()
                functional.mse_loss(model(x[fit]), y[fit]).backward()
                optimizer.step()
            parts = tuple((x[part], y[part]) for part in (fit, validation, rows[1]))
            taus = tuple(10.0**power for power in np.arange(-8, 4.1, 0.5))
            what = f"UCI {name}, one hidden layer of 50, splits 0 to 2"
            tunings = (*TUNING, NOISE_TOO)
            yield Task(f"uci-{name}", what, split, 3, model, "regression", *parts, None, taus, tunings=tunings)


TASKS = {"digits": digits, "uci": uci}


def run(task: Task, results: dict[str, Any]) -> None:
    """Add the rows that are missing, and save after each."""
    results["tasks"][task.name] = task.settings
    laplace = laplace_of(task.model, task.likelihood, statistics="all", block_limit=1)
    laplace.fit(batches(task.train), progress=False)
    base = {"task": task.name, "seed": task.seed}
    add(results, {**base, "structure": "plain"}, lambda: plain_scores(task, laplace))
    for kind, tuning, structure, prior in product(task.kinds, task.tunings, task.structures, task.priors):
        choice = {**base, "structure": structure, "prior": prior, "kind": kind, "tuning": tuning}
        add(results, choice, partial(scores, task, laplace, structure, prior, kind, tuning))


def scores(task: Task, laplace: infoform.Laplace, structure: str, prior: str, kind: str, tuning: str) -> dict[str, Any]:
    if tuning != "validation":
        laplace, tau = by_evidence(task, structure, prior, noise="evidence" if tuning == NOISE_TOO else "residuals")
    else:
        found = {
            precision: predict(task, laplace, structure, prior, kind, precision, task.validation)["nll"]
            for precision in task.precisions
        }
        tau = min(found, key=lambda precision: found[precision] if math.isfinite(found[precision]) else math.inf)
    return {"prior_precision": tau, **predict(task, laplace, structure, prior, kind, tau, task.test, task.unknown)}


def by_evidence(task: Task, structure: str, prior: str, *, noise: str) -> tuple[infoform.Laplace, float]:
    """Return what `tune()` gives: the τ of the largest evidence and perhaps the noise that goes with it."""
    tuned = infoform.Laplace(task.model, task.likelihood, structure=structure, prior=prior)
    tuned.fit(batches(task.train), progress=False).tune(noise=noise)
    assert isinstance(tuned.prior_precision, float)
    return tuned, tuned.prior_precision


def predict(
    task: Task, laplace: infoform.Laplace, structure: str, prior: str, kind: str, tau: float, data: Data,
    unknown: Tensor | None = None,
) -> dict[str, Any]:  # fmt: skip
    posterior = laplace.posterior(structure=structure, prior=prior, prior_precision=tau)
    options: dict[str, Any] = {"kind": kind, "samples": task.samples, "posterior": posterior, "progress": False}
    prediction, targets = laplace.predict_loader(batches(data), **options)
    assert targets is not None
    if not bool(prediction.value.isfinite().all()):
        return {"nll": math.inf}
    result: dict[str, Any] = dict(evaluate(prediction, targets))
    if unknown is not None:
        other, _ = laplace.predict_loader(list(unknown.split(500)), **options)
        result |= ood(prediction.entropy, other.entropy)
        result["entropy_unknown"] = float(other.normalised_entropy.mean())
    return result


def plain_scores(task: Task, laplace: infoform.Laplace) -> dict[str, Any]:
    """Score the trained network by itself: a posterior so narrow that it is a point."""
    return predict(task, laplace, "diag", "isotropic", "mc", 1e12, task.test, task.unknown)


def batches(data: Data) -> list[Data]:
    return list(zip(data[0].split(500), data[1].split(500), strict=True))


def add(results: dict[str, Any], choice: dict[str, Any], measure: Callable[[], dict[str, Any]]) -> None:
    if any(row["choice"] == choice for row in results["rows"]):
        return
    begun = time.perf_counter()
    row = {"choice": choice, **measure(), "seconds": round(time.perf_counter() - begun, 2)}
    results["rows"].append(row)
    results["versions"] = versions()
    write_results("predictives", results)
    print(choice, {name: round(row[name], 4) for name in ("nll", "ece", "auroc") if name in row}, flush=True)


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("tasks", nargs="*", choices=[*TASKS, []], metavar="TASK", help=f"any of {', '.join(TASKS)}")
    options = parser.parse_args()
    results = read_results("predictives", empty={"tasks": {}, "rows": []})
    for name in options.tasks:
        for task in TASKS[name]():
            run(task, results)
    if options.page:
        write_page("predictives", page())


if __name__ == "__main__":
    main()
