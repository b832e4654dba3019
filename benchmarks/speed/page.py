"""The page docs/speed.md, from the rows; works on an unfinished run."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

from infoform.pages.markdown import bullets, folded, table
from infoform.pages.numbers import number, size, span
from infoform.pages.template import PageTemplate

from ..common import RESULTS, template
from .charts import (
    OUR_DIAGONAL,
    OUR_INF,
    PEER_DIAGONAL,
    PEER_KRONECKER,
    curves,
    draw_answer,
    draw_fits,
    draw_growth,
)
from .growth import WIDTH_EXAMPLES
from .methods import METHODS, OURS
from .networks import FULL, Network
from .peers import PEERS
from .results import Results, Row
from .tables import find, ratio, sampled, seconds

ALL = METHODS | PEERS
FACTORS_ONLY = {"curvlinops KFAC", "nngeometry KFAC"}
KINDS = ("diag", "kfac", "efb", "inf", "inf-paper")
REST_TARGET = 1.3  # peaks of a plain pass that a fit works in, at most
Networks = Mapping[str, Network]


def write_page(results: Results, folder: Path, networks: Networks) -> None:
    """Write speed.md and its pictures into the folder."""
    images = folder / "images"
    draw_answer({name: pair(results.rows, name) for name in networks}, images / "speed_answer.png")
    draw_fits(results.rows, networks, images / "speed_fits.png")
    draw_growth(results.rows, images / "speed_growth.png")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "speed.md").write_text(page_text(results, networks) + "\n", encoding="utf-8")


def page() -> str:
    """Return docs/speed.md, from the committed rows."""
    return page_text(Results(RESULTS / "speed.json"), FULL)


def page_text(results: Results, networks: Networks) -> str:
    rows, text = results.rows, template("speed")
    fits = [row for row in rows if row["stage"] == "fits" and ratio(row) is not None]
    growth = {stage: curves(rows, stage) for stage in ("examples", "width")}
    return text.fill(
        **_spans(rows, networks),
        answer_picture="speed_answer.png" if fits else None,
        fits_picture="speed_fits.png" if fits else None,
        growth_picture="speed_growth.png" if any(growth.values()) else None,
        against=_against_peers(rows, networks),
        fits=_sections(_fits(text, rows, name, network) for name, network in networks.items()),
        peaks=_sections(_peaks(text, rows, name) for name in networks),
        posteriors=_sections(_posteriors(text, rows, name) for name in networks),
        growth=_sections(_growth(stage, found) for stage, found in growth.items()),
        width_examples=WIDTH_EXAMPLES,
        rest_target=REST_TARGET,
        called=folded("How each method was called", text.part("called").fill(table=_calls())),
        runs=folded("Runs, versions and machine", bullets(_environment(results))),
    )


def _sections(parts: Iterable[str | None]) -> str | None:
    return "\n\n".join(part for part in parts if part is not None) or None


def _spans(rows: Sequence[Row], networks: Networks) -> dict[str, object]:
    """Return the ranges over networks of what readers ask for first; None where it was not measured."""
    pairs = [pair(rows, name) for name in networks]

    def over(method: str, stage: str, value: Callable[[Row], float | None]) -> list[float]:
        found = (find(rows, stage, name).get(method) for name in networks)
        values = (value(row) for row in found if row is not None)
        return [one for one in values if one is not None]

    def rest(row: Row) -> float | None:
        base = find(rows, "peaks", row["network"])["plain"].get("peaks", {}).get("fit")
        beyond = _beyond(row)
        return None if base is None or beyond is None else beyond / base

    def sample(row: Row) -> float | None:
        diag = find(rows, "posteriors", row["network"]).get("diag", {})
        if "seconds" not in row or "seconds" not in diag:
            return None
        return float(median(row["seconds"]["sample"]) / median(diag["seconds"]["sample"]))

    def prepare(row: Row) -> float | None:
        if "seconds" not in row:
            return None
        return float(median(row["seconds"]["prepare"]) / median(row["gradient_seconds"]))

    values = {
        "inf_span": over("inf", "fits", ratio),
        "diag_span": over("diag", "fits", ratio),
        "peer_span": [
            one["fastest KFAC or EKFAC of a peer"] for one in pairs if "fastest KFAC or EKFAC of a peer" in one
        ],
        "rest_span": over("inf", "peaks", rest),
        "sample_span": over("inf", "posteriors", sample),
        "prepare_span": over("inf", "posteriors", prepare),
    }
    return {name: span(found, ".1f") if found else None for name, found in values.items()}


def pair(rows: Sequence[Row], name: str) -> dict[str, float]:
    """Return how many plain passes ours and the fastest peers take on a network, up to the posterior."""
    found = find(rows, "fits", name)
    ratios = {
        OUR_DIAGONAL: _ratio_of(found, "diag"),
        PEER_DIAGONAL: _fastest(found, "posterior", lambda one: ALL[one].structure == "diag")[1],
        OUR_INF: _ratio_of(found, "inf"),
        PEER_KRONECKER: _fastest(found, "posterior", _is_kronecker)[1],
    }
    return {label: value for label, value in ratios.items() if value is not None}


def _is_kronecker(method: str) -> bool:
    return ALL[method].structure in ("kfac", "efb")


def _ratio_of(found: Mapping[str, Row], method: str, upto: str = "posterior") -> float | None:
    return ratio(found[method], upto) if method in found else None


def _fastest(found: Mapping[str, Row], upto: str, fits: Callable[[str], bool]) -> tuple[str | None, float | None]:
    """Return the fastest of the peers that give the same thing."""
    peers = {one: took for one, row in found.items() if one in PEERS and fits(one) and (took := ratio(row, upto))}
    best = min(peers, key=lambda one: peers[one], default=None)
    return best, None if best is None else peers[best]


def _environment(results: Results) -> Iterator[str]:
    for run in results.runs:
        where = run["environment"]
        versions = ", ".join(f"{name} {version or '(not installed)'}" for name, version in where["versions"].items())
        changed = " with uncommitted changes" if where["changed_since"] else ""
        count = sum(row["run"] == run["run"] for row in results.rows)
        yield (
            f"Run {run['run']} ({count} rows): {where['date']}, commit {where['commit']}{changed}; {where['cpus']} × "
            f"{where['cpu'] or where['machine']}, {where['threads']} threads, {where['memory_gigabytes']} GB, load at "
            f"the start {where['load']}, OMP_WAIT_POLICY={where['omp_wait_policy']}; Python {where['python']}, "
            f"{versions}. Given up beyond {run['settings']['memory']:g} GB or {run['settings']['seconds']:g} s."
        )


def _against_peers(rows: Sequence[Row], networks: Networks) -> str | None:
    """Compare like with like: the fastest peer that gives the same thing."""
    # our method, up to which of its parts, up to which of a peer's, and which peers
    comparisons: dict[str, tuple[str, str, str, Callable[[str], bool]]] = {
        "diag": ("diag", "posterior", "posterior", lambda method: ALL[method].structure == "diag"),
        "kfac, factors alone": ("kfac", "fit", "posterior", lambda method: method in FACTORS_ONLY),
        "kfac, with a sample": ("kfac", "sample", "sample", lambda method: method.startswith("laplace-torch kron")),
        "efb": ("efb", "posterior", "posterior", lambda method: ALL[method].structure == "efb"),
        "inf, beside any KFAC or EKFAC": ("inf", "posterior", "posterior", _is_kronecker),
    }
    lines = []
    for name in networks:
        found = find(rows, "fits", name)
        cells = []
        for own, upto, theirs, fits in comparisons.values():
            ours = _ratio_of(found, own, upto)
            best, took = _fastest(found, theirs, fits)
            cells.append(f"{number(ours)} / {number(took)}" + (f" ({best})" if best else ""))
        if found:
            lines.append([name, *cells])
    return table(["network", *comparisons], lines) if lines else None


def _ordered(methods: Iterable[str]) -> list[str]:
    return sorted(methods, key=lambda one: (KINDS.index(ALL[one].structure), one in PEERS))


def _name(method: str) -> str:
    return f"**{method}**" if method in OURS else method


def _failures(found: Mapping[str, Row], methods: Iterable[str]) -> str | None:
    """Say which methods failed or were left out."""
    notes = [f"{method} failed: {found[method]['failed']}" for method in methods if "failed" in found[method]]
    notes += [f"{method}: left out, {found[method]['skipped']}." for method in methods if "skipped" in found[method]]
    return bullets(notes) or None


def _fits(text: PageTemplate, rows: Sequence[Row], name: str, network: Network) -> str | None:
    found = find(rows, "fits", name)
    if not found:
        return None
    plain = [time for row in found.values() for time in row.get("plain_seconds", [])]
    counts = sorted({(row["examples"], row["batch"]) for row in found.values() if "examples" in row})
    methods = _ordered(found)
    lines = [
        [
            _name(method),
            number(ratio(row)),
            number(ratio(row, "fit")) if method in OURS else "",
            number(sampled(row)),
            number(seconds(row), " s"),
            "failed" if "failed" in row else str(len(row["seconds"].get("fit", []))),
        ]
        for method in methods
        if "skipped" not in (row := found[method])
    ]
    head = ["method", "fit", "of that, `.fit()`", "with a sample", "time of the fit", "runs"]
    return text.part("network").fill(
        name=name,
        about=f"{network.about[0].upper()}{network.about[1:]}",
        data=" and ".join(f"{examples:,} examples in batches of {batch}" for examples, batch in counts),
        plain=number(median(plain) if plain else None, " s"),
        table=table(head, lines),
        notes=_failures(found, methods),
    )


def _beyond(row: Row) -> float | None:
    """Return what the peak of a fit takes beyond its statistics."""
    peak, statistics = row.get("peaks", {}).get("fit"), row.get("statistics_bytes")
    return None if peak is None or statistics is None else float(peak - statistics)


def _peaks(text: PageTemplate, rows: Sequence[Row], name: str) -> str | None:
    """Return what each part takes, and what a fit takes beyond its statistics beside a plain pass."""
    found = find(rows, "peaks", name)
    base = found.get("plain", {}).get("peaks", {}).get("fit")
    if base is None:
        return None
    methods = _ordered(method for method in found if method != "plain")
    lines = []
    for method in methods:
        row = found[method]
        peaks, beyond = row.get("peaks", {}), _beyond(row)
        sizes = [peaks.get("posterior"), peaks.get("sample"), (row.get("resident") or {}).get("fit")]
        rest = number(None if beyond is None else beyond / base)
        lines.append(
            [_name(method), size(peaks.get("fit")), size(row.get("statistics_bytes")), rest, *map(size, sizes)]
        )
    head = ["method", "fit", "of that, statistics", "the rest, in plain passes", "posterior", "sample", "fit, resident"]
    return text.part("peaks").fill(
        name=name,
        examples=f"{found['plain']['examples']:,}",
        base=size(base),
        resident=size((found["plain"].get("resident") or {}).get("fit")),
        table=table(head, lines),
        notes=_failures(found, methods),
    )


def _posteriors(text: PageTemplate, rows: Sequence[Row], name: str) -> str | None:
    found = {method: row for method, row in find(rows, "posteriors", name).items() if "seconds" in row}
    if "diag" not in found:
        return None
    middle = {method: {part: median(times) for part, times in row["seconds"].items()} for method, row in found.items()}
    first = found["diag"]
    bare, gradient = median(first["randn_seconds"]), median(first["gradient_seconds"])
    lines = [
        [
            method,
            size(row["bytes"]),
            size(row.get("bfloat16_bytes")),
            number(middle[method]["sample"] / middle["diag"]["sample"]),
            number(middle[method]["prepare"] / median(row["gradient_seconds"])),
        ]
        for method, row in found.items()
    ]
    head = ["structure", "stored", "with bfloat16", "sample, in diag's", "another τ, in gradient passes"]
    return text.part("posteriors").fill(
        name=name,
        weights=f"{first['weights']:,}",
        draws=number(middle["diag"]["sample"] / bare),
        bare=f"{1000 * bare:.1f}",
        examples=first["gradient_examples"],
        gradient=f"{1000 * gradient:.0f}",
        table=table(head, lines),
    )


def _growth(stage: str, found: Mapping[str, Sequence[tuple[int, float]]]) -> str | None:
    sizes = sorted({x for points in found.values() for x, _ in points})
    lines = [
        [method, *(number(dict(points).get(one)) for one in sizes), _exponent(points)]
        for method, points in found.items()
    ]
    return table([stage, *(f"{one:,}" for one in sizes), "exponent"], lines) if lines else None


def _exponent(points: Sequence[tuple[int, float]]) -> str:
    if len(points) < 2:
        return "–"
    (x0, y0), (x1, y1) = points[-2:]
    return f"{math.log(y1 / y0) / math.log(x1 / x0):.2f}"


def _calls() -> str:
    return table(["method", "call"], [[name, method.call] for name, method in ALL.items()], words=2)
