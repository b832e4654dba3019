"""The page docs/mc-or-linear.md, from the results of mc_or_linear.py: it interpolates and counts, and runs nothing."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import mean, median, stdev
from typing import Any

from benchmarks.common import read_results, run_fold, template
from benchmarks.mc_or_linear_curves import (
    AT_TAU,
    NLL_BUDGETS,
    OWN,
    PAIR,
    SAME_NLL,
    SAME_TAU,
    Curve,
    Row,
    auroc_at,
    gaps,
    read_curves,
)

from infoform.pages.markdown import bullets, table
from infoform.pages.numbers import count_of

TRAINED_IMAGES = 10_000  # of MNIST, in small_lenet.py
MORE = 3  # times as many weight samples, once, to see what more of them do
GAUSSIAN_DRAWS = 200  # of logits, where their mean and covariance are known
Values = dict[str, object]  # of the template's names
WIDTHS = ("best", "wide")
BOTH = ("known", "unknown")
NAMES = {"digits": "digits", "mnist": "MNIST"}


def page() -> str:
    """Return docs/mc-or-linear.md; a task that was not run is left out."""
    results = read_results("mc_or_linear")
    curves = [curve for task in results.values() for curve in read_curves(task["rows"])]
    strict = [curve for curve in curves if curve.prior == "activation"]
    shown = [curve for curve in curves if curve.structure == "inf"]
    return template("mc_or_linear").fill(
        **_recommendation(curves, strict),
        **_claims(strict),
        **_free_directions(curves),
        budgets=budgets(strict),
        by_task=bullets(by_task(strict)),
        gaussian_draws=GAUSSIAN_DRAWS,
        logits=logits(shown),
        products=products(shown),
        layers=layers([curve for curve in shown if curve.prior == "activation"]),
        swaps=swaps(shown),
        tasks=bullets(about(name, task) for name, task in results.items()),
        more_samples=_more_samples(strict),
        run="\n\n".join(_run(name, task) for name, task in results.items()),
    )


def about(name: str, task: Mapping[str, Any]) -> str:
    plain = [row["kinds"]["plain"] for row in task["rows"] if row["structure"] == "plain"]
    what = {
        "digits": f"the demo's network, {len(plain)} seeds; unknown: digits with shuffled pixels",
        "mnist": f"a LeNet trained on {TRAINED_IMAGES:,} images; unknown: notMNIST",
    }
    scores = [show(one[score] for one in plain) for score in ("nll", "auroc")]
    return (
        f"**{NAMES[name]}**: {what[name]}; {task['settings']['samples']} weight samples; the trained network alone: "
        f"NLL {scores[0]}, AUROC {scores[1]}."
    )


def by_task(curves: Sequence[Curve]) -> Iterable[str]:
    for task in dict.fromkeys(curve.task for curve in curves):
        own = [curve for curve in curves if curve.task == task]
        said = [spread(gaps(own, condition)) for condition in (SAME_TAU, "same τ, wide", OWN, SAME_NLL)]
        times = geometric(curve.best("mc") / curve.best("linear-mc") for curve in own)
        yield (
            f"{NAMES[task]}, activation prior: AUROC of `mc` less that of `linear-mc` is {said[0]} at the same τ "
            f"({said[1]} at a wide one), {said[2]} with each kind at its own τ, {said[3]} at the same NLL of "
            f"known inputs. `mc`'s best τ is {times:.1f} times `linear-mc`'s."
        )


def _claims(curves: Sequence[Curve]) -> Values:
    looks = [(curve, width) for curve in curves for width in WIDTHS]
    variance, moved = "linear-mc, spread of mc", "linear-mc, mean of mc"
    gains = {
        kind: [curve.auroc(width, kind) - curve.auroc(width, "linear-mc") for curve, width in looks]
        for kind in ("apart", "gated", "mc", variance, moved, "mc, mean f", "mc, as a Gaussian")
    }
    beyond = {kind: [gain - whole for gain, whole in zip(gains[kind], gains["mc"], strict=True)] for kind in gains}
    ratio = {kind: [over_known(curve.at(width), kind) for curve, width in looks] for kind in PAIR}
    alike = geometric(a / b for a, b in zip(ratio["mc"], ratio["linear-mc"], strict=True))
    same_tau, same_nll = (gaps(curves, condition) for condition in (SAME_TAU, SAME_NLL))
    kept = {
        NAMES[task]: [mean(gaps([curve for curve in curves if curve.task == task], at)) for at in (SAME_TAU, SAME_NLL)]
        for task in dict.fromkeys(curve.task for curve in curves)
    }
    return {
        "wider": count_of(a > b for a, b in zip(same_tau, same_nll, strict=True)),
        "left": " and ".join(f"{after / before:.0%} on {name}" for name, (before, after) in kept.items()),
        "alike": f"{alike:.2f}",
        "gated_more": count_of(a > b for a, b in zip(gains["gated"], gains["apart"], strict=True)),
        "gated_gain": f"{median(gains['gated']):+.3f}",
        "apart_gain": f"{median(gains['apart']):+.3f}",
        "mc_gain": f"{median(gains['mc']):+.3f}",
        "variance_gain": f"{median(gains[variance]):+.3f}",
        "mean_gain": f"{median(gains[moved]):+.3f}",
        "variance_more": count_of(a > b for a, b in zip(gains[variance], gains[moved], strict=True)),
        "moved_back": ranged(beyond["mc, mean f"]),
        "as_gaussian": ranged(beyond["mc, as a Gaussian"]),
    }


def _free_directions(curves: Sequence[Curve]) -> Values:
    largest = max(map(abs, gaps([curve for curve in curves if curve.prior == "isotropic"], SAME_TAU)))
    said = {}
    measured = displaced(curves)
    for prior in ("activation", "isotropic"):
        last = [list(displacement(curve, "best", "known").values())[-1] for curve in measured if curve.prior == prior]
        said[prior] = [geometric(one[what] for one in last) for what in ("moved", "effect")]
    (moved, effect), (plain_moved, plain_effect) = said["activation"], said["isotropic"]
    return {
        "isotropic_gap": f"{largest:.3f}",
        "displaced": ", ".join(dict.fromkeys(NAMES[one.task] for one in measured)),
        "moved": f"{moved:.1%}",
        "effect": f"{effect:.2g}",
        "plain_moved": f"{plain_moved:.1%}",
        "plain_effect": f"{plain_effect:.2g}",
    }


def displaced(curves: Sequence[Curve]) -> list[Curve]:
    """Return the curves whose displacements were measured; a task that was not run again has none."""
    return [curve for curve in curves if all("displacement" in one for one in curve.widths.values())]


def displacement(curve: Curve, width: str, which: str) -> dict[str, Row]:
    found: dict[str, Row] = curve.widths[width]["displacement"][which]
    return found


def over_known(row: Row, kind: str) -> float:
    """Return the variance of unknown inputs' logits over that of known inputs'."""
    return float(row["unknown"][f"variance {kind}"] / row["known"][f"variance {kind}"])


def _recommendation(curves: Sequence[Curve], strict: Sequence[Curve]) -> Values:
    closed = "linear, link mc"
    linked = [curve for curve in curves if any(closed in row["kinds"] for row in curve.rows)]
    worst = {
        kind: geometric(curve.rows[0]["kinds"][kind]["nll"] / curve.least(kind) for curve in strict)
        for kind in ("mc", closed)
    }
    return {
        "ahead": ranged([auroc_at(curve, SAME_NLL, closed) - auroc_at(curve, SAME_NLL, "mc") for curve in linked]),
        "worst_linear": f"{worst[closed]:.1f}",
        "worst_mc": f"{worst['mc']:.1f}",
        "probit": count_of(curve.least(closed) < curve.least("linear") for curve in linked),
    }


def budgets(curves: Sequence[Curve]) -> str:
    kinds = ("linear", "linear, link mc", "linear-mc", "gated", "mc")
    lines = []
    for (task, structure, _), own in grouped(curves).items():
        where = (NAMES[task], f"`{structure}`")
        lines.append((*where, "*least NLL*", *(f"*{show(curve.least(kind) for curve in own)}*" for kind in kinds), ""))
        for condition in (*AT_TAU, *NLL_BUDGETS):
            cells = [show(auroc_at(curve, condition, kind) for curve in own) for kind in kinds]
            if condition in NLL_BUDGETS:
                limit = NLL_BUDGETS[condition]
                open_ended = (any(c.within_is_open(kind, limit(c, kind)) for c in own) for kind in kinds)
                cells = ["≥ " + cell if more else cell for cell, more in zip(cells, open_ended, strict=True)]
            lines.append((*where, condition, *cells, spread(gaps(own, condition))))
    heads = ("`linear`, probit", "`linear`, link mc", "`linear-mc`", "`gated`", "`mc`", "`mc` − `linear-mc`")
    return table(("task", "structure", "AUROC at", *heads), lines, words=3)


def logits(curves: Sequence[Curve]) -> str:
    columns: dict[str, tuple[Callable[[Row], float], str]] = {
        "variance, `linear-mc`": (lambda row: row["variance linear-mc"], ".3g"),
        "`gated`": (lambda row: row["variance gated"] / row["variance linear-mc"], ".2f"),
        "`mc`": (lambda row: row["variance mc"] / row["variance linear-mc"], ".2f"),
        "lead lost by `mc`": (lambda row: row["lead lost mc"] / row["lead"], ".1%"),
        "units flipped": (lambda row: row["flipped"], ".1%"),
    }
    lines = []
    for where, rows in by_width(curves):
        cells = [
            " / ".join(("×" if "`" in name[:1] else "") + show((of(row[one]) for row in rows), form) for one in BOTH)
            for name, (of, form) in columns.items()
        ]
        lines.append((*where, *cells))
    return table(("task", "prior", "τ", *columns), lines, words=3)


def products(curves: Sequence[Curve]) -> str:
    lines = []
    for (task, _, prior), own in grouped(displaced(curves)).items():
        for width in WIDTHS:
            cells = []
            for index in (-2, -1):
                for what, form in (("moved", ".3f"), ("effect", ".3f")):
                    found = {
                        one: [list(displacement(curve, width, one).values())[index][what] for curve in own]
                        for one in BOTH
                    }
                    cells.append(" / ".join(show(values, form) for values in found.values()))
            lines.append((NAMES[task], prior, width, *cells))
    heads = [f"{layer} layer: {what}" for layer in ("3rd", "last") for what in ("inputs moved", "effect")]
    return table(("task", "prior", "τ", *heads), lines, words=3)


def layers(curves: Sequence[Curve]) -> str:
    lines = []
    for (task, _, _), own in grouped(curves).items():
        for width in WIDTHS:
            single = [
                [curve.widths[width]["layers"][name] for curve in own]
                for name in own[0].widths[width]["layers"]
                if name != "apart"
            ]
            cells = [show((one["mc"]["auroc"] - one["linear-mc"]["auroc"] for one in ones), "+.3f") for ones in single]
            cells += [
                show((curve.auroc(width, kind) - curve.auroc(width, "linear-mc") for curve in own), "+.3f")
                for kind in ("apart", "gated", "mc")
            ]
            lines.append((NAMES[task], width, *cells))
    heads = (*(f"{name} layer alone" for name in ("1st", "2nd", "3rd", "last")), "`apart`", "`gated`", "`mc`")
    return table(("task", "τ", *heads), lines, words=2)


def swaps(curves: Sequence[Curve]) -> str:
    columns = {
        "linear-mc": "`linear-mc`",
        "linear-mc, mean of mc": "with `mc`'s mean",
        "linear-mc, spread of mc": "with `mc`'s variance",
        "gated": "`gated`",
        "gated, mean f": "with the trained mean",
        "mc": "`mc`",
        "mc, mean f": "with the trained mean",
    }
    lines = []
    for where, rows in by_width(curves):
        scores = [[show(row["kinds"][kind][score] for row in rows) for score in ("auroc", "nll")] for kind in columns]
        lines.append((*where, *(f"{auroc} ({nll})" for auroc, nll in scores)))
    return table(("task", "prior", "τ", *columns.values()), lines, words=3)


def _more_samples(curves: Sequence[Curve]) -> str:
    """Say what more weight samples do to the AUROC of both kinds."""
    more = []
    for (task, structure, _), own in grouped(curves).items():
        before = [show(curve.auroc("best", kind) for curve in own) for kind in PAIR]
        after = [show(curve.widths["best"]["more samples"][kind]["auroc"] for curve in own) for kind in PAIR]
        more.append(
            f"{NAMES[task]} with `{structure}`, from {before[0]} to {after[0]} and from {before[1]} to {after[1]}"
        )
    return "; on ".join(more)


def _run(name: str, task: Mapping[str, Any]) -> str:
    """Return the settings and versions of a task's run, folded."""
    measured = {key: value for key, value in task.items() if key not in ("rows", "settings", "versions")}
    return run_fold({"task": NAMES[name], **task["settings"], **measured}, task["versions"])


def grouped(curves: Iterable[Curve]) -> dict[tuple[str, str, str], list[Curve]]:
    groups: dict[tuple[str, str, str], list[Curve]] = defaultdict(list)
    for curve in curves:
        groups[curve.task, curve.structure, curve.prior].append(curve)
    return groups


def by_width(curves: Iterable[Curve]) -> Iterable[tuple[tuple[str, str, str], list[Row]]]:
    for (task, _, prior), own in grouped(curves).items():
        for width in WIDTHS:
            yield (NAMES[task], prior, width), [curve.at(width) for curve in own]


def geometric(values: Iterable[float]) -> float:
    return math.exp(mean(math.log(value) for value in values))


def ranged(values: Sequence[float]) -> str:
    return f"{median(values):+.3f} in the median ({min(values):+.3f} to {max(values):+.3f})"


def show(values: Iterable[float], form: str = ".3f") -> str:
    known = list(values)
    finite = [value for value in known if math.isfinite(value)]
    if not finite:
        return "–"
    return format(mean(finite), form) + (f" (of {len(finite)})" if len(finite) < len(known) else "")


def spread(values: Sequence[float]) -> str:
    return f"{mean(values):+.3f}" + (f" ± {stdev(values):.3f}" if len(values) > 1 else "")
