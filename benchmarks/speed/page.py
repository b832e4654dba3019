"""The page docs/speed.md, from the rows; works on an unfinished run."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from .charts import curves, draw_fits, draw_growth
from .growth import WIDTH_EXAMPLES
from .methods import METHODS, OURS
from .networks import Network
from .peers import PEERS
from .results import Results, Row
from .tables import find, number, ratio, sampled, seconds, size, table

ALL = METHODS | PEERS
FACTORS_ONLY = {"curvlinops KFAC", "nngeometry KFAC"}
KINDS = ("diag", "kfac", "efb", "inf", "inf-paper")
INTRODUCTION = """# Speed and memory

Made by `python -m benchmarks.speed --page` from `benchmarks/results/speed.json`; do not edit.

The unit is a **plain gradient pass**: forward and backward of the mean cross-entropy, for all weights, over the same
data in the same batches. One process measures everything; every run of every method is between two plain passes, rounds
go over all methods (but a method that has taken ten minutes is not repeated), and a ratio is the median time of a
method over the median of its own plain passes. Curvature is the Fisher with one Monte Carlo sample an example, for
linear and convolutional layers, which all libraries cover; normalisation layers, and attention's projections inside
torch's own encoder, are held fixed, though the plain pass computes their gradients too. Data are random but smooth, and
loaded beforehand. The networks that are trained briefly are sure of most examples, as trained networks are, so that few
examples count for bases ([why that is enough](math.md#examples-that-matter)); **inf of all** has every example count.
Those at their random start are sure of nothing, and every example counts.

**Fit** is up to the posterior, eigendecompositions included; for curvlinops and nngeometry, which have no posterior, it
is up to the Kronecker factors (KFAC) or the eigenbasis and its eigenvalues (EKFAC). **With a sample** adds the first
draw of all weights, which is when our KFAC finds the Cholesky factors of its two parts.

**Peaks** are in a process of its own for each method, which has run it on two batches before. The high-water mark of
resident memory is reset before each part (`/proc/self/clear_refs`), and its peak is what it takes above what was there
when it began: the fit above model and data, making the posterior above the fit's result, a first sample above the
posterior. The C library is told to give what is freed back at once (`MALLOC_MMAP_THRESHOLD_=65536`), so that a peak
is of memory in use; **resident** is the same where it keeps freed memory for later, as it does if not told otherwise.
**Statistics** are the fit's own running sums, at most at a time, as `infoform.plan` tells; what is beyond them is the
memory that the fit works in, and is told in peaks of a plain pass (to be at most 1.3).
"""


def write_page(results: Results, folder: Path, networks: Mapping[str, Network]) -> None:
    """Write speed.md and its pictures into the folder."""
    rows = results.rows
    parts = [INTRODUCTION, *_environment(results)]
    parts += ["## Fits\n"]
    if draw_fits(rows, networks, folder / "images" / "speed_fits.png"):
        parts += ["![Fit time by network and method](images/speed_fits.png)\n"]
    parts += _against_peers(rows, networks)
    for name, network in networks.items():
        parts += _fits(rows, name, network)
    parts += _peaks(rows, networks)
    parts += _posteriors(rows, networks)
    parts += _growth(rows, folder)
    parts += _calls()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "speed.md").write_text("\n".join(parts))


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
            f"{versions}. Given up beyond {run['settings']['memory']:g} GB or {run['settings']['seconds']:g} s.\n"
        )


def _against_peers(rows: Sequence[Row], networks: Mapping[str, Network]) -> Iterator[str]:
    """Compare like with like: the fastest peer that gives the same thing."""
    # our method, up to which of its parts, up to which of a peer's, and which peers
    comparisons = {
        "diag": ("diag", "posterior", "posterior", lambda method: ALL[method].structure == "diag"),
        "kfac, factors alone": ("kfac", "fit", "posterior", lambda method: method in FACTORS_ONLY),
        "kfac, with a sample": ("kfac", "sample", "sample", lambda method: method.startswith("laplace-torch kron")),
        "efb": ("efb", "posterior", "posterior", lambda method: ALL[method].structure == "efb"),
        "inf, beside any KFAC or EKFAC": (
            "inf", "posterior", "posterior", lambda method: ALL[method].structure in ("kfac", "efb"),
        ),
    }  # fmt: skip
    lines = []
    for name in networks:
        found = find(rows, "fits", name)
        cells = []
        for own, upto, theirs, fits in comparisons.values():
            ours = ratio(found[own], upto) if own in found else None
            peers = {one: ratio(row, theirs) for one, row in found.items() if one in PEERS and fits(one)}
            best = min((one for one in peers if peers[one] is not None), key=lambda one: peers[one], default=None)
            cells.append(f"{number(ours)} / {number(peers[best])} ({best})" if best else f"{number(ours)} / –")
        if found:
            lines.append([name, *cells])
    if lines:
        yield "Ours / the fastest peer that gives the same, in plain passes; less is better.\n"
        yield table(["network", *comparisons], lines) + "\n"


def _fits(rows: Sequence[Row], name: str, network: Network) -> Iterator[str]:
    found = find(rows, "fits", name)
    if not found:
        return
    plain = [time for row in found.values() for time in row.get("plain_seconds", [])]
    counts = sorted({(row["examples"], row["batch"]) for row in found.values() if "examples" in row})
    yield f"### {name}\n"
    data = " and ".join(f"{examples:,} examples in batches of {batch}" for examples, batch in counts)
    yield (
        f"{network.about[0].upper()}{network.about[1:]}; {data}. "
        f"A plain pass: {number(median(plain) if plain else None, ' s')}.\n"
    )
    lines, notes = [], []
    for method in sorted(found, key=lambda one: (KINDS.index(ALL[one].structure), one in PEERS)):
        row = found[method]
        if "skipped" in row:
            notes.append(f"* {method}: left out, {row['skipped']}.")
            continue
        notes += [f"* {method} failed: {row['failed']}"] if "failed" in row else []
        lines.append(
            [
                f"**{method}**" if method in OURS else method,
                number(ratio(row)),
                number(ratio(row, "fit")) if method in OURS else "",
                number(sampled(row)),
                number(seconds(row), " s"),
                "failed" if "failed" in row else len(row["seconds"].get("fit", [])),
            ]
        )
    head = [
        "method",
        "fit",
        "of that, `.fit()`",
        "with a sample",
        "time of the fit",
        "runs",
    ]
    yield table(head, lines) + "\n"
    if notes:
        yield "\n".join(notes) + "\n"


def _peaks(rows: Sequence[Row], networks: Mapping[str, Network]) -> Iterator[str]:
    """Write what each part takes, and what a fit takes beyond its statistics beside a plain pass."""
    yield "## Peak memory\n"
    for name in networks:
        found = find(rows, "peaks", name)
        base = found.get("plain", {}).get("peaks", {}).get("fit")
        if base is None:
            continue
        lines, notes = [], []
        for method in sorted(found.keys() - {"plain"}, key=lambda one: (KINDS.index(ALL[one].structure), one in PEERS)):
            row = found[method]
            notes += [f"* {method} failed: {row['failed']}"] if "failed" in row else []
            peaks, statistics = row.get("peaks", {}), row.get("statistics_bytes")
            beyond = None if statistics is None or "fit" not in peaks else peaks["fit"] - statistics
            lines.append(
                [
                    f"**{method}**" if method in OURS else method,
                    size(peaks.get("fit")),
                    size(statistics),
                    number(None if beyond is None else beyond / base),
                    size(peaks.get("posterior")),
                    size(peaks.get("sample")),
                    size((row.get("resident") or {}).get("fit")),
                ]
            )
        yield f"### {name}: peaks\n"
        resident = (found["plain"].get("resident") or {}).get("fit")
        examples = found["plain"]["examples"]
        yield f"{examples:,} examples; a plain pass takes {size(base)} ({size(resident)} resident).\n"
        head = [
            "method",
            "fit",
            "of that, statistics",
            "the rest, in plain passes",
            "posterior",
            "sample",
            "fit, resident",
        ]
        yield table(head, lines) + "\n"
        if notes:
            yield "\n".join(notes) + "\n"


def _posteriors(rows: Sequence[Row], networks: Mapping[str, Network]) -> Iterator[str]:
    yield "## Posteriors\n"
    yield (
        "Bytes stored; one sample of all weights, in samples of `diag`, and that of `diag` in a bare `torch.randn` of "
        "as many numbers times a vector; and another prior precision (`posterior(prior_precision=τ)`, `log_det()` and "
        "the first sample, less a second sample), in plain gradient passes over one batch.\n"
    )
    for name in networks:
        found = {method: row for method, row in find(rows, "posteriors", name).items() if "seconds" in row}
        if "diag" not in found:
            continue
        middle = {
            method: {part: median(times) for part, times in row["seconds"].items()} for method, row in found.items()
        }
        first = found["diag"]
        bare, gradient = median(first["randn_seconds"]), median(first["gradient_seconds"])
        yield f"### {name}, {first['weights']:,} weights\n"
        yield (
            f"A sample of `diag` takes {number(middle['diag']['sample'] / bare)} bare draws ({1000 * bare:.1f} ms); a "
            f"gradient pass over {first['gradient_examples']} examples takes {1000 * gradient:.0f} ms.\n"
        )
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
        yield (
            table(["structure", "stored", "with bfloat16", "sample, in diag's", "another τ, in gradient passes"], lines)
            + "\n"
        )


def _growth(rows: Sequence[Row], folder: Path) -> Iterator[str]:
    if not draw_growth(rows, folder / "images" / "speed_growth.png"):
        return
    yield "## Growth\n"
    yield "![Fit time against examples and against width](images/speed_growth.png)\n"
    yield (
        f"Seconds of a fit up to the posterior: of the MLP on more examples, and of one square linear layer on "
        f"{WIDTH_EXAMPLES} examples, beside a full `torch.linalg.eigh` of that width. The last column is the exponent "
        "between the last two sizes: 1 is proportional.\n"
    )
    for stage in ("examples", "width"):
        found = curves(rows, stage)
        sizes = sorted({x for points in found.values() for x, _ in points})
        lines = []
        for method, points in found.items():
            at = dict(points)
            lines.append([method, *(number(at.get(one)) for one in sizes), _exponent(points)])
        yield table([stage, *(f"{one:,}" for one in sizes), "exponent"], lines) + "\n"


def _exponent(points: Sequence[tuple[int, float]]) -> str:
    if len(points) < 2:
        return "–"
    (x0, y0), (x1, y1) = points[-2:]
    return f"{math.log(y1 / y0) / math.log(x1 / x0):.2f}"


def _calls() -> Iterator[Any]:
    yield "## How each was called\n"
    yield (
        "Each peer gets a copy of the model in which only linear and convolutional layers require gradients, and the "
        "same batches. `params` and `layers` below are those layers. laplace-torch's backends differ: its default, "
        "curvlinops, has no fast diagonal, so that one is measured with the two that have.\n"
    )
    yield table(["method", "call"], [[name, method.call] for name, method in ALL.items()]).replace("---:", "---") + "\n"
    yield (
        "The peers live in an environment of their own, with infoform: `pip install -c constraints.txt torch`, "
        "`pip install -c constraints.txt -e '.[peers]'`, and then `pip uninstall torchvision`, which laplace-torch and "
        "nngeometry list but nothing here imports: where it is built for another torch than the one installed, "
        "torchmetrics, and so laplace-torch, fails to import.\n"
    )
