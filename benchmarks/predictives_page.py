"""The page docs/predictives.md, from the rows of predictives.py: tables, and what they say, counted and not judged.

It computes means, medians and counts of what is in the rows and nothing else, and works on an unfinished run: rows that
are missing are listed, and a mean over fewer networks than the task's others says so and cannot be the best.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import mean, median, stdev
from typing import Any

from benchmarks.common import read_results, run_fold, template
from benchmarks.predictives_tasks import BEST, EVIDENCE, GAUSSIAN_SAMPLES, NOISE_TOO, TAU_ALONE, TUNED

from infoform.pages.markdown import bullets, folded, table
from infoform.pages.numbers import count_of
from infoform.pages.template import PageTemplate

COLUMNS = {
    ("linear", "mc"): "`linear`, link `mc`",
    ("linear", "probit"): "`linear`, link `probit`",
    ("linear", ""): "`linear`",
    ("mc", ""): "`mc`",
    ("linear-mc", ""): "`linear-mc`",
}
TUNINGS = {
    TUNED: "`tune(val_loader)`",
    BEST: "`tune(val_loader, standard_errors=0)`",
    TAU_ALONE: "`tune(val_loader)`, τ alone",
    EVIDENCE: "`tune()`, by evidence",
    NOISE_TOO: '`tune(noise="evidence")`',
}
DEVELOPMENT, CHECK = ("digits", "mnist", "uci"), ("resnet20", "resnet56")
SAME = 5e-4  # a smaller difference is none
CHOICES = ("task", "seed", "structure", "prior", "kind", "link", "tuning")
Row = dict[str, Any]
Pair = tuple[Row, Row]


@dataclass(frozen=True)
class About:
    """What a task was, as predictives.py keeps it beside the rows."""

    what: str
    networks: int
    samples: int
    examples: Mapping[str, int]
    expected: Sequence[Sequence[str]]  # structure, prior, kind, link, tuning

    @property
    def rows(self) -> int:
        return self.networks * (len(self.expected) + 2)


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
AUROC_MI = Measure("auroc_mi", "AUROC of the mutual information", False)
MEASURES = (NLL, ECE, AUROC, AUROC_MI)
BY_VALIDATION = {"tuning": TUNED}
COMPARED: dict[str, tuple[str, str, str, Mapping[str, str]]] = {  # which choice, its first, its second value, of rows
    "`standard_errors=0`": ("tuning", BEST, TUNED, {}),
    "τ alone": ("tuning", TAU_ALONE, TUNED, {}),
    "evidence": ("tuning", EVIDENCE, TUNED, {}),
    "activation prior": ("prior", "activation", "isotropic", BY_VALIDATION),
    "activation prior, of `inf`": ("prior", "activation", "isotropic", {**BY_VALIDATION, "structure": "inf"}),
    "`probit` link": ("link", "probit", "mc", BY_VALIDATION),
    "`probit` link, of the defaults": (
        "link",
        "probit",
        "mc",
        {**BY_VALIDATION, "structure": "inf", "prior": "activation"},
    ),
    "`mc`": ("kind", "mc", "linear", BY_VALIDATION),
    "`linear-mc`": ("kind", "linear-mc", "linear", BY_VALIDATION),
    "`diag`": ("structure", "diag", "inf", BY_VALIDATION),
    "`kfac`": ("structure", "kfac", "inf", BY_VALIDATION),
    "`kfac`, activation prior": ("structure", "kfac", "inf", {**BY_VALIDATION, "prior": "activation"}),
    "`efb-paper`": ("structure", "efb-paper", "inf", BY_VALIDATION),
    "`inf-paper`": ("structure", "inf-paper", "inf", BY_VALIDATION),
}
AGAINST = {TUNED: "`tune(val_loader)`"}


def page() -> str:
    """Return docs/predictives.md for the results, finished or not."""
    results = read_results("predictives")
    rows, text = results["rows"], template("predictives")
    abouts = {task: About(**settings) for task, settings in results["tasks"].items()}
    order = [task for group in (*DEVELOPMENT, *CHECK) for task in abouts if group_of(task) == group]
    expected = sum(about.rows for about in abouts.values())
    pairs = {name: _pairs(rows, *choice) for name, choice in COMPARED.items()}
    tuned = [pair for pair in against_temperature(rows) if pair[0]["choice"]["tuning"] == TUNED]
    checked = [pair for pair in tuned if group_of(pair[0]["choice"]["task"]) in CHECK]
    prior = pairs["activation prior"]
    return text.fill(
        state=None
        if len(rows) >= expected
        else f"**Not finished: {len(rows)} of {expected} rows.** What is missing is listed with every task.",
        prior_nll=_told(prior, NLL),
        prior_auroc=_told(prior, AUROC),
        prior_mi=_told(prior, AUROC_MI),
        resnets_nll=_told(checked, NLL),
        resnets_auroc=_told(checked, AUROC),
        default=_default(rows, order),
        summary=_summary(pairs),
        temperature=_temperature(rows),
        ends=_ends(rows),
        best_nll=_told(pairs["`standard_errors=0`"], NLL),
        best_auroc=_told(pairs["`standard_errors=0`"], AUROC),
        best_mi=_told(pairs["`standard_errors=0`"], AUROC_MI),
        same=f"{SAME:g}",
        tasks="\n\n".join(_task(text, task, abouts[task], rows) for task in order),
        others="\n\n".join(_other_tunings(task, rows) for task in order),
        draws=GAUSSIAN_SAMPLES,
        run=run_fold({"rows": len(rows)}, results["versions"]),
    )


def group_of(task: str) -> str:
    """Return the group of a task: its name, and "uci" for all sets of UCI."""
    return task.split("-")[0]


def _task(text: PageTemplate, task: str, about: About, rows: Sequence[Row]) -> str:
    own = [row for row in rows if row["choice"]["task"] == task]
    present = [one for one in MEASURES if any(one.key in row for row in own)]
    tables = [
        text.part("measure").fill(name=one.name, better=one.better, table=scores_table(own, one)) for one in present
    ]
    return text.part("task").fill(name=task, about=_about(about, own), tables="\n\n".join(tables))


def _other_tunings(task: str, rows: Sequence[Row]) -> str:
    """Return the tables of a task for all ways of tuning but the default, folded."""
    own = _where(rows, task=task)
    present = [one for one in (NLL, AUROC) if any(one.key in row for row in own)]
    tables = [
        f"**{one.name}**, by {name}\n\n{scores_table(own, one, tuning)}"
        for tuning, name in TUNINGS.items()
        for one in present
        if tuning != TUNED and _where(own, tuning=tuning)
    ]
    return folded(f"{task}, tuned in other ways", "\n\n".join(tables))


def scores_table(rows: Sequence[Row], measure: Measure, tuning: str = TUNED) -> str:
    """Return structure × prior by kind and link for the rows of one task."""
    cells: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for row in rows:
        choice = row["choice"]
        if measure.key in row and choice.get("tuning", tuning) == tuning:
            cells[tuple(choice[name] for name in CHOICES[2:6] if name in choice)].append(row[measure.key])
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

    columns = [column for column in COLUMNS if any(key[2:] == column for key in cells)]
    lines = [
        [name, "", *[cell((key,))] * len(columns)]
        for key, name in (("plain", "network alone"), ("temperature", "network alone, T or noise tuned"))
        if (key,) in cells
    ]
    for structure, prior in dict.fromkeys(key[:2] for key in cells if len(key) > 1):
        lines.append([structure, prior, *(cell((structure, prior, *column)) for column in columns)])
    return table(["structure", "prior", *(COLUMNS[column] for column in columns)], lines, words=2)


def show(value: float) -> str:
    if not math.isfinite(value):
        return "∞"
    return f"{value:.4f}" if abs(value) < 100 else f"{value:.2e}"


def _about(about: About, rows: Sequence[Row]) -> str:
    networks = len({row["choice"]["seed"] for row in rows})
    sizes = ", ".join(f"{count:,} {name}" for name, count in about.examples.items())
    text = (
        f"{about.what[0].upper()}{about.what[1:]}. {networks} of {about.networks} networks, "
        f"{len(rows)} of {about.rows} rows. Examples: {sizes}. {about.samples} sampled networks."
    )
    done = Counter(tuple(row["choice"][name] for name in CHOICES[2:]) for row in rows if "kind" in row["choice"])
    missing = [one for one in map(tuple, about.expected) if done[one] < about.networks]
    if missing:
        groups = dict.fromkeys(
            f"{structure} with the {prior} prior, `{kind}`" for structure, prior, kind, *_ in missing
        )
        text += " Not measured, at least in part:\n\n" + bullets(groups)
    return text


def paired(rows: Iterable[Row], name: str, first: str, second: str) -> list[Pair]:
    """Return rows that differ in one choice alone: those with `first` beside those with `second`."""
    known: dict[tuple[Any, ...], dict[str, Row]] = defaultdict(dict)
    for row in rows:
        choice = row["choice"]
        if name not in choice or (name == "kind" and choice["link"] == "probit"):
            continue  # a sampled network has no link, and stands beside `linear` with its default one
        same = [other for other in CHOICES if other != name and not (name == "kind" and other == "link")]
        known[tuple(choice[other] for other in same)][choice[name]] = row
    return [(both[first], both[second]) for both in known.values() if first in both and second in both]


def against_temperature(rows: Sequence[Row]) -> list[Pair]:
    """Return every tuned row beside its network's own best temperature, or noise."""
    alone = {_network(row): row for row in rows if row["choice"]["structure"] == "temperature"}
    return [(row, alone[_network(row)]) for row in rows if "kind" in row["choice"] and _network(row) in alone]


