"""Choosing N and τ by a search on validation data: a grid, at random (the paper's two), by halving, or by Optuna.

All trials see the same random numbers, so that they differ by nothing but the pair (N, τ), and each is kept.
"""

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from infoform.common.checks import check_choice, check_whole
from infoform.common.figures import save_figure
from infoform.common.json_values import from_json
from infoform.common.same_work import Identity, refusal
from infoform.common.whole_files import write_text

METHODS = ("grid", "random", "halving", "optuna")
OBJECTIVES = ("nll", "ece", "brier")
PRECISION_RANGE = (1e-7, 1e6)  # of τ, where no other is given


@dataclass(frozen=True)
class Trial:
    """One pair of a search and what it scored.

    Args:
        num_data: N.
        prior_precision: τ.
        scores: By objective; the smaller the better.
        temperature: T at which it scored so; 1 where it was not searched.
        noise: σ of a regression at which it scored so, where it was searched.
        estimated: Whether its outputs were combined from those of other trials.
        examples: How many examples it was scored on, where a search by halving dropped it before it saw all of them.

    Example:
        ```python
        laplace.tune(val_loader, trials=3, standard_errors=0, progress=False)
        best = min(laplace.trials, key=lambda trial: trial.scores["nll"])
        assert laplace.prior_precision == best.prior_precision
        ```
    """

    num_data: float
    prior_precision: float
    scores: dict[str, float]
    temperature: float = 1.0
    noise: float | None = None
    estimated: bool = False
    examples: int | None = None


@dataclass(frozen=True)
class Found:
    """The trials of a search and, where the choice among them was made, which one it is."""

    trials: list[Trial]
    plain: Trial | None = None  # the network alone
    chosen: int | None = None  # place of the trial that was taken
    widened: tuple[float, float] | None = None  # range of τ, where the search went on beyond its own


@dataclass(frozen=True)
class _Kept:
    """The file of a search, as JSON holds it."""

    settings: Mapping[str, Any]
    trials: list[Trial]
    plain: Trial | None = None
    chosen: int | None = None
    widened: tuple[float, float] | None = None


@dataclass(frozen=True)
class Search:
    """A search over pairs (N, τ) between bounds, on logarithmic scales; kept in `path` and resumed from it."""

    objective: str
    method: str
    trials: int
    num_data: tuple[float, float]
    prior_precision: tuple[float, float]
    seed: int
    path: str | os.PathLike[str] | None
    settings: Mapping[str, Any]  # what else the scores depend on

    def __post_init__(self) -> None:
        check_choice("objective (with val_loader)", self.objective, OBJECTIVES)
        check_choice("method", self.method, METHODS)
        check_whole("trials", self.trials)
        for name in ("prior_precision", "num_data"):
            check_range(name, getattr(self, name))

    def run(self, score: Callable[[float, float], Trial], tick: Callable[[int], None]) -> list[Trial]:
        """Score every pair, one after the other; `score` takes (N, τ)."""
        done = self.read().trials
        for _ in done:
            tick(1)
        propose, tell = self._optuna(done) if self.method == "optuna" else self._listed(done)
        while len(done) < self.trials:
            done.append(self.checked(score(*propose())))
            tell(done[-1].scores[self.objective])
            self.write(done)
            tick(1)
        return done

    @property
    def precisions(self) -> list[float] | None:
        """Return all τ, where they are known beforehand and N is given; else None."""
        if self.method in ("optuna", "halving") or self.num_data[0] != self.num_data[1]:
            return None
        return [tau for _, tau in self.pairs]

    def at_edge(self, tau: float) -> bool:
        """Whether a τ that was searched lies within a hundredth of an end of the range (on its logarithmic scale)."""
        low, high = map(math.log, self.prior_precision)
        margin = (high - low) / 100
        return margin > 0 and not low + margin < math.log(tau) < high - margin

    def checked(self, trial: Trial) -> Trial:
        """Return the trial, if it has a score of the objective."""
        if self.objective not in trial.scores:
            raise ValueError(f"objective {self.objective!r} is for classification; use 'nll'.")
        return trial

    def _listed(self, done: Sequence[Trial]) -> tuple[Callable[[], tuple[float, float]], Callable[[float], None]]:
        pairs = iter(self.pairs[len(done) :])
        return lambda: next(pairs), lambda _: None

    @property
    def pairs(self) -> list[tuple[float, float]]:
        """Return all pairs (N, τ), which only Optuna does not know beforehand."""
        return self._grid() if self.method == "grid" else self._random()

    def _grid(self) -> list[tuple[float, float]]:
        """Return the first `trials` pairs of a grid with about two values of τ for each of N."""
        columns = 1 if self.num_data[0] == self.num_data[1] else max(2, round(math.sqrt(self.trials / 2)))
        counts = np.geomspace(*self.num_data, columns) if columns > 1 else np.array([self.num_data[0]])
        taus = np.geomspace(*self.prior_precision, max(2, math.ceil(self.trials / columns)))
        return [(float(count), float(tau)) for count in counts for tau in taus][: self.trials]

    def _random(self) -> list[tuple[float, float]]:
        uniform = np.random.default_rng(self.seed).random((self.trials, 2))
        bounds = np.log([self.num_data, self.prior_precision])  # (2, 2)
        drawn = np.exp(bounds[:, 0] + uniform * (bounds[:, 1] - bounds[:, 0]))
        return [(float(count), float(tau)) for count, tau in drawn]

    def _optuna(self, done: Sequence[Trial]) -> tuple[Callable[[], tuple[float, float]], Callable[[float], None]]:
        try:
            import optuna
        except ModuleNotFoundError:
            raise ModuleNotFoundError(
                "method='optuna' needs Optuna, which is not installed; pip install 'infoform[tune]', or use 'random'."
            ) from None
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        names = ("num_data", "prior_precision")
        space: dict[str, Any] = {}
        for name in names:
            low, high = getattr(self, name)
            space[name] = optuna.distributions.FloatDistribution(low, high, log=True)
        study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=self.seed))
        asked: list[Any] = []

        def propose() -> tuple[float, float]:
            asked.append(study.ask(space))
            return asked[-1].params["num_data"], asked[-1].params["prior_precision"]

        def tell(value: float) -> None:
            if math.isfinite(value):
                study.tell(asked[-1], value)
            else:
                study.tell(asked[-1], state=optuna.trial.TrialState.FAIL)

        for old in done:  # Optuna proposes the same again, and its random numbers are then where they were
            proposed = propose()
            if old.noise is None and not all(map(math.isclose, proposed, (old.num_data, old.prior_precision))):
                raise ValueError(
                    f"'{self.path}' holds trials that this Optuna ({optuna.__version__}) does not propose, so that the "
                    "search cannot go on as it would have; remove the file to start again, or install the version "
                    "that it was begun with."
                )
            tell(old.scores[self.objective])
        return propose, tell

    @property
    def identity(self) -> Identity:
        """Return all that the trials depend on."""
        # every trial is at the temperature that is best by the objective
        own = {name: getattr(self, name) for name in ("method", "objective", "num_data", "prior_precision", "seed")}
        if self.method in ("grid", "halving"):
            own["trials"] = self.trials  # another number is another grid, or has other rounds
        return Identity({**self.settings, **own})

    def read(self) -> "Found":
        """Return what an earlier search has kept; nothing where there was none."""
        if self.path is None or not Path(self.path).exists():
            return Found([])
        try:
            saved = json.loads(Path(self.path).read_text())
            kept = from_json(_Kept, saved)
            trials, plain, chosen = list(kept.trials), kept.plain, kept.chosen
            settings, widened = kept.settings, kept.widened
            if chosen is not None and not 0 <= chosen < len(trials):
                raise ValueError(f"'chosen' must be one of {len(trials)} trials, got {chosen}")
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"'{self.path}' holds no trials of a search ({error}); remove it or give another path."
            ) from error
        differences = self.identity.differences(settings)
        if differences:
            what = f"'{self.path}' holds the trials of a search with other settings"
            raise ValueError(refusal(what, differences, remedy="remove it or give another path"))
        if widened is not None:
            return Found(trials, plain, chosen, (float(widened[0]), float(widened[1])))
        if len(trials) != self.trials:  # the choice was among others
            chosen = plain = None
        return Found(trials[: self.trials], plain, chosen)

    def write(
        self,
        trials: Sequence[Trial],
        *,
        plain: Trial | None = None,
        chosen: int | None = None,
        widened: tuple[float, float] | None = None,
    ) -> None:
        """Keep the trials and, where it was made, the choice among them."""
        if self.path is None:
            return
        content: dict[str, Any] = {
            "settings": self.identity.values,
            "trials": [asdict(trial) for trial in trials],
        }
        if chosen is not None:
            content |= {"plain": None if plain is None else asdict(plain), "chosen": chosen}
        if widened is not None:
            content["widened"] = widened
        write_text(self.path, json.dumps(content, indent=1))


