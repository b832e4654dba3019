"""The page of a classification experiment: tables from its JSON, beside the paper's numbers, and the targets."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from infoform.experiments.classification.methods import DEFAULT, KFAC, PAPERS_INF, SAMPLED, WIDE
from infoform.experiments.classification.published import SEARCHED_PAIRS as PAPER_PAIRS
from infoform.experiments.classification.targets import Target
from infoform.experiments.method import Method
from infoform.pages.markdown import table
from infoform.pages.numbers import count_of, mean_std
from infoform.pages.template import PageTemplate
from infoform.records.study_result import Result

Row = dict[str, Any]
Values = dict[str, object]  # of the template's names
TEMPLATE = PageTemplate.beside(__file__)
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
SHORT_COLUMNS = ("accuracy", "NLL", "ECE", "AUROC", "AUROC by MI")
SHORT = (  # methods that a reader looks for first
    "plain",
    DEFAULT,
    SAMPLED,
    KFAC,
    PAPERS_INF,
    "ensemble",
)
NAMES = {
    "last-layer": "last layer, with a temperature",
    "mc-dropout": "MC dropout",
    "plain": "plain network",
    "swa": "SWA",
    "swag": "SWAG",
}


def body(name: str, result: Result, *, paper: Mapping[str, tuple[float, float]], targets: Sequence[Target]) -> str:
    """Return the page; `paper` has ECE and entropy on unknown data of each method of the paper's table."""
    rows = collect(result)
    verdicts = [_verdict(target, rows, result) for target in targets]
    meaning = Path(__file__).with_name(f"{name}.md")
    return TEMPLATE.fill(
        **_answer(rows),
        **_settings(result),
        **_stored(result),
        name=name,
        met=count_of(cells[-1] == "met" for cells in verdicts),
        short=_table({method: rows[method] for method in SHORT if method in rows}, SHORT_COLUMNS),
        meaning=PageTemplate.read(meaning).fill() if meaning.exists() else None,
        targets=table(["", "target", "here", ""], verdicts),
        paper=_paper_table(rows, paper),
        paper_pairs=PAPER_PAIRS,
        validation=_tuned_table({m: r for m, r in rows.items() if tuning_of(m) in (None, "validation")}),
        evidence=_tuned_table({m: r for m, r in rows.items() if tuning_of(m) == "evidence"}),
        search=_tuned_table({m: r for m, r in rows.items() if tuning_of(m) == "search"}),
        complexity=_complexity(result),
        costs=_costs(rows),
    )


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


def title(method: str) -> str:
    """Return how a table calls a method."""
    known = Method.parse(method)
    if not known.is_laplace:
        return NAMES.get(known.name, known.name)
    structure = known.name if known.storage is None else f"{known.name}@{known.storage}"
    strength = "" if known.prior_strength is None else f" × {known.prior_strength:g}"
    about = "" if known.prior_rank is None else f" ({known.prior_rank}{strength})"
    return f"`{structure}`, {known.prior}{about}, `{known.kind}`"


def tuning_of(method: str) -> str | None:
    """Return how the τ of a method was chosen; None for a baseline, which has none."""
    return Method.parse(method).tuning


def _answer(rows: Mapping[str, list[Row]]) -> Values:
    """Return the measures of the default, the plain network and the ensemble; None where they were not measured."""

    def average(method: str, measure: str) -> str | None:
        return f"{mean(row[measure] for row in rows[method]):.4f}" if method in rows else None

    values: Values = {measure: average(DEFAULT, measure) for measure in ("auroc", "nll", "ece")}
    values |= {f"plain_{measure}": average("plain", measure) for measure in ("auroc", "nll", "ece")}
    calibrated = next((one for one in (DEFAULT, WIDE) if one in rows), "plain")
    expected = mean(chance_ece(row["reliability"]) for row in rows[calibrated])
    return values | {
        "ensemble_auroc": average("ensemble", "auroc"),
        "chance_method": title(calibrated),
        "chance": f"{expected:.4f}",
    }


def _settings(result: Result) -> Values:
    settings = result.settings
    trained = [piece for key, piece in result.pieces.items() if key.startswith("network")]
    return {
        "networks": settings["networks"],
        "epochs": settings["epochs"],
        "train": f"{settings['train']:,}",
        "rate": f"{settings['learning_rate']:g}",
        "schedule": "falling along a cosine" if settings["cosine"] else "constant",
        "l2": f"{settings['l2']:g}",
        "batch": settings["batch_size"],
        "minutes": f"{mean(piece['training_seconds'] for piece in trained) / 60:.0f}",
        "loss": mean_std([piece["losses"][-1] for piece in trained]),
        "curvature": f"{settings['curvature']:,}",
        "held_out": f"{settings['validation']:,}",
        "tuning_samples": settings["tuning_samples"],
        "test": f"{settings['test']:,}",
        "unknown": f"{settings['unknown']:,}",
        "samples": settings["samples"],
    }


