"""Rows of the benchmark: each asks all sides in turns, round by round, and keeps medians of ratios within a round."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.answers.asking import Side, Worker
from benchmarks.answers.cases import cases
from benchmarks.answers.quality import score
from benchmarks.common import rounded

KINDS = ("temperature", "last", "linear", "mc", "linear-mc")
ROWS = ("plain", "temperature", "last tau", "last tau+T", "all tau", "all tau+T")  # of the quality of answers
LONGEST = 1500.0  # seconds of one answer
Row = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """What a run depends on besides the sides."""

    quick: bool = False
    rounds: int = 5
    tune_rounds: int = 1
    before_inputs: int = 50  # validation inputs of the version before: 27 predictions of all of them take an hour
    before_samples: int = 20
    peer_inputs: int = 8  # of laplace-torch with all layers, asked once: 16 take a minute or two
    limit: float = LONGEST


class Asked:
    """The workers of one network, started when they are first asked."""

    def __init__(self, name: str, sides: Sequence[Side], settings: Settings, cifar: Path | None) -> None:
        self.name, self.case, self.settings = name, cases(settings.quick)[name], settings
        self.workers = {
            side.name: Worker(side, side.command(name, quick=settings.quick, cifar=cifar), limit=settings.limit)
            for side in sides
        }

    def close(self) -> None:
        for worker in self.workers.values():
            worker.close()


def latency(asked: Asked, way: str, count: int) -> Row:
    """Return, by side, how long a way of predicting takes: milliseconds, and plain passes over the same inputs."""
    sides = [name for name in asked.workers if (name == "laplace-torch") == way.startswith("peer ")]
    request = {"do": "predict", "way": way.removeprefix("peer "), "count": count}
    rounds = 0 if way == "peer all" else asked.settings.rounds
    answers: dict[str, list[Row]] = {name: [] for name in sides}
    failed: dict[str, str] = {}
    for number in range(rounds + 1):
        for name in sides if number % 2 else reversed(sides):
            if name in failed:
                continue
            answer = asked.workers[name].ask(**request)
            if "failed" in answer:
                failed[name] = answer["failed"]
            elif number or not rounds:  # the first of several prepares what is computed once
                answers[name].append(answer)
    return {name: {"failed": failed[name]} if name in failed else _summary(answers[name], count) for name in sides}


def latency_rows(asked: Asked) -> list[tuple[str, int]]:
    """Return the ways of predicting that are asked for, with numbers of inputs."""
    case = asked.case
    rows = [(way, count) for way in case.ways for count in (case.batch, 1)]
    if "laplace-torch" in asked.workers:
        rows += [("peer last", case.batch), ("peer last", 1)]
        if "linear" in case.ways:  # Jacobians of one input with a thousand outputs have 100 GB
            rows += [("peer all", asked.settings.peer_inputs), ("peer all", 1)]
    return rows


def tuning(asked: Asked, kind: str, count: int) -> Row:
    """Return, by side, what `tune(val_loader)` takes, in predictions of the same data and in plain forward passes."""
    settings = asked.settings
    fewer = {"before": (min(count, settings.before_inputs), {"samples": settings.before_samples})}
    found: Row = {}
    for name, worker in asked.workers.items():
        if worker.side.library != "infoform" or (kind == "temperature" and name == "before"):
            continue
        inputs, options = fewer.get(name, (count, {}))
        request = {"do": "tune", "kind": kind, "count": inputs, "options": options if "mc" in kind else {}}
        answers = [worker.ask(**request) for _ in range(settings.tune_rounds)]
        failed = next((one for one in answers if "failed" in one), None)
        found[name] = failed or {
            "inputs": inputs,
            "predictions": median(one["seconds"] / one["predict"] for one in answers),
            "forwards": median(one["seconds"] / one["forward"] for one in answers),
            "seconds": [one["seconds"] for one in answers],
        }
    return rounded(found)  # type: ignore[no-any-return]


def quality(asked: Asked, row: str) -> Row:
    """Return the scores of one method, and what it found."""
    worker = asked.workers["laplace-torch" if row.startswith("peer ") else "now"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "answers.pt"
        answer = worker.ask(do="quality", row=row.removeprefix("peer "), to=str(path))
        return rounded(answer if "failed" in answer else {**score(path), **answer})  # type: ignore[no-any-return]


def _summary(answers: Sequence[Row], count: int) -> Row:
    ratios = [one["seconds"] / one["forward"] for one in answers]
    return rounded(  # type: ignore[no-any-return]
        {
            "inputs": count,
            "forwards": median(ratios),
            "milliseconds": 1e3 * median(one["seconds"] for one in answers),
            "forward_milliseconds": 1e3 * median(one["forward"] for one in answers),
            "rounds": ratios,
        }
    )
