"""The page of the public ResNets: tables from the JSON of the run, beside what others published."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from infoform.experiments.method import Method
from infoform.experiments.public_resnets.joined import WEIGHTS
from infoform.experiments.public_resnets.pictures import SVHN
from infoform.experiments.public_resnets.published import AIMS, PUBLISHED
from infoform.experiments.public_resnets.settings import (
    CURVE,
    FULL_METHODS,
    JOINED,
    LAST_LAYER,
    LAST_STAGE,
    NOVEL,
    PLAIN,
    TEMPERATURE,
)
from infoform.pages.markdown import table
from infoform.pages.template import PageTemplate
from infoform.records.study_result import Result

Row = dict[str, Any]
TEMPLATE = PageTemplate.beside(__file__)
NAMES = {
    PLAIN: "network alone",
    TEMPERATURE: "temperature scaling",
    "swag": "SWAG",
    "laplace-torch-last": "laplace-torch, last layer",
    "laplace-torch-all": "laplace-torch, all layers, sampled",
}
STRUCTURES = {LAST_LAYER: "last layer", LAST_STAGE: "last stage", "inf": "all layers"}
KINDS = {"linear": "", "mc": ", sampled"}


def page(result: Result) -> str:
    """Return the page's body."""
    networks = collect(result)
    sections = [_section(depth, rows, result) for depth, rows in networks.items()]
    settings = result.settings
    main = TEMPLATE.fill(
        verdict=_verdict(networks),
        pictures=_summary(networks),
        advice=_advice(networks),
        novelty_by_network=" and ".join(
            f"its AUROC is {_auroc(rows[NOVEL], 'novelty'):.3f} on ResNet-{depth}, where the entropy of temperature "
            f"scaling has {_auroc(rows[TEMPERATURE], 'entropy'):.3f}"
            for depth, rows in networks.items()
        ),
        aims=table(["", "asked", "found", ""], _aims(networks)),
    )
    rest = TEMPLATE.part("rest").fill(
        curvature=f"{settings['curvature']:,}",
        curvature_all=f"{settings['curvature_all']:,}",
        samples=settings["samples"],
        slow=f"{settings['unknown_slow']:,}",
        missing=_missing(result),
        svhn=f"{max(sum(rows[NOVEL]['histograms']['entropy'][SVHN]) for rows in networks.values()):,}",
    )
    return "\n\n".join([main, *sections, rest])


def collect(result: Result) -> dict[int, dict[str, Row]]:
    """Return the rows of each network by the method's key."""
    found: dict[int, dict[str, Row]] = {}
    for key, piece in result.pieces.items():
        method = Method.parse(key)
        assert method.network is not None
        found.setdefault(method.network, {})[method.of_any_network.key] = piece
    return dict(sorted(found.items()))


def title(key: str) -> str:
    """Return how tables call a method."""
    method = Method.parse(key)
    if not method.is_laplace:
        return NAMES.get(method.name, method.name)
    how = f"{method.prior} prior{KINDS[str(method.kind)]}" + (", evidence" if method.tuning == "evidence" else "")
    if method.name in STRUCTURES:
        return f"infoform: {STRUCTURES[method.name]}, {how}"
    return f"`{method.name}`, {how}"


def is_ours(key: str) -> bool:
    """Return whether a row is a posterior of ours, and no structure of the paper."""
    return Method.parse(key).name in STRUCTURES


def best_of_ours(rows: Mapping[str, Row]) -> str:
    """Return our row that did best on the pictures that tuned it, which say nothing of those that it is scored on."""

    def tuned(key: str) -> float:
        found = [one["nll"] for one in rows[key]["tuned"]]
        return float(sum(found) / len(found))

    own = [key for key in rows if is_ours(key) and Method.parse(key).tuning == "validation"]
    return min(own, key=tuned)


