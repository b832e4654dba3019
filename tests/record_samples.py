"""Small, complete records of every verb, as JSON holds them, in the form of earlier versions: without a version."""

from typing import Any

LAYER: dict[str, Any] = {
    "name": "0", "shape": [5, 4], "rank": 3, "nbytes": 900, "statistics_bytes": 1000, "energy": 2.0, "kept": 0.75,
}  # fmt: skip
SPECTRUM: dict[str, Any] = {"rank": [1, 3], "eigenvalue": [1.0, 0.5], "kept": [0.5, 0.75], "nbytes": [500, 900]}
HISTOGRAM: dict[str, Any] = {"edges": [0.0, 0.5, 1.0], "count": [1, 1]}
RELIABILITY: dict[str, Any] = {
    "edges": [0.0, 0.5, 1.0], "confidence": [None, 0.75], "accuracy": [None, 0.5], "count": [0, 2],
}  # fmt: skip
SEPARATION: dict[str, Any] = {"auroc": 0.75, "aupr": 0.5, "fpr95": 0.25}
EXAMPLE: dict[str, Any] = {"index": 1, "example": "row 1", "entropy": 0.5, "mutual_information": 0.25}
CLASSIFIED: dict[str, Any] = {**EXAMPLE, "confidence": 0.75, "top": [["ash", 0.75], ["birch", 0.25]]}
CHOSEN: dict[str, Any] = {
    "least_certain": [{**CLASSIFIED, "target": "ash", "right": True, "inputs": {"a": 1.5}, "left_out": 0}],
    "most_certain": [{**CLASSIFIED, "target": "birch", "right": False, "png": "aGk="}],
    "confidently_wrong": [],
}

