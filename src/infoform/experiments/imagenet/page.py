"""The page of an ImageNet experiment: tables from its JSON, and what they say."""

from collections.abc import Mapping
from math import sqrt
from typing import Any

from infoform.comparing.bootstrap import INSIDE
from infoform.data.photographs import SHORT_SIDE
from infoform.experiments.classification.page import COLUMNS, NAMES, title, tuning_of
from infoform.experiments.imagenet.networks import NETWORKS
from infoform.experiments.imagenet.run import FALSE_ALARMS, LAST_LAYER
from infoform.experiments.method import Method
from infoform.pages.markdown import table
from infoform.pages.numbers import count_of
from infoform.pages.template import PageTemplate
from infoform.records.study_result import Result

Row = dict[str, Any]
Values = dict[str, object]  # of the template's names
TEMPLATE = PageTemplate.beside(__file__)
UNSURE = 0.95  # temperatures below which a network is less sure than it is right
RUINED = 0.1  # accuracy that a posterior loses where it is too wide
AUROC_ERROR = 0.02
ALL_IMAGES = 50_000  # of ImageNet's validation part
LAST_VALUES = tuple(
    f"last_{name}" for name in ("nll", "difference", "ends", "level", "entropy", "novelty", "alarms", "expected")
)  # of the last layer
NORM_IMAGES = 320  # of a fit, for SWAG's batch norms


def page(name: str, result: Result) -> str:
    rows = collect(result)
    by_tuning = {
        tuning: {method: row for method, row in rows.items() if tuning_of(method) == tuning}
        for tuning in (None, "search", "validation", "evidence")
    }
    return TEMPLATE.fill(
        **_remarks(rows, result),
        **_settings(result),
        name=name,
        verdict=_verdict(rows),
        single=_table(by_tuning[None]),
        search=_table(by_tuning["search"]),
        search_picture=f"{name}-search.png" if by_tuning["search"] else None,
        validation=_table(by_tuning["validation"]),
        evidence=_table(by_tuning["evidence"]),
        stored=_bytes(result),
    )


def collect(result: Result) -> dict[str, Row]:
    """Return the measures by method; SWA's stand in SWAG's piece."""
    rows = {}
    for key, piece in result.pieces.items():
        if "accuracy" in piece:
            rows[key] = piece
        if "swa" in piece:
            rows["swa"] = piece["swa"]
    return rows


def _settings(result: Result) -> Values:
    settings, fit, plain = result.settings, result.pieces["fit"], result.pieces["plain"]
    about = NETWORKS[settings["network"]]
    error = sqrt(plain["accuracy"] * (1 - plain["accuracy"]) / settings["test"])
    half = plain["autocast"] if settings.get("autocast") else None
    swag = "swag" in result.pieces
    return {
        "network": about.title,
        "weights": f"{fit['weights']:,}",
        "covered": f"{fit['covered']:,}",
        "fit_images": fit["fit_images"],
        "held_out": fit["held_out_images"],
        "test": settings["test"],
        "unknown": settings["unknown"],
        "samples": settings["samples"],
        "linear_samples": settings["linear_samples"],
        "size": settings["size"],
        "short_side": SHORT_SIDE,
        "pairs": settings["pairs"] if "pairs" in settings else settings["rounds"][0][0],  # of earlier runs
        "accuracy": f"{plain['accuracy']:.1%}",
        "accuracy_error": f"{error:.1%}",
        "error": f"{error:.2f}",
        "auroc_error": AUROC_ERROR,
        "held_out_accuracy": f"{fit['held_out_accuracy']:.1%}",
        "published": f"{about.published:.1%}",
        "all_images": f"{ALL_IMAGES:,}",
        "fit_seconds": f"{fit['fit_cpu_seconds']:.0f}",
        "autocast": settings.get("autocast"),
        **{f"half_{name}": f"{half[name]:.4f}" if half else None for name in ("nll", "ece", "auroc")},
        "swag_epochs": settings["swag_epochs"] if swag else None,
        "swag_rate": f"{settings['swag_learning_rate']:g}",
        "norm_images": NORM_IMAGES,
    }