def _verdict(networks: Mapping[int, Mapping[str, Row]]) -> str:
    lines = []
    for depth, rows in networks.items():
        key = best_of_ours(rows)
        row, low_high = rows[key], rows[key]["nll_to_temperature"]
        lines.append(
            f"On ResNet-{depth}, {title(key).removeprefix('infoform: ')}, has an NLL of **{row['nll']:.4f}** where "
            f"temperature scaling has {rows[TEMPERATURE]['nll']:.4f} (difference {_difference(low_high)}) and the "
            f"network alone {rows[PLAIN]['nll']:.4f}; novelty tells SVHN from known pictures with an AUROC of "
            f"**{_auroc(rows[NOVEL], 'novelty'):.3f}**."
        )
    return "\n".join(lines)


def _summary(networks: Mapping[int, Mapping[str, Row]]) -> str:
    cells = []
    for depth, rows in networks.items():
        best = best_of_ours(rows)
        for key in dict.fromkeys((PLAIN, TEMPERATURE, NOVEL, best)):
            row = rows[key]
            novelty = f"{_auroc(row, 'novelty'):.3f}" if _has(row, "novelty") else "–"
            cells.append([f"ResNet-{depth}", title(key), *_numbers(row), f"{_auroc(row, 'entropy'):.3f}", novelty])
        cells += [
            [f"ResNet-{depth}", one.title, *_numbers(asdict(one)), f"{one.auroc:.3f}", "–"] for one in PUBLISHED[depth]
        ]
    return table(["", "", "accuracy", "NLL", "ECE", "AUROC, entropy", "AUROC, novelty"], cells)


def _advice(networks: Mapping[int, Mapping[str, Row]]) -> str:
    parts = []
    for depth, rows in networks.items():
        best = best_of_ours(rows)
        mean, low, high = rows[best]["nll_to_temperature"]
        gained = "gains" if high < 0 else "loses" if low > 0 else "is not told from it by these pictures, and gains"
        parts.append(f"beside temperature scaling {title(best)} {gained} {abs(mean):.4f} nats on ResNet-{depth}")
    return "; ".join(parts) + "."


def _aims(networks: Mapping[int, Mapping[str, Row]]) -> list[list[str]]:
    lines = []
    for depth, rows in networks.items():
        aims, name = AIMS[depth], f"ResNet-{depth}"
        best = rows[best_of_ours(rows)]
        lines.append(_aim(f"{name}: NLL", aims.nll, best["nll"], most=True))
        if aims.ece is not None:
            lines.append(_aim(f"{name}: ECE", aims.ece, best["ece"], most=True))
        if aims.entropy is not None:
            lines.append(_aim(f"{name}: AUROC on SVHN by entropy", aims.entropy, _auroc(best, "entropy"), most=False))
        lines.append(
            _aim(f"{name}: AUROC on SVHN by novelty", aims.novelty, _auroc(rows[NOVEL], "novelty"), most=False)
        )
        rivals = {title(key): row["nll"] for key, row in rows.items() if "nll" in row and not is_ours(key)}
        rivals |= {one.title: one.nll for one in PUBLISHED[depth]}
        lines += [
            [f"{name}: NLL ahead of {rival}", f"< {nll:.4f}", f"{best['nll']:.4f}", _met(best["nll"] < nll)]
            for rival, nll in rivals.items()
        ]
    return lines


def _aim(what: str, asked: float, found: float, *, most: bool) -> list[str]:
    reached = found <= asked if most else found >= asked
    return [what, f"{'at most' if most else 'at least'} {asked:g}", f"{found:.4f}", _met(reached)]


def _met(reached: bool) -> str:
    return "reached" if reached else "missed"


def _section(depth: int, rows: Mapping[str, Row], result: Result) -> str:
    cells = [_line(key, row) for key, row in rows.items() if "nll" in row]
    for one in PUBLISHED[depth]:
        spent = "–" if one.seconds is None else f"{one.seconds / 60:.0f}, theirs"
        accuracy, nll, ece = _numbers(asdict(one))
        cells.append([one.title, accuracy, nll, "–", ece, f"{one.auroc:.3f}", "–", spent, "–"])
    header = ["", "accuracy", "NLL", "to temperature", "ECE", "entropy", "novelty", "minutes", "chosen"]
    novel, cooled = rows[NOVEL], rows[TEMPERATURE]
    unknown = [
        [name, *map(_with_interval, (signs["novelty"], signs["entropy"], cooled["apart"][name]["entropy"]))]
        for name, signs in novel["apart"].items()
    ]
    return TEMPLATE.part("network").fill(
        depth=depth,
        table=table(header, cells),
        false_alarms=f"{novel['false_alarms']:.1%}",
        unknown=table(["", "novelty", "entropy", "entropy, temperature scaling"], unknown),
        curve=_curve(rows[CURVE]) if CURVE in rows else None,
        joined=_joined(rows[JOINED]) if JOINED in rows else None,
    )