FIT: dict[str, Any] = {
    "model": {"model": "model.py:net", "weights": None, "arguments": {"width": 5}},
    "data": {"source": "trees.csv", "facts": {"columns": ["a", "b"], "classes": ["ash", "birch"]}},
    "likelihood": "classification",
    "settings": {"structure": "inf", "rank": 100, "fisher": "mc"},
    "prior": "activation",
    "prior_precision": 1.0,
    "num_data": 40.0,
    "noise": None,
    "total_bytes": 900,
    "kept": 0.75,
    "weight_bytes": 80,
    "layers": [{**LAYER, "spectrum": SPECTRUM}],
    "by_rank": {"rank": [1, 3], "kept": [0.5, 0.75], "nbytes": [500, 900]},
    "structures": [
        {"structure": "diag", "bytes": 5, "exact": True, "own": False},
        {"structure": "inf", "bytes": 900, "exact": True, "own": True},
    ],
    "coverage": [{"parameter": "0.weight", "shape": [5, 3], "layer": "0", "structure": "inf", "reason": "linear"}],
}
PLAN: dict[str, Any] = {
    "structure": "inf",
    "layers": [LAYER | {"rank": 1, "nbytes": 300, "kept": 0.5}],
    "fitted": True,
    "exact": True,
    "budget": 400,
    "statistics_bytes": 1000,
    "peak_bytes": None,
    "cost": None,
    "eigen_examples": None,
    "available_bytes": 10**9,
    "notes": [],
    "groups": [],
    "total_bytes": 300,
    "kept": 0.5,
    "fits": True,
}
TUNE: dict[str, Any] = {
    "method": "search",
    "objective": "nll",
    "prior_precision": 10.0,
    "prior_precision_before": {"0": 1.0},
    "num_data": 40.0,
    "noise": None,
    "trials": [
        {"num_data": 40.0, "prior_precision": 10.0, "scores": {"nll": 0.5, "accuracy": 0.75}},
        {"num_data": 40.0, "prior_precision": 0.1, "scores": {"nll": None, "accuracy": 0.25}},
    ],
}
EVALUATE: dict[str, Any] = {
    "examples": 2,
    "scores": {"accuracy": 0.5, "nll": 0.75, "ece": 0.25},
    "plain_scores": {"accuracy": 0.5, "nll": 1.5, "ece": 0.5},
    "reliability": RELIABILITY,
    "entropy_histogram": HISTOGRAM,
    "plain_reliability": RELIABILITY,
    "plain_entropy_histogram": HISTOGRAM,
    "mean_confidence": 0.75,
    "plain_mean_confidence": 0.875,
    "sure": {"confidence": 0.9, "examples": 0, "right": None},
    "by_confidence": {
        "confidence": [0.5, 0.9], "examples": [2, 0], "right": [0.5, None],
        "plain_examples": [2, 1], "plain_right": [0.5, 1.0],
    },
    **CHOSEN,
    "unknown": {
        "examples": 3,
        "entropy": SEPARATION,
        "mutual_information": SEPARATION,
        "plain_entropy": SEPARATION,
        "mean_confidence": 0.5,
        "plain_mean_confidence": 0.75,
        "entropy_histogram": HISTOGRAM,
        "plain_entropy_histogram": HISTOGRAM,
        "least_certain": [CLASSIFIED],
        "most_certain": [CLASSIFIED],
    },
}  # fmt: skip
EVALUATE_NUMBERS: dict[str, Any] = {
    "examples": 1,
    "scores": {"rmse": 0.5, "nll": 1.0, "coverage_90": 1.0, "coverage_95": 1.0},
    "plain_scores": {"rmse": 0.5, "nll": 2.0, "coverage_90": 0.0, "coverage_95": 1.0},
    "interval_coverage": {"level": [0.5, 0.9], "found": [1.0, 1.0], "plain": [0.0, 0.0]},
    "points": {"level": 0.9, "index": [0], "mean": [1.0], "low": [0.5], "high": [1.5], "target": [1.25]},
    "least_certain": [{**EXAMPLE, "mean": [1.0], "std": [0.25], "target": [1.25]}],
    "most_certain": [{**EXAMPLE, "mean": [1.0], "std": [0.25], "target": [1.25]}],
    "farthest_off": [{**EXAMPLE, "mean": [1.0], "std": [0.25], "target": [1.25]}],
    "unknown": {
        "examples": 2,
        "epistemic": SEPARATION,
        "spread_histogram": {"edges": [0.1, 1.0, 10.0], "known": [1, 0], "unknown": [0, 2]},
        "least_certain": [],
        "most_certain": [],
    },
}
PREDICT: dict[str, Any] = {
    "examples": 2,
    "predictions": "run/predict.csv",
    "columns": ["example", "class"],
    "mean_entropy": 0.5,
    "mean_confidence": 0.75,
    "predicted_classes": [["ash", 1], ["birch", 1]],
    "confidence_histogram": HISTOGRAM,
    "least_certain": [CLASSIFIED],
    "most_certain": [CLASSIFIED],
}
PREDICT_NUMBERS: dict[str, Any] = {
    "examples": 2,
    "predictions": "run/predict.csv",
    "columns": ["example", "mean_0"],
    "mean_entropy": 0.5,
    "mean_confidence": None,
    "mean_std": [0.5],
    "mean_epistemic_std": [0.25],
    "least_certain": [],
    "most_certain": [],
}
GAIN: dict[str, Any] = {"mean": -0.1, "low": -0.2, "high": 0.05}
COMPARE: dict[str, Any] = {
    "likelihood": "classification",
    "examples": 20,
    "validation_examples": 10,
    "unknown_examples": {"far": 5},
    "plain_seconds": 0.001,
    "resamples": 100,
    "methods": [
        {
            "name": "plain",
            "says": "the network alone",
            "scores": {"accuracy": 0.5, "nll": 1.0, "brier": 0.5, "ece": 0.25},
            "to_plain": {},
            "to_temperature": {"nll": GAIN},
            "unknown": {"far": {"entropy": {"auroc": 0.75, "fpr95": 0.5, "to_temperature": GAIN}}},
            "cost": {"predict": 1.0, "tune": None, "fit": None, "nbytes": 0},
            "settings": {},
            "calibrated_ece": 0.125,
        }
    ],
    "recommendation": {"method": "plain", "reason": "Keep the plain network."},
    "notes": [],
}
ACQUIRE: dict[str, Any] = {"chosen": [3, 1], "examples": ["row 3", "row 1"], "by": "variance"}
EXPORT: dict[str, Any] = {
    "file": "run/model.onnx",
    "to": "onnx",
    "kind": "last-layer",
    "outputs": ["probs", "novelty"],
    "bytes": 4000,
    "seconds_per_example": 0.002,
    "plain_seconds_per_example": 0.001,
    "differences": {"probs": 1e-7},
    "fingerprint": "0123456789abcdef",
}
RESULTS: dict[str, dict[str, Any]] = {
    "fit": FIT,
    "update": FIT | {"num_data": 80.0},
    "plan": PLAN,
    "tune": TUNE,
    "evaluate": EVALUATE,
    "compare": COMPARE,
    "predict": PREDICT,
    "acquire": ACQUIRE,
    "export": EXPORT,
}


def record(verb: str, began: str = "2026-01-01T10:00:00+00:00", **more: Any) -> dict[str, Any]:
    """Return the record of a verb; `more` replaces or adds keys."""
    return {
        "verb": "fit" if verb == "update" else verb,
        "options": {},
        "result": RESULTS[verb],
        "notes": [],
        "began": began,
        "seconds": 5.0,
        **more,
    }
