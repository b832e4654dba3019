"""Active learning on UCI: which point to label next, by the variance of its prediction, or at random.

A network with 10 hidden units learns from 20 points; then, 20 times, one point of the pool is labelled and the network
trained on, with early stopping by the RMSE of 100 validation points. The point is the one of largest epistemic variance
by linearised Laplace (MacKay 1992); (N, τ) are those of the best validation log-likelihood. RMSE on 100 test points.
All arms of a split start from the same trained network; as the paper does not say, training goes on from the weights of
the step before. Lee et al. 2020, section 5 and supplement.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import infoform
from infoform.data.uci import load_uci
from infoform.experiments.active_learning import page as active_learning_page
from infoform.experiments.base import Experiment, Settings
from infoform.experiments.networks.shallow import ShallowStack, StackedAdam
from infoform.posteriors import Inf, Structure, get_structure
from infoform.records.study_result import Result

ARMS: Mapping[str, Structure | None] = {  # None chooses at random
    "random": None,
    "inf 20%": get_structure("inf-paper", rank=0.2),
    "inf 50%": get_structure("inf-paper", rank=0.5),
    "inf 100%": get_structure("inf-paper", rank=1.0),
    "ours 20%": Inf(rank=0.2),
    "ours 50%": Inf(rank=0.5),
    "ours 100%": Inf(rank=1.0),
}
LEARNING_RATES = {"boston": 0.01, "wine": 0.001, "energy": 0.01}
DECAYS = {"boston": 0.0, "wine": 0.0, "energy": 1e-5}


@dataclass(frozen=True)
class ActiveSettings(Settings):
    """All as in the paper; of its range [0.5, 1] of N both ends are tried."""

    sets: tuple[str, ...] = ("boston", "wine", "energy")
    splits: int = 20
    steps: int = 20
    hidden: int = 10
    training_points: int = 20
    validation_points: int = 100
    test_points: int = 100
    batch_size: int = 20
    epochs: int = 40
    data_factors: tuple[float, ...] = (0.5, 1.0)
    prior_precisions: tuple[float, ...] = (1.0, 200.0, 400.0)


@dataclass(frozen=True)
class Task:
    """A set, standardised by what is known without asking: all inputs but the test's, and the first labels."""

    x: Tensor  # (N, A)
    y: Tensor  # (N, 1)
    train: Tensor  # row numbers
    validation: Tensor
    test: Tensor
    pool: Tensor
    target_std: float


class ActiveLearning(Experiment[ActiveSettings]):
    """RMSE over acquisitions, by variance and at random."""

    name = "active-learning"
    summary = "Test RMSE over 20 acquisitions on three UCI sets: by predictive variance, and at random."
    reproduces = "the figure of active learning (section 5)"

    def settings(self, *, quick: bool = False, full: bool = False) -> ActiveSettings:
        return ActiveSettings(splits=2, steps=5) if quick else ActiveSettings()

    def pieces(self, settings: ActiveSettings) -> Sequence[str]:
        return [f"{name}/{split}" for name in settings.sets for split in range(settings.splits)]

    def run_piece(self, key: str, settings: ActiveSettings, *, cache: Path) -> dict[str, Any]:
        name, split = key.split("/")
        seed = 1000 * settings.seed + int(split)
        task = draw_task(name, seed, settings)
        return {"rmse": learn(task, settings, rate=LEARNING_RATES[name], decay=DECAYS[name], seed=seed)}

    def page(self, result: Result) -> str:
        return active_learning_page.page(result)

    def charts(self, result: Result, folder: Path) -> None:
        active_learning_page.draw(result, folder / "active-learning.png")


def draw_task(name: str, seed: int, settings: ActiveSettings) -> Task:
    """Draw training, validation, test and pool points of a set."""
    raw = load_uci(name, 0)
    x, y = torch.cat([raw.train_x, raw.test_x]), torch.cat([raw.train_y, raw.test_y])
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    sizes = [settings.training_points, settings.validation_points, settings.test_points]
    train, validation, test, pool = order.split([*sizes, len(x) - sum(sizes)])
    known = x[torch.cat([train, validation, pool])]
    mean, std = known.mean(0), known.std(0)
    y_mean, y_std = y[train].mean(), y[train].std()
    return Task((x - mean) / std, (y - y_mean) / y_std, train, validation, test, pool, float(y_std))