def _line(key: str, row: Row) -> list[str]:
    seconds = row["cpu_seconds"]
    spent = f"{(seconds.get('fit', 0) + seconds.get('tune', 0)) / 60:.1f}" if "fit" in seconds else "–"
    told = [one for one in row["tuned"] if "temperature" in one]
    chosen = ", ".join(
        (f"τ {one['prior_precision']:.2g}, " if "prior_precision" in one else "") + f"T {one['temperature']:.2f}"
        for one in told
    )
    return [
        title(key),
        f"{row['accuracy']:.4f}",
        f"{row['nll']:.4f} ({_range(row['nll_interval'])})",
        _difference(row["nll_to_temperature"]) if "nll_to_temperature" in row and key != TEMPERATURE else "–",
        f"{row['ece']:.4f} ({row['ece_if_calibrated']:.4f})",
        f"{_auroc(row, 'entropy'):.3f}",
        f"{_auroc(row, 'novelty'):.3f}" if _has(row, "novelty") else "–",
        spent,
        chosen or "–",
    ]


def _curve(piece: Row) -> str:
    lines = [[f"{int(count):,}", f"{one['nll']:.4f}", f"{one['fit_cpu_seconds']:.0f}"]
             for count, one in piece["curve"].items()]  # fmt: skip
    text = table(["training pictures", "NLL", "seconds of the fit, one core"], lines)
    return (
        "NLL over the number of training pictures that the curvature of the last stage is measured on. It is of the "
        f"{piece['pictures']:,} test pictures that tune first, one half tuned on the other; seconds are 0 where the "
        f"fit was there.\n\n{text}"
    )


def _joined(piece: Row) -> str:
    lines = []
    for key, sets in piece["joined"].items():
        for name, told in sets.items():
            more = [_difference(told[f"{weight:g}"], 3) for weight in WEIGHTS]
            lines.append([title(key).removeprefix("infoform: "), name, f"{told['novelty']:.3f}", *more])
    weights = [f"with weight {weight:g}" for weight in WEIGHTS]
    return (
        "The variance of the logits as one more part of novelty: the mutual information's p-value, joined by Fisher's "
        "rule with a weight. Differences of AUROC to novelty alone, with the interval of a paired bootstrap.\n\n"
        + table(["", "", "novelty", *weights], lines)
    )


def _missing(result: Result) -> str | None:
    """Return which methods this run lacks."""
    missing = sorted({Method.parse(key).of_any_network.key for key in FULL_METHODS if key not in result.pieces})
    if not missing:
        return None
    return "Not run on both networks, for want of time (`--full` does it): " + "; ".join(map(title, missing)) + "."


def _numbers(row: Row) -> list[str]:
    return [f"{row[name]:.4f}" for name in ("accuracy", "nll", "ece")]


def _auroc(row: Row, sign: str) -> float:
    return float(row["apart"][SVHN][sign]["auroc"])


def _with_interval(told: Mapping[str, Any]) -> str:
    return f"{told['auroc']:.3f} ({_range(told['auroc_interval'])})"


def _has(row: Row, sign: str) -> bool:
    return sign in row["apart"][SVHN]


def _difference(told: Sequence[float], digits: int = 4) -> str:
    mean, low, high = (f"{one:+.{digits}f}" for one in told)
    return f"{mean} ({low} to {high})"


def _range(interval: Sequence[float]) -> str:
    low, high = interval
    digits = 3
    return f"{low:.{digits}f}–{high:.{digits}f}"
