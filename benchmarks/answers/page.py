"""The page docs/answers.md, from benchmarks/results/answers.json; measures nothing."""

from collections.abc import Mapping
from typing import Any

from benchmarks.answers.cases import FULL
from benchmarks.common import read_results, run_fold, template

from infoform.pages.markdown import table
from infoform.pages.numbers import UNKNOWN, number, span

WAYS = {  # row of the results -> row of the table
    "temperature": "temperature scaling",
    "last": '`layers="last"`',
    "linear": "`linear`, all layers",
    "mc20": "`mc`, 20 networks",
    "mc100": "`mc`, 100 networks",
    "linear-mc": "`linear-mc`, one sample",
    "peer last": "laplace-torch, last layer",
    "peer all": "laplace-torch, all layers",
}
KINDS = {
    "temperature": "temperature scaling",
    "last": 'last layer, `"linear"`',
    "linear": '`"linear"`',
    "mc": '`"mc"`',
    "linear-mc": '`"linear-mc"`',
}
METHODS = {
    "plain": "network alone",
    "temperature": "temperature alone",
    "last tau": "last layer, τ",
    "last tau+T": "last layer, τ and T",
    "all tau": "all layers, τ",
    "all tau+T": "all layers, τ and T: `tune(val_loader)`",
    "peer last": "laplace-torch, last layer",
}
PER_SAMPLE = 20  # of the row `linear-mc`: the time of so many is measured
_EVERY = ("mlp", "lenet", "resnet20", "resnet56")
AIMS: dict[str, dict[str, float]] = {  # of batches, in plain forward passes: way -> network -> at most
    "last": {"resnet20": 1.3, "resnet50": 1.3},
    "linear": {"mlp": 30, "lenet": 20, "resnet20": 30, "resnet56": 30},
    "linear-mc": dict.fromkeys(_EVERY, 3),
}
TUNE_AIM = 3  # in predictions
WORK = ("predict", "tune")  # whose memory is measured
Found = Mapping[str, Any]


def page() -> str:
    """Return docs/answers.md."""
    found = read_results("answers")
    latency, tune, settings = found["latency"], found.get("tune", {}), found["settings"]
    quality: Found = found.get("quality", {})
    environment = {name: value for name, value in found["environment"].items() if name != "versions"}
    commits = sorted(set(found["row_commits"].values()))
    tuned = _tuned(tune)
    return template("answers").fill(
        last_span=_span(latency, "last", batches=True),
        linear_span=_span(latency, "linear", batches=True),
        tune_span=span([row["now"]["predictions"] for row in tuned], ".1f") if tuned else None,
        tune_before=span([row["before"]["predictions"] for row in tuned], ".0f") if tuned else None,
        batches="\n\n".join(f"**{FULL[name].title}**\n\n{_latency(latency[name])}" for name in FULL if name in latency),
        per_sample=PER_SAMPLE,
        tune=f"**`tune(val_loader)`, in predictions of the same data and kind**\n\n{_tune(tune)}" if tune else None,
        memory=_memory(found["memory"]["rows"]) if "memory" in found else None,
        memory_command="python -m benchmarks.answers.memory" if "memory" in found else None,
        before_inputs=settings["before_inputs"] if tune else None,
        before_samples=settings["before_samples"],
        quality="\n\n".join(_scored(name, quality[name]) for name in FULL if name in quality) or None,
        gain=_gain(quality) or None,
        scored=f"{settings['scored']:,}" if quality else None,
        validation=f"{settings['validation']:,}",
        curvature=f"{settings['curvature']:,}",
        unknown=f"{settings['unknown']:,}",
        missed=_missed(latency, tune),
        peer_inputs=settings["peer_inputs"],
        peer_memory=settings["peer_gigabytes"],
        rounds=span(_rounds(latency), ".0f"),
        threads=environment["threads"],
        load=f"{environment['load']:.0f}",
        before=str(found["commits"]["before"])[:7],
        run=run_fold({**settings, "commits of now": commits, **environment}, found["environment"]["versions"]),
    )


def _memory(networks: Found) -> str:
    """Return the table of peaks of a search beside those of a prediction."""
    rows = [
        [FULL[network].title, KINDS[kind], f"{row['inputs']:,}", *(number(row[what] / 1e6) for what in WORK),
         f"{row['tune'] / row['predict']:.1f}"]
        for network, kinds in networks.items() for kind, row in kinds.items()
    ]  # fmt: skip
    head = ["", "", "inputs", "one prediction, MB", "`tune(val_loader)`, MB", "ratio"]
    return f"**Peak memory of a search**\n\n{table(head, rows, words=2)}"


def _scored(network: str, rows: Found) -> str:
    return f"**Scores of {FULL[network].title}, with SVHN as unknown images**\n\n{_quality(rows)}"


