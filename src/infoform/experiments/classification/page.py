"""The page of a classification experiment: tables from its JSON, beside the paper's numbers, and the targets."""

import math
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from infoform.experiments.classification.methods import DEFAULT, WIDE
from infoform.experiments.classification.targets import Target
from infoform.experiments.method import Method
from infoform.pages.markdown import mean_std, table
from infoform.records.study_result import Result

Row = dict[str, Any]
COLUMNS = {  # title -> (measure, digits)
    "accuracy": ("accuracy", 4),
    "NLL": ("nll", 4),
    "Brier": ("brier", 4),
    "ECE": ("ece", 4),
    "entropy, known": ("entropy", 3),
    "AUROC": ("auroc", 4),
    "AUROC by MI": ("auroc_mutual_information", 4),
    "FPR95": ("fpr95", 3),
}
NAMES = {"mc-dropout": "MC dropout", "plain": "plain network", "swa": "SWA", "swag": "SWAG"}


def body(
    name: str,
    result: Result,
    *,
    paper: Mapping[str, tuple[float, float]],
    targets: Sequence[Target],
    remarks: str = "",
) -> str:
    """Return the page; `paper` has ECE and entropy on unknown data of each method of the paper's table."""
    rows = collect(result)
    titled = {
        "What was run": f"{_sizes(result)}\n\n{remarks}".strip(),
        "By validation": _table(rows, "validation"),
        "By evidence, and by the paper's search": f"{_table(rows, 'evidence')}\n\n{_table(rows, 'search')}",
        "Beside the paper": _paper_table(rows, paper),
        "Targets": _targets(rows, result, targets),
        "Pictures": _pictures(name),
        "Complexity": _complexity(result),
        "Time and memory": _costs(rows, result),
    }
    return "\n\n".join(f"## {title}\n\n{text}" for title, text in titled.items())


def collect(result: Result) -> dict[str, list[Row]]:
    """Return the measures of every method, a row for each network."""
    rows: dict[str, list[Row]] = {}
    for key, piece in result.pieces.items():
        method = Method.parse(key).of_any_network.key
        if "accuracy" in piece:
            rows.setdefault(method, []).append(piece)
        if "swa" in piece:
            rows.setdefault("swa", []).append(piece["swa"])
    return rows


def title(method: str, result: Result | None = None) -> str:
    """Return how a table calls a method."""
    m = Method.parse(method)
    if not m.is_laplace:
        return NAMES.get(m.name, m.name)
    structure = m.name if m.storage is None else f"{m.name}@{m.storage}"
    strength = "" if m.prior_strength is None else f" × {m.prior_strength:g}"
    about = "" if m.prior_rank is None else f" ({m.prior_rank}{strength})"
    return f"`{structure}`, {m.prior}{about}, `{m.kind}`"


def _sizes(result: Result) -> str:
    s = result.settings
    losses = [piece["losses"][-1] for key, piece in result.pieces.items() if key.startswith("network")]
    seconds = [piece["training_seconds"] for key, piece in result.pieces.items() if key.startswith("network")]
    return f"""{s["networks"]} networks, each trained for {s["epochs"]} epochs on {s["train"]:,} images by Adam (rate
{s["learning_rate"]:g}, {"falling along a cosine" if s["cosine"] else "constant"}; L2 {s["l2"]:g}; batches of
{s["batch_size"]}) in
{mean(seconds) / 60:.0f} minutes of a shared core; last training loss {mean_std(losses)}. The curvature is that of
{s["curvature"]:,} of those images, counted as N = {s["train"]:,}; τ is chosen on {s["validation"]:,} held-out training
images with {s["tuning_samples"]} sampled networks. Measured on {s["test"]:,} test images and {s["unknown"]:,} unknown
ones, with the same hyperparameters for both, by {s["samples"]} sampled networks (`mc`), or in closed form (`linear`).
Unknown images are told apart by the entropy of the prediction, which is given as a share of the largest possible one
(AUROC, FPR95), or by the mutual information of answer and weights (AUROC by MI; one network alone has none: 0.5).
Cells are mean ± standard deviation over networks where there are several. The number after `activation` is how many
directions of each layer's inputs that prior knows, and after × its strength, where it is not 1; the first network has
all methods, the others some."""


def _table(rows: Mapping[str, list[Row]], tuning: str) -> str:
    chosen = {m: r for m, r in rows.items() if (Method.parse(m).tuning or "validation") == tuning}
    cells = []
    for method, found in chosen.items():
        row = [title(method)]
        row += [mean_std([one[measure] for one in found], digits) for measure, digits in COLUMNS.values()]
        unknown, spread = (mean(one[key] for one in found) for key in ("entropy_unknown", "entropy_unknown_std"))
        taus = sorted({f"{one['prior_precision']:.3g}" for one in found if "prior_precision" in one}, key=float)
        counts = sorted({f"{one['num_data']:.3g}" for one in found if "num_data" in one}, key=float)
        picked = ", ".join(taus) + (f"; N {', '.join(counts)}" if tuning == "search" else "")
        cells.append([*row, f"{unknown:.3f} ± {spread:.3f}", picked or "–"])
    if not chosen:
        return f"By {tuning}: not measured in this run."
    what = {
        "validation": "τ of the least NLL of held-out data; the baselines have none.",
        "evidence": "τ of the largest evidence; no held-out data.",
        "search": "The paper's protocol: N and τ of the least ECE of held-out data on a grid.",
    }[tuning]
    return f"{what} Entropy of unknown images is mean ± deviation over images.\n\n" + table(
        ["", *COLUMNS, "entropy, unknown", "τ"], cells
    )