def as_range(value: float | tuple[float, float]) -> tuple[float, float]:
    """Return a range; a number is a range of that number alone."""
    return (float(value), float(value)) if isinstance(value, int | float) else value


def check_range(name: str, value: tuple[float, float]) -> tuple[float, float]:
    """Return a range of positive numbers, or raise a ValueError."""
    low, high = value
    if not 0 < low <= high < math.inf:
        raise ValueError(f"{name} must be a range of positive numbers (low, high), got {(low, high)}.")
    return low, high


def best_trial(trials: Iterable[Trial], objective: str) -> Trial:
    """Return the trial of the smallest score; those that are not finite, or of a part of the data, do not count."""
    finite = [trial for trial in trials if math.isfinite(trial.scores[objective]) and trial.examples is None]
    if not finite:
        raise ValueError(f"no trial gave a finite {objective}; search over larger prior precisions.")
    return min(finite, key=lambda trial: trial.scores[objective])


def draw_landscape(trials: Sequence[Trial], objective: str, path: str | os.PathLike[str]) -> None:
    """Save a picture of the objective over (N, τ), as in the paper's supplement; crosses are not finite.

    Args:
        trials: Trials of a search.
        objective: The score that is drawn, such as "nll".
        path: The file of the picture.

    Raises:
        ValueError: If no trial has a finite score.

    Example:
        ```python
        laplace.tune(val_loader, method="random", trials=4, num_data=(10.0, 100.0), progress=False)
        infoform.draw_landscape(laplace.trials, "nll", "landscape.png")
        ```
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    best = best_trial(trials, objective)
    shown = [trial for trial in trials if math.isfinite(trial.scores[objective])]
    broken = [trial for trial in trials if not math.isfinite(trial.scores[objective])]
    figure = Figure(figsize=(6.4, 4.8), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    points = axes.scatter(
        [trial.num_data for trial in shown],
        [trial.prior_precision for trial in shown],
        c=[trial.scores[objective] for trial in shown],
        s=60,
        cmap="viridis_r",
    )
    axes.scatter([t.num_data for t in broken], [t.prior_precision for t in broken], marker="x", c="tab:red")
    axes.scatter([best.num_data], [best.prior_precision], s=160, facecolors="none", edgecolors="black", label="best")
    axes.set(xscale="log", yscale="log", xlabel="N (num_data)", ylabel="τ (prior_precision)")
    axes.legend(loc="upper left")
    figure.colorbar(points, label=objective)
    save_figure(figure, path, dpi=150)