def _network(row: Row) -> tuple[str, int]:
    return row["choice"]["task"], row["choice"]["seed"]


def _pairs(rows: Iterable[Row], name: str, first: str, second: str, wanted: Mapping[str, str]) -> list[Pair]:
    return paired(_where(rows, **wanted), name, first, second)


def _values(pairs: Iterable[Pair], measure: Measure) -> list[tuple[float, float]]:
    return [(a[measure.key], b[measure.key]) for a, b in pairs if measure.key in a and measure.key in b]


def _told(pairs: Iterable[Pair], measure: Measure) -> str:
    """Say how often the first of two is better, and how often worse."""
    sign, values = 1 if measure.smaller else -1, _values(pairs, measure)
    better = sum(sign * (a - b) < -SAME for a, b in values)
    worse = sum(sign * (a - b) > SAME for a, b in values)
    return f"better in {better} and worse in {worse} of {len(values)}"


def _difference(pairs: Iterable[Pair], measure: Measure) -> str:
    """Say how often the first of two is better and worse, and the median difference; nothing if not measured."""
    values = _values(pairs, measure)
    finite = [a - b for a, b in values if math.isfinite(a) and math.isfinite(b)]
    if not values:
        return ""
    sign = 1 if measure.smaller else -1
    better, worse = (sum(side * sign * (a - b) > SAME for a, b in values) for side in (-1, 1))
    return f"{better} : {worse} of {len(values)}" + (f", {median(finite):+.4f}" if finite else "")