def _paper_table(rows: Mapping[str, list[Row]], paper: Mapping[str, tuple[float, float]]) -> str:
    cells = []
    for method, (error, entropy) in paper.items():
        found = rows.get(method)
        here = ["–", "–"]
        if found:
            here = [f"{mean(one['ece'] for one in found):.4f}", f"{mean(one['entropy_unknown'] for one in found):.3f}"]
        cells.append([title(method), f"{error:.4f}", here[0], f"{entropy:.3f}", here[1]])
    note = "The paper's networks were trained longer, and its hyperparameters searched for by the ECE of 300 pairs."
    return f"{note}\n\n" + table(["", "ECE, paper", "here", "entropy unknown, paper", "here"], cells)


def _targets(rows: Mapping[str, list[Row]], result: Result, targets: Sequence[Target]) -> str:
    cells = []
    for target in targets:
        if not set(target.methods) <= set(rows):
            cells.append([target.text, "–", "–", "not measured in this run"])
            continue
        value, bound = target.values(rows, result)
        met = value >= bound if target.at_least else value <= bound
        verdict = "met" if met else f"**missed** by {abs(value - bound):.3g}"
        cells.append([target.text, f"{'≥' if target.at_least else '≤'} {bound:.4g}", f"{value:.4g}", verdict])
    return f"{_chance(rows)}\n\n" + table(["", "target", "here", ""], cells)


def _chance(rows: Mapping[str, list[Row]]) -> str:
    method = next((one for one in (DEFAULT, WIDE) if one in rows), "plain")
    expected = mean(chance_ece(row["reliability"]) for row in rows[method])
    return (
        f"Answers with the confidences of {title(method)} that were perfectly calibrated would have an ECE of about "
        f"{expected:.4f} by chance."
    )


def chance_ece(bins: Mapping[str, list[Any]]) -> float:
    """Return the ECE of perfectly calibrated answers: E of a bin's error is (2 p (1 − p) / (π n))^(1/2)."""
    filled = [(p, n) for p, n in zip(bins["confidence"], bins["count"], strict=True) if n]
    errors = (n * math.sqrt(2 * p * (1 - p) / (math.pi * n)) for p, n in filled)
    return float(sum(errors) / sum(bins["count"]))


def _pictures(name: str) -> str:
    what = {
        "reliability": "Reliability of the first network",
        "entropy": "Entropy of known and unknown images",
        "eigenvalues": "Eigenvalues by layer, of the first network",
        "tuning": "NLL of held-out data against τ",
    }
    return "\n\n".join(f"![{text}](../images/{name}-{key}.png)" for key, text in what.items())


def _complexity(result: Result) -> str:
    layers = result.pieces["curvature 0"]["complexity"]
    ranks = list(next(iter(layers.values()))["grid"])
    cells = [
        [
            name,
            f"{layer['weights']:,}",
            *(f"{layer['grid'][rank]:,} ({layer['grid'][rank] / layer['weights']:.2%})" for rank in ranks),
        ]
        for name, layer in layers.items()
    ]
    note = """The paper completes the K largest eigenvalues to a grid of L pairs, and samples at a cost of L³; `inf`
keeps exactly K pairs (or all, where a layer has fewer)."""
    return f"{note}\n\n" + table(["layer", "weights N", *(f"L at K = {int(rank):,}" for rank in ranks)], cells)


def _costs(rows: Mapping[str, list[Row]], result: Result) -> str:
    cells = []
    for method, found in rows.items():
        seconds = {key: mean(one["seconds"].get(key, 0.0) for one in found) for key in ("fit", "tune", "predict")}
        stored = found[0].get("bytes")
        cells.append(
            [
                f"{title(method)}{f', by {tuning}' if (tuning := Method.parse(method).tuning) else ''}",
                *(f"{value:.0f}" if value else "–" for value in seconds.values()),
                "–" if stored is None else f"{stored / 1e6:.1f}",
            ]
        )
    fits = [piece["fit_seconds"] for key, piece in result.pieces.items() if key.startswith("curvature")]
    stored = result.pieces["curvature 0"]["bytes"]
    half, least = (stored[f"inf activation, {storage}"] for storage in ("bfloat16", "uint8"))
    note = f"""All structures are taken from one fit of {result.settings["curvature"]:,} images ({mean(fits):.0f} s,
with every statistic that any of them needs). Seconds were taken on a machine shared with other work and tell orders of
magnitude only. `inf` with the activation prior takes {stored["inf activation"] / 1e6:.1f} MB, in bfloat16
{half / 1e6:.1f} MB, as bytes {least / 1e6:.1f} MB, and KFAC {stored["kfac isotropic"] / 1e6:.1f} MB."""
    return f"{note}\n\n" + table(["", "fit, s", "tune, s", "predict, s", "stored, MB"], cells)