def _stored(result: Result) -> Values:
    fits = [piece["fit_seconds"] for key, piece in result.pieces.items() if key.startswith("curvature")]
    stored = result.pieces["curvature 0"]["bytes"]
    names = {
        "inf_bytes": "inf activation",
        "half_bytes": "inf activation, bfloat16",
        "least_bytes": "inf activation, uint8",
        "kfac_bytes": "kfac isotropic",
    }
    sizes: Values = {name: f"{stored[key] / 1e6:.1f} MB" for name, key in names.items()}
    return {**sizes, "fit_seconds": f"{mean(fits):.0f}"}


def _table(rows: Mapping[str, list[Row]], columns: Sequence[str]) -> str:
    cells = []
    for method, found in rows.items():
        measures = [mean_std([one[COLUMNS[name][0]] for one in found], COLUMNS[name][1]) for name in columns]
        cells.append([title(method), *measures])
    return table(["", *columns], cells)


def _tuned_table(rows: Mapping[str, list[Row]]) -> str | None:
    """Return all measures of some methods with the hyperparameters they have; None where there is no method."""
    cells = []
    for method, found in rows.items():
        row = [title(method)]
        row += [mean_std([one[measure] for one in found], digits) for measure, digits in COLUMNS.values()]
        unknown, spread = (mean(one[key] for one in found) for key in ("entropy_unknown", "entropy_unknown_std"))
        taus = sorted({f"{one['prior_precision']:.3g}" for one in found if "prior_precision" in one}, key=float)
        counts = sorted({f"{one['num_data']:.3g}" for one in found if "num_data" in one}, key=float)
        picked = ", ".join(taus) + (f"; N {', '.join(counts)}" if tuning_of(method) == "search" else "")
        cells.append([*row, f"{unknown:.3f} ± {spread:.3f}", picked or "–"])
    return table(["", *COLUMNS, "entropy, unknown", "τ"], cells) if cells else None


def _paper_table(rows: Mapping[str, list[Row]], paper: Mapping[str, tuple[float, float]]) -> str:
    cells = []
    for method, (error, entropy) in paper.items():
        found = rows.get(method)
        here = ["–", "–"]
        if found:
            here = [f"{mean(one['ece'] for one in found):.4f}", f"{mean(one['entropy_unknown'] for one in found):.3f}"]
        cells.append([title(method), f"{error:.4f}", here[0], f"{entropy:.3f}", here[1]])
    return table(["", "ECE, paper", "here", "entropy unknown, paper", "here"], cells)


def _verdict(target: Target, rows: Mapping[str, list[Row]], result: Result) -> list[str]:
    """Return the row of a target: what it asks for, what was found, and whether that is enough."""
    if not set(target.methods) <= set(rows):
        return [target.text, "–", "–", "not measured in this run"]
    value, bound = target.values(rows, result)
    met = value >= bound if target.at_least else value <= bound
    verdict = "met" if met else f"**missed** by {abs(value - bound):.3g}"
    return [target.text, f"{'≥' if target.at_least else '≤'} {bound:.4g}", f"{value:.4g}", verdict]


def chance_ece(bins: Mapping[str, list[Any]]) -> float:
    """Return the ECE of perfectly calibrated answers: E of a bin's error is (2 p (1 − p) / (π n))^(1/2)."""
    filled = [(p, n) for p, n in zip(bins["confidence"], bins["count"], strict=True) if n]
    errors = (n * math.sqrt(2 * p * (1 - p) / (math.pi * n)) for p, n in filled)
    return float(sum(errors) / sum(bins["count"]))


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
    return table(["layer", "weights N", *(f"L at K = {int(rank):,}" for rank in ranks)], cells)


def _costs(rows: Mapping[str, list[Row]]) -> str:
    cells = []
    for method, found in rows.items():
        seconds = {key: mean(one["seconds"].get(key, 0.0) for one in found) for key in ("fit", "tune", "predict")}
        stored = found[0].get("bytes")
        cells.append(
            [
                title(method) + (f", by {tuning_of(method)}" if tuning_of(method) else ""),
                *(f"{value:.0f}" if value else "–" for value in seconds.values()),
                "–" if stored is None else f"{stored / 1e6:.1f}",
            ]
        )
    return table(["", "fit, s", "tune, s", "predict, s", "stored, MB"], cells)
