"""The page docs/predictives.md, from the rows of predictives.py: tables, and what they say, counted and not judged.

It computes means, medians and counts of what is in the rows and nothing else, and works on an unfinished run: a mean
over fewer networks than the task's others says so and cannot be the best.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import mean, median, stdev
from typing import Any

from benchmarks.common import read_results, run_fold, template

from infoform.pages.markdown import table
from infoform.pages.numbers import count_of
from infoform.pages.template import PageTemplate

KINDS = ("linear", "mc", "linear-mc")
TUNING = ("evidence", "evidence, noise too", "validation")
EVIDENCE_RANGE = (1e-6, 1e6)
RANK, PRIOR_RANK, STRENGTH = 100, 16, 30  # the library's defaults when the rows were measured
CHOICES = ("task", "seed", "structure", "prior", "kind", "tuning")
Row = dict[str, Any]


@dataclass(frozen=True)
class About:
    """What a task was, as predictives.py keeps it beside the rows."""

    what: str
    networks: int
    structures: Sequence[str]
    samples: int
    precisions: Sequence[float]
    kinds: Sequence[str]
    priors: Sequence[str]
    tunings: Sequence[str]

    @property
    def expected(self) -> int:
        return self.networks * (math.prod(map(len, (self.structures, self.priors, self.kinds, self.tunings))) + 1)


@dataclass(frozen=True)
class Measure:
    """One column of the rows."""

    key: str
    name: str
    smaller: bool  # whether smaller is better

    @property
    def better(self) -> str:
        return "smaller" if self.smaller else "larger"


NLL = Measure("nll", "NLL", True)
ECE = Measure("ece", "ECE", True)
AUROC = Measure("auroc", "AUROC of the entropy", False)
MEASURES = (NLL, ECE, AUROC)
GROUPS = ("digits", "uci")
VALIDATION, EVIDENCE = {"tuning": "validation"}, {"tuning": "evidence"}
COMPARED: dict[str, tuple[str, str, str, Mapping[str, str]]] = {  # which choice, its first, its second value, of rows
    "evidence": ("tuning", "evidence", "validation", {}),
    "evidence, noise too": ("tuning", "evidence, noise too", "validation", {}),
    "`mc`, by validation": ("kind", "mc", "linear", VALIDATION),
    "`mc`, by evidence": ("kind", "mc", "linear", EVIDENCE),
    "`linear-mc`, by validation": ("kind", "linear-mc", "linear", VALIDATION),
    "`linear-mc`, by evidence": ("kind", "linear-mc", "linear", EVIDENCE),
    "activation prior, by validation": ("prior", "activation", "isotropic", VALIDATION),
    "activation prior, by evidence": ("prior", "activation", "isotropic", EVIDENCE),
}


def page() -> str:
    """Return docs/predictives.md for the results, finished or not."""
    results = read_results("predictives")
    rows, text = results["rows"], template("predictives")
    abouts = {task: About(**settings) for task, settings in results["tasks"].items()}
    expected = sum(about.expected for about in abouts.values())
    pairs = {name: _pairs(rows, *choice) for name, choice in COMPARED.items()}
    tasks = [_task(text, task, abouts[task], rows) for task in dict.fromkeys(row["choice"]["task"] for row in rows)]
    low, high = EVIDENCE_RANGE
    return text.fill(
        state=None if len(rows) >= expected else f"**The run is not finished: {len(rows)} of {expected} rows.**",
        evidence_digits=_better(_of_group(pairs["evidence"], "digits"), NLL),
        evidence_uci=_better(_of_group(pairs["evidence"], "uci"), NLL),
        prior_auroc=_better(pairs["activation prior, by validation"], AUROC),
        mc_digits=_better(_of_group(pairs["`mc`, by validation"], "digits"), NLL),
        mc_uci=_better(_of_group(pairs["`mc`, by validation"], "uci"), NLL),
        summary=_summary(pairs),
        by_kind=_by_kind(rows),
        by_structure=_by_structure(rows),
        tasks="\n\n".join(tasks),
        least_tau=f"{low:g}",
        most_tau=f"{high:g}",
        rank=RANK,
        prior_rank=PRIOR_RANK,
        strength=STRENGTH,
        run=run_fold({"rows": len(rows)}, results["versions"]),
    )


def _task(text: PageTemplate, task: str, about: About, rows: Sequence[Row]) -> str:
    own = [row for row in rows if row["choice"]["task"] == task]
    present = [one for one in MEASURES if any(one.key in row for row in own)]
    tables = [
        text.part("measure").fill(name=one.name, better=one.better, table=scores_table(own, one)) for one in present
    ]
    return text.part("task").fill(name=task, about=_about(about, own), tables="\n\n".join(tables))


def scores_table(rows: Sequence[Row], measure: Measure) -> str:
    """Return structure × prior by kind × tuning for the rows of one task."""
    cells: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for row in rows:
        key = tuple(str(row["choice"][name]) for name in CHOICES[2:] if name in row["choice"])
        if measure.key in row:
            cells[key].append(row[measure.key])
    most = max(map(len, cells.values()))
    means = {key: mean(values) for key, values in cells.items() if len(values) == most}
    best = (min if measure.smaller else max)(means.values())

    def cell(key: tuple[str, ...]) -> str:
        values = cells.get(key)
        if not values:
            return ""
        text = show(mean(values))
        if len(values) > 1 and all(map(math.isfinite, values)):
            text += f" ± {show(stdev(values))}"
        if len(values) < most:
            return f"{text} (of {len(values)})"
        return f"**{text}**" if means[key] == best else text

    columns = [column for column in product(KINDS, TUNING) if any(key[2:] == column for key in cells)]
    heads = ["structure", "prior", *(f"{kind}, {tuning}" for kind, tuning in columns)]
    lines = [["plain network", "", *[cell(("plain",))] * len(columns)]]
    for structure, prior in dict.fromkeys(key[:2] for key in cells if len(key) > 1):
        lines.append([structure, prior, *(cell((structure, prior, *column)) for column in columns)])
    return table(heads, lines, words=2)


def show(value: float) -> str:
    if not math.isfinite(value):
        return "∞"
    return f"{value:.3f}" if abs(value) < 100 else f"{value:.2e}"


def _about(about: About, rows: Sequence[Row]) -> str:
    networks = len({row["choice"]["seed"] for row in rows})
    low, high = min(about.precisions), max(about.precisions)
    found = f"{networks} of {about.networks} networks, {len(rows)} of {about.expected} rows"
    text = (
        f"{about.what[0].upper()}{about.what[1:]}. {found}. {about.samples} samples, "
        f"{len(about.precisions)} values of τ from {low:g} to {high:g}."
    )
    for tuning, (least, greatest) in (("validation", (low, high)), *((one, EVIDENCE_RANGE) for one in TUNING[:2])):
        chosen = [row["prior_precision"] for row in rows if row["choice"].get("tuning") == tuning]
        edge = sum(not least * 1.1 < tau < greatest / 1.1 for tau in chosen)
        if edge:
            text += f" By {tuning}, {edge} of {len(chosen)} choices of τ lie at an end of its range."
    return text


Pair = tuple[Row, Row]


def paired(rows: Iterable[Row], name: str, first: str, second: str) -> list[Pair]:
    """Return rows that differ in one choice alone: those with `first` beside those with `second`."""
    known: dict[tuple[Any, ...], dict[str, Row]] = defaultdict(dict)
    for row in rows:
        choice = row["choice"]
        if name in choice:
            known[tuple(choice[other] for other in CHOICES if other != name)][choice[name]] = row
    return [(both[first], both[second]) for both in known.values() if first in both and second in both]


def _pairs(rows: Iterable[Row], name: str, first: str, second: str, wanted: Mapping[str, str]) -> list[Pair]:
    return paired(_where(rows, **wanted), name, first, second)


def _of_group(pairs: Iterable[Pair], group: str) -> list[Pair]:
    """Return the pairs of the tasks of one group: digits, or all of UCI."""
    return [pair for pair in pairs if pair[0]["choice"]["task"].split("-")[0] == group]


def _values(pairs: Iterable[Pair], measure: Measure) -> list[tuple[float, float]]:
    return [(a[measure.key], b[measure.key]) for a, b in pairs if measure.key in a and measure.key in b]


def _better(pairs: Iterable[Pair], measure: Measure) -> str:
    """Say how often the first of two is better."""
    sign = 1 if measure.smaller else -1
    return count_of(sign * a < sign * b for a, b in _values(pairs, measure))


def _difference(pairs: Iterable[Pair], measure: Measure) -> str:
    """Say how often the first of two is better, and by how much it differs; nothing where it was not measured."""
    values = _values(pairs, measure)
    finite = [a - b for a, b in values if math.isfinite(a) and math.isfinite(b)]
    if not values:
        return ""
    return _better(pairs, measure) + (f", {median(finite):+.3f}" if finite else "")


def _summary(compared: Mapping[str, Sequence[Pair]]) -> str:
    """Return a line for every comparison and group of tasks."""
    lines = []
    for name, pairs in compared.items():
        _, _, second, _ = COMPARED[name]
        for group in dict.fromkeys(pair[0]["choice"]["task"].split("-")[0] for pair in pairs):
            own = _of_group(pairs, group)
            lines.append([name, second, group, *(_difference(own, measure) for measure in MEASURES)])
    return table(["choice", "against", "task", *(measure.name for measure in MEASURES)], lines, words=3)


def _by_kind(rows: Sequence[Row]) -> str:
    lines = []
    for group in GROUPS:
        for kind in KINDS:
            own = _of_group(paired(_where(rows, kind=kind), "tuning", "evidence", "validation"), group)
            if own:
                lines.append([group, f"`{kind}`", _difference(own, NLL)])
    return table(["task", "kind", "NLL by evidence, against validation"], lines, words=2)


def _by_structure(rows: Sequence[Row]) -> str:
    """Say for which structure and prior evidence adds least and most to the NLL."""
    texts = []
    for group in GROUPS:
        excess = {}
        for structure, prior in dict.fromkeys((row["choice"]["structure"], row["choice"].get("prior")) for row in rows):
            pairs = paired(_where(rows, structure=structure, prior=prior), "tuning", "evidence", "validation")
            gaps = [a - b for a, b in _values(_of_group(pairs, group), NLL) if math.isfinite(a) and math.isfinite(b)]
            if gaps:
                excess[f"`{structure}` with the {prior} prior"] = median(gaps)
        if excess:
            least, most = min(excess, key=excess.__getitem__), max(excess, key=excess.__getitem__)
            texts.append(
                f"On {group}, evidence adds least for {least} (median {excess[least]:+.3f}) and most for {most} "
                f"({excess[most]:+.3f})."
            )
    return " ".join(texts)


def _where(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    return [row for row in rows if all(row["choice"].get(name) == value for name, value in wanted.items())]
