"""The page of an ImageNet experiment: tables from its JSON, and what they say."""

from collections.abc import Mapping
from math import sqrt
from typing import Any

from infoform.experiments.classification.page import COLUMNS, NAMES, title
from infoform.experiments.imagenet.networks import NETWORKS
from infoform.experiments.method import Method
from infoform.pages.markdown import table
from infoform.records.study_result import Result

Row = dict[str, Any]
TUNINGS = {
    "search": """N and τ of the least NLL among random pairs, as in the paper, but dropped early: of {pairs} pairs, all
are scored on few held-out images, the better ones on more.""",
    "validation": "τ of the least NLL of held-out images, N as many images as the network was trained on.",
    "evidence": "τ of the largest evidence, N the same; no held-out images.",
}
HELD_OUT = ("search", "validation")  # tunings that need held-out images
UNSURE = 0.95  # temperatures below which a network is less sure than it is right


def page(name: str, result: Result) -> str:
    rows = collect(result)
    parts = [
        "## What was run",
        _sizes(result),
        "## One network",
        _table({m: r for m, r in rows.items() if not Method.parse(m).is_laplace}),
    ]
    for tuning, text in TUNINGS.items():
        chosen = {method: row for method, row in rows.items() if Method.parse(method).tuning == tuning}
        if chosen:
            pairs = result.settings["rounds"][0][0]
            parts += [f"## Posteriors, by {tuning}", text.format(pairs=pairs), _table(chosen)]
    parts += [
        "## What it says",
        _verdict(rows, result),
        "## Pictures",
        _pictures(name, rows),
        "## Bytes",
        _bytes(result),
    ]
    return "\n\n".join(parts)


def collect(result: Result) -> dict[str, Row]:
    """Return the measures by method; SWA's stand in SWAG's piece."""
    rows = {}
    for key, piece in result.pieces.items():
        if "accuracy" in piece:
            rows[key] = piece
        if "swa" in piece:
            rows["swa"] = piece["swa"]
    return rows


def _sizes(result: Result) -> str:
    s, fit = result.settings, result.pieces["fit"]
    about = NETWORKS[s["network"]]
    test = result.pieces["plain"]["accuracy"]
    error = sqrt(test * (1 - test) / s["test"])
    text = f"""{about.title} with its published weights ({fit["weights"]:,} parameters, {fit["covered"]:,} of them in
layers with a posterior; batch norms are held fixed). The curvature is that of {fit["fit_images"]} validation
photographs of ImageNet, one a class, and {fit["held_out_images"]} more, of other classes, are held out: τ, N and the
temperature are chosen on these alone. Test photographs ({s["test"]}, of as many classes evenly spaced over all) and
paintings ({s["unknown"]}) choose nothing. Predictions by `mc` are means of {s["samples"]} sampled networks, by
`linear-mc`, where there are any, of {s["linear_samples"]}. Pictures have {s["size"]}² pixels, the middle of a short
side of 256.

The network is right on {test:.1%} ± {error:.1%} of the test photographs and on {fit["held_out_accuracy"]:.1%} of those
held out; published is {about.published:.1%} on all 50,000. Entropies are shares of the largest possible one. Unknown
pictures are told apart by entropy (AUROC, FPR95) or by the mutual information of answer and weights (AUROC by MI; one
network alone has none: 0.5). With {s["test"]} photographs, differences of less than about {error:.2f} in accuracy,
{error:.2f} in ECE and 0.02 in AUROC are not to be trusted."""
    if s.get("autocast"):
        half = result.pieces["plain"]["autocast"]
        text += f"""

Convolutions and products of sampled networks are in {s["autocast"]}, their weights in float32. The plain network so run
has an NLL of {half["nll"]:.4f}, an ECE of {half["ece"]:.4f} and an AUROC of {half["auroc"]:.4f}, which the rows of
posteriors are to be compared with."""
    if "swag" in result.pieces:
        text += f"""

SWAG here is a short fine-tune, {s["swag_epochs"]} epochs of SGD at a rate of {s["swag_learning_rate"]:g} on the
{fit["fit_images"]} photographs of the fit, with batch-norm statistics renewed on 320 of them: not the long training
with ImageNet's own images that its authors did."""
    return text