def _remarks(rows: Mapping[str, Row], result: Result) -> Values:
    """Return what is to be said of some networks only; None for the others."""
    temperature = rows["temperature"].get("temperature", 1.0)
    clipped = result.pieces["fit"]["clipped"]
    least = rows["plain"]["accuracy"] - RUINED
    wide = [m for m, row in rows.items() if tuning_of(m) == "evidence" and row["accuracy"] < least]
    lost = {method: row["not_finite"] for method, row in rows.items() if row.get("not_finite", 0) > 0}
    return {
        "temperature": f"{temperature:.2f}" if temperature < UNSURE else None,
        "clipped": None if clipped is None else f"{clipped:.0%}",
        **_of_last_layer(rows),
        "too_wide": ", ".join(map(_title, wide)) or None,
        "not_finite": ", ".join(f"{_title(method)} {share:.1%}" for method, share in lost.items()) or None,
    }


def _of_last_layer(rows: Mapping[str, Row]) -> Values:
    row = rows.get(LAST_LAYER)
    if row is None:
        return dict.fromkeys(LAST_VALUES)
    difference, low, high = row["to_temperature"]
    values = (
        f"{row['nll']:.4f}",
        f"{difference:+.4f}",
        f"{low:+.4f} to {high:+.4f}",
        f"{INSIDE[1] - INSIDE[0]:.0%}",
        f"{row['auroc']:.3f}",
        f"{row['auroc_novelty']:.3f}",
        f"{row['false_alarms']:.1%}",
        f"{FALSE_ALARMS:.0%}",
    )
    return dict(zip(LAST_VALUES, values, strict=True))


def _table(rows: Mapping[str, Row]) -> str | None:
    cells = []
    for method, row in rows.items():
        numbers = [f"{row[measure]:.{digits}f}" for measure, digits in COLUMNS.values()]
        unknown = f"{row['entropy_unknown']:.3f} ± {row['entropy_unknown_std']:.3f}"
        picked = "–"
        if "prior_precision" in row:
            picked = f"τ {row['prior_precision']:.3g}, N {row['num_data']:.3g}"
        if "temperature" in row:
            own = f"T {row['temperature']:.3f}"
            picked = own if picked == "–" else f"{picked}, {own}"
        cells.append([_title(method), *numbers, unknown, picked])
    return table(["", *COLUMNS, "entropy, unknown", "chosen"], cells) if cells else None


def _verdict(rows: Mapping[str, Row]) -> str:
    tuned = {m: r for m, r in rows.items() if tuning_of(m) in ("search", "validation") and _kind(m) == "mc"}
    plain, lines = rows["plain"], []
    for measure, name, largest in (("nll", "NLL", False), ("ece", "ECE", False), ("auroc", "AUROC", True)):
        best = sorted(tuned, key=lambda method: tuned[method][measure], reverse=largest)[0]
        better = [
            (row[measure] > plain[measure]) == largest and row[measure] != plain[measure] for row in tuned.values()
        ]
        own = [rows[name] for name in ("plain", "temperature", LAST_LAYER) if name in rows]
        values = [f"{row[measure]:.4f}" for row in (*own, tuned[best])]
        lines.append([name, *values, _title(best), count_of(better)])
    last = ["last layer, with T"] if LAST_LAYER in rows else []
    header = ["", "plain network", "temperature scaling", *last, "best by `mc`", "which is", "better than plain"]
    return table(header, lines)


def _bytes(result: Result) -> str:
    stored = result.pieces["fit"]["bytes"]
    rows = [[f"`{key.split()[0]}`, {key.split()[1]}", f"{value / 1e6:.2f}"] for key, value in stored.items()]
    return table(["", "stored, MB"], rows)


def _kind(method: str) -> str | None:
    return Method.parse(method).kind


def _title(method: str) -> str:
    return "temperature scaling" if method == "temperature" else NAMES.get(method) or title(method)