def _latency(rows: Found) -> str:
    """Return the table of one network: before and now, batches and single inputs."""
    counts = sorted({row["inputs"] for name, sides in rows.items() if not name.startswith("peer all")
                     for row in sides.values() if "inputs" in row}, reverse=True)  # fmt: skip
    batch = counts[0]
    head = ["", f"{batch} inputs, before", "now", "ms", "one input, before", "now", "ms"]
    plain = [rows[f"temperature, {count}"]["now"]["forward_milliseconds"] for count in (batch, 1)]
    lines = [["network alone", "1", "1", number(plain[0]), "1", "1", number(plain[1])]]
    for way, title in WAYS.items():
        cells = [title]
        for single in (False, True):
            names = [name for name in rows if name.rpartition(", ")[0] == way and name.endswith(", 1") == single]
            sides = rows[names[0]] if names else {}
            now = sides.get("now") or sides.get("laplace-torch", {})
            share = PER_SAMPLE if way == "linear-mc" else 1
            cells += [_forwards(sides.get("before", {}), share), _forwards(now, share)]
            cells.append(number(now["milliseconds"] / share) if "milliseconds" in now else UNKNOWN)
        if any(cell != UNKNOWN for cell in cells[1:]):
            lines.append(cells)
    return table(head, lines)


def _forwards(row: Found, share: int) -> str:
    if "failed" in row:
        return row["failed"] if len(row["failed"]) < 30 else "failed"
    return number(row["forwards"] / share) if "forwards" in row else UNKNOWN


def _tune(tune: Found) -> str:
    lines = []
    for network in (name for name in FULL if name in tune):
        for name, sides in tune[network].items():
            kind, count = name.split(", ")
            before, now = sides.get("before", {}), sides.get("now", {})
            lines.append(
                [
                    FULL[network].title,
                    f"{int(count):,}",
                    KINDS[kind],
                    *(
                        number(row.get("predictions")) if "failed" not in row else row["failed"]
                        for row in (before, now)
                    ),
                    number(now.get("forwards")),
                    number(now["seconds"][0], " s") if "seconds" in now else UNKNOWN,
                ]
            )
    return table(["network", "inputs", "kind", "before", "now", "forwards", "time"], lines, words=3)


def _quality(rows: Found) -> str:
    lines = []
    for name, title in METHODS.items():
        row = rows.get(name)
        if row is None:
            continue
        if "failed" in row:
            lines.append([title, row["failed"], *[UNKNOWN] * 5])
            continue
        scores = [f"{row[key]:.4f}" for key in ("nll", "ece", "auroc", "accuracy")]
        precision = row.get("prior_precision")
        lines.append(
            [title, *scores, UNKNOWN if precision is None else f"{precision:.3g}", f"{row['temperature']:.2f}"]
        )
    return table(["", "NLL", "ECE", "AUROC, SVHN", "accuracy", "τ", "T"], lines)


def _gain(quality: Found) -> str:
    """Say what the last layer and all layers gain over temperature alone."""
    told = []
    for name, rows in quality.items():
        network = FULL[name].title.partition(",")[0]
        for row, which in (("last tau+T", "the last layer"), ("all tau+T", "all layers")):
            ours, other = rows.get(row, {}), rows.get("temperature", {})
            if "nll" in ours and "nll" in other:
                told.append(
                    f"with {which} of {network}, NLL {other['nll']:.4f} → {ours['nll']:.4f}, "
                    f"ECE {other['ece']:.4f} → {ours['ece']:.4f}, AUROC {other['auroc']:.3f} → {ours['auroc']:.3f}"
                )
    return "; ".join(told)


def _missed(latency: Found, tune: Found) -> str:
    """Return by how much the aims are missed."""
    told = []
    for network, rows in latency.items():
        for name, sides in rows.items():
            way, now = name.rpartition(", ")[0], sides.get("now", {})
            share = PER_SAMPLE if way == "linear-mc" else 1
            aim = AIMS.get(way, {}).get(network)
            if aim is not None and not name.endswith(", 1") and now.get("forwards", 0) / share > aim:
                told.append(f"{WAYS[way]} on {FULL[network].title}: {now['forwards'] / share:.3g} for {aim:g}")
    for network, rows in tune.items():
        for name, sides in rows.items():
            if name.split(", ")[0] in ("linear", "mc", "linear-mc") and sides["now"].get("predictions", 0) > TUNE_AIM:
                told.append(f"`tune` for {name} on {FULL[network].title}: {sides['now']['predictions']:.2g}")
    return "; ".join(told) or "none"


def _tuned(tune: Found) -> list[Found]:
    kinds = ("linear", "mc", "linear-mc")
    return [
        sides for rows in tune.values() for name, sides in rows.items()
        if name.split(", ")[0] in kinds and all("predictions" in side for side in sides.values())
    ]  # fmt: skip


def _rounds(latency: Found) -> list[int]:
    """Return how many rounds the rows of our own have."""
    sides = [row["now"] for rows in latency.values() for row in rows.values() if "now" in row]
    return [len(side["rounds"]) for side in sides if "rounds" in side]


def _span(latency: Found, way: str, *, batches: bool) -> str | None:
    values = [
        sides["now"]["forwards"] for rows in latency.values() for name, sides in rows.items()
        if name.rpartition(", ")[0] == way and name.endswith(", 1") != batches and "forwards" in sides.get("now", {})
    ]  # fmt: skip
    return span(values, ".1f") if values else None