def learn(task: Task, settings: ActiveSettings, *, rate: float, decay: float, seed: int) -> dict[str, list[float]]:
    """Return the test RMSE of every arm after each training, in the set's own units."""
    generator = torch.Generator().manual_seed(seed)
    first = ShallowStack.drawn(1, task.x.shape[1], settings.hidden, generator=generator)
    train(first, task, [task.train], settings, rate, decay, generator)
    stack = ShallowStack(first.flat.repeat(len(ARMS), 1), first.num_inputs, first.width)
    known, pools = [task.train] * len(ARMS), [task.pool] * len(ARMS)
    curves = {arm: [value] for arm, value in zip(ARMS, _test_rmse(stack, task), strict=True)}
    for _ in range(settings.steps):
        for at, structure in enumerate(ARMS.values()):
            pool = pools[at]
            if structure is None:
                chosen = int(torch.randint(len(pool), (1,), generator=generator))
            else:
                chosen = most_uncertain(stack, at, task, known[at], pool, structure, settings)
            known[at] = torch.cat([known[at], pool[chosen : chosen + 1]])
            pools[at] = torch.cat([pool[:chosen], pool[chosen + 1 :]])
        train(stack, task, known, settings, rate, decay, generator)
        for arm, value in zip(ARMS, _test_rmse(stack, task), strict=True):
            curves[arm].append(value)
    return curves


def train(
    stack: ShallowStack,
    task: Task,
    known: Sequence[Tensor],
    settings: ActiveSettings,
    rate: float,
    decay: float,
    generator: torch.Generator,
) -> None:
    """Train each network on what it knows, and leave it with the weights of its least validation error."""
    x, y = (torch.stack([table[rows] for rows in known]) for table in (task.x, task.y))
    best, best_error = stack.flat.clone(), _errors(stack, task, task.validation)
    optimizer = StackedAdam(stack, rate, decay)
    for _ in range(settings.epochs):
        optimizer.epoch(x, y, settings.batch_size, generator=generator)
        error = _errors(stack, task, task.validation)
        better = error < best_error
        best[better], best_error = stack.flat[better], torch.minimum(error, best_error)
    stack.flat.copy_(best)


def most_uncertain(
    stack: ShallowStack,
    at: int,
    task: Task,
    known: Tensor,
    pool: Tensor,
    structure: Structure,
    settings: ActiveSettings,
) -> int:
    """Return the position in the pool of the point of largest variance, with the (N, τ) of the best validation."""
    laplace = infoform.Laplace(
        stack.network(at),
        "regression",
        structure=structure,
        fit_options=infoform.FitOptions(fisher="exact"),
    )
    laplace.fit([(task.x[known], task.y[known])], progress=False)
    x, y = task.x[task.validation], task.y[task.validation]
    trials: list[infoform.Trial] = []
    for factor, tau in product(settings.data_factors, settings.prior_precisions):  # a grid that is even in no scale
        count = factor * len(known)
        laplace.tune([(x, y)], trials=1, num_data=count, prior_precision=(tau, tau), noise="residuals", progress=False)
        trials += laplace.trials
    best = min(trials, key=lambda trial: trial.scores["nll"])
    laplace.num_data, laplace.prior_precision = best.num_data, best.prior_precision
    chosen = infoform.acquire(laplace, [task.x[pool]], 1, kind="linear", greedy=False, progress=False)
    return int(chosen[0])


def _errors(stack: ShallowStack, task: Task, rows: Tensor) -> Tensor:  # (R,)
    x, y = task.x[rows], task.y[rows]
    return (stack(x.expand(len(stack.flat), -1, -1)) - y).square().mean((1, 2))


def _test_rmse(stack: ShallowStack, task: Task) -> list[float]:
    found = _errors(stack, task, task.test).sqrt() * task.target_std
    return [float(f"{value:.4g}") for value in found.tolist()]


EXPERIMENT = ActiveLearning()