def _table(rows: Mapping[str, Row]) -> str:
    cells = []
    for method, row in rows.items():
        numbers = [f"{row[measure]:.{digits}f}" for measure, digits in COLUMNS.values()]
        unknown = f"{row['entropy_unknown']:.3f} ± {row['entropy_unknown_std']:.3f}"
        picked = "–"
        if "prior_precision" in row:
            picked = f"τ {row['prior_precision']:.3g}, N {row['num_data']:.3g}"
        if "temperature" in row:
            picked = f"T {row['temperature']:.3f}"
        cells.append([_title(method), *numbers, unknown, picked])
    return table(["", *COLUMNS, "entropy, unknown", "chosen"], cells)


def _verdict(rows: Mapping[str, Row], result: Result) -> str:
    methods = {method: Method.parse(method) for method in rows}
    tuned = {m: r for m, r in rows.items() if methods[m].tuning in HELD_OUT and methods[m].kind == "mc"}
    plain, lines = rows["plain"], []
    for measure, name, largest in (("nll", "NLL", False), ("ece", "ECE", False), ("auroc", "AUROC", True)):
        order = sorted(tuned, key=lambda method: tuned[method][measure], reverse=largest)
        best = order[0]
        better = sum((r[measure] > plain[measure]) == largest and r[measure] != plain[measure] for r in tuned.values())
        lines.append(
            f"- {name}: plain {plain[measure]:.4f}, temperature {rows['temperature'][measure]:.4f}; of the posteriors "
            f"by `mc` the best is {_title(best)} with {tuned[best][measure]:.4f}, and {better} of {len(tuned)} are "
            "better than the plain network."
        )
    text = "\n".join(lines)
    temperature = rows["temperature"].get("temperature", 1.0)
    if temperature < UNSURE:
        text += f"""

The network is less sure than it is right: its best temperature is {temperature:.2f}, below 1. A posterior can only make
answers less sure, so the best that tuning can find is one so narrow that it changes nothing."""
    clipped = result.pieces["fit"]["clipped"]
    if clipped is not None:
        text += f"""

The paper's correction D is negative, and set to 0, for {clipped:.0%} of the weights; ours never is."""
    wide = [m for m, r in rows.items() if methods[m].tuning == "evidence" and r["accuracy"] < plain["accuracy"] - 0.1]
    if wide:
        text += f""" Evidence makes posteriors too wide here: {", ".join(map(_title, wide))} lose accuracy."""
    lost = {method: row["not_finite"] for method, row in rows.items() if row.get("not_finite", 0) > 0}
    if lost:
        shares = ", ".join(f"{_title(method)} {share:.1%}" for method, share in lost.items())
        text += f""" Outputs that are not finite count as holding all classes equally likely: {shares}."""
    return text


def _pictures(name: str, rows: Mapping[str, Row]) -> str:
    shown = {"reliability": "Reliability", "entropy": "Entropy of known and unknown pictures"}
    if any(Method.parse(method).tuning == "search" for method in rows):
        shown["search"] = "NLL over searched pairs (N, τ), first round; crosses: more than twice the least"
    return "\n\n".join(f"![{text}](../images/{name}-{what}.png)" for what, text in shown.items())


def _bytes(result: Result) -> str:
    stored = result.pieces["fit"]["bytes"]
    rows = [[f"`{key.split()[0]}`, {key.split()[1]}", f"{value / 1e6:.2f}"] for key, value in stored.items()]
    text = f"""All structures are taken from one fit ({result.pieces["fit"]["fit_cpu_seconds"]:.0f} s of one core, with
every statistic that any of them needs)."""
    return f"{text}\n\n" + table(["", "stored, MB"], rows)


def _title(method: str) -> str:
    return "temperature scaling" if method == "temperature" else NAMES.get(method) or title(method)