def _summary(compared: Mapping[str, Sequence[Pair]]) -> str:
    """Return a line for every comparison and group of tasks."""
    lines = []
    for name, pairs in compared.items():
        _, _, second, _ = COMPARED[name]
        for group in (*DEVELOPMENT, *CHECK):
            own = [pair for pair in pairs if group_of(pair[0]["choice"]["task"]) == group]
            if own:
                cells = [_difference(own, measure) for measure in MEASURES]
                lines.append([name, AGAINST.get(second, f"`{second}`"), group, *cells])
    return table(["choice", "against", "task", *(measure.name for measure in MEASURES)], lines, words=3)


def _temperature(rows: Sequence[Row]) -> str:
    """Compare every way of tuning with temperature scaling alone."""
    pairs, lines = against_temperature(rows), []
    for tuning, name in TUNINGS.items():
        for group in (*DEVELOPMENT, *CHECK):
            own = [
                (a, b) for a, b in pairs
                if a["choice"]["tuning"] == tuning and group_of(a["choice"]["task"]) == group
            ]  # fmt: skip
            if own:
                lines.append([name, group, *(_difference(own, measure) for measure in MEASURES[:3])])
    return table(["tuned by", "task", *(measure.name for measure in MEASURES[:3])], lines, words=2)


def _default(rows: Sequence[Row], order: Sequence[str]) -> str:
    """Return the library's defaults on every task, beside the network alone."""
    lines = []
    for task in order:
        own = _where(rows, task=task)
        regression = task.startswith("uci")
        default = {"structure": "inf", "prior": "isotropic" if regression else "activation", "kind": "linear",
                   "link": "" if regression else "mc"}  # fmt: skip
        named: list[tuple[str, Mapping[str, str]]] = [
            ("network alone", {"structure": "plain"}),
            (f"{'noise' if regression else 'temperature'} alone", {"structure": "temperature"}),
            *((TUNINGS[tuning], {**default, "tuning": tuning}) for tuning in (TUNED, BEST, TAU_ALONE, EVIDENCE)),
        ]
        for name, wanted in named:
            found = _where(own, **wanted)
            if found:
                cells = [
                    show(mean(row[one.key] for row in found)) if all(one.key in row for row in found) else ""
                    for one in MEASURES
                ]
                lines.append([task, name, *cells])
    return table(["task", "tuned by", *(measure.name for measure in MEASURES)], lines, words=2)


def _ends(rows: Sequence[Row]) -> str:
    """Say how often a search ended at an end of its range."""
    lines = []
    searched = [row for row in rows if "at" in row]
    last = {(*_network(row), *(row["choice"][name] for name in CHOICES[2:6])): row["trials"] - 1
            for row in searched if "trials" in row}  # fmt: skip
    for group, prior, tuning in product((*DEVELOPMENT, *CHECK), ("isotropic", "activation"), (TUNED, BEST, TAU_ALONE)):
        own = [
            (row["at"], last[(*_network(row), *(row["choice"][name] for name in CHOICES[2:6]))])
            for row in _where(searched, prior=prior, tuning=tuning)
            if group_of(row["choice"]["task"]) == group
        ]
        if own:
            low, high = count_of(at == 0 for at, _ in own), count_of(at == most for at, most in own)
            lines.append([group, prior, TUNINGS[tuning], low, high])
    return table(["task", "prior", "tuned by", "at the lower end", "at the upper end"], lines, words=3)


def _where(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    return [row for row in rows if all(row["choice"].get(name) == value for name, value in wanted.items())]
