"""The page of uci-likelihood: tables from its JSON, beside the paper's and MC-dropout's published numbers."""

from collections import Counter
from collections.abc import Sequence
from statistics import mean
from typing import Any

from infoform.experiments.uci.published import DROPOUT, DROPOUT_EPOCHS
from infoform.experiments.uci.published import RMSE as PAPER_RMSE
from infoform.pages.markdown import bold_best, table
from infoform.pages.numbers import listed, mean_error, mean_std
from infoform.pages.template import PageTemplate
from infoform.records.study_result import Result

TEMPLATE = PageTemplate.beside(__file__)
CLOSE = 0.02  # nats
EQUAL = ("plain", "diag", "kfac", "efb", "inf 5%", "inf 100%", "ours 5%", "ours", "exact")
TUNED = ("diag", "kfac", "efb", "inf 5%", "ours 5%", "ours", "exact")


def page(result: Result) -> str:
    share = result.settings["held_out"]
    return TEMPLATE.fill(
        trainings="\n\n".join(_training(result, training) for training in result.settings["trainings"]),
        fitted=f"{1 - share:.0%}",
        held_out=f"{share:.0%}",
    )


def _training(result: Result, training: str) -> str:
    settings = result.settings
    sets = {name: _pieces(result, training, name) for name in settings["sets"]}
    values: dict[str, object] = {
        "verdict": _equal_verdict(sets),
        "equal": table(["", *EQUAL], [[name, *_cells(pieces, "equal", EQUAL)] for name, pieces in sets.items()]),
        "tuned": _tuned_table(sets, training),
        "rmse": _rmse_table(sets, training),
    }
    if training == "long":
        few = settings["long_splits_large"]
        large = [name for name, pieces in sets.items() if len(pieces) <= few < settings["splits"]]
        values |= {
            "dropout": _dropout_verdict(sets),
            "dropout_epochs": f"{DROPOUT_EPOCHS:,}",
            "batch": settings["long_batch"],
            "epochs": f"{settings['long_epochs']:,}",
            "large": listed(large) if large else None,
            "epochs_large": f"{settings['long_epochs_large']:,}",
            "splits_large": few,
        }
    return TEMPLATE.part(training).fill(**values)


def _rmse_table(sets: dict[str, list[Any]], training: str) -> str:
    rows = []
    for name, pieces in sets.items():
        digits = 4 if name in ("naval", "kin8nm") else 3
        row = [name, f"{PAPER_RMSE[name]:.3f}", mean_std([piece["rmse"] for piece in pieces], digits)]
        if training == "long":
            row += [_counts([piece["epochs"] for piece in pieces]), _counts([piece["decay"] for piece in pieces])]
        rows.append(row)
    header = ["RMSE", "paper", "this run (± std)"]
    return table([*header, "epochs chosen", "decay chosen"] if training == "long" else header, rows)


def _tuned_table(sets: dict[str, list[Any]], training: str) -> str:
    rows = []
    for name, pieces in sets.items():
        evidence = mean_error([piece["evidence"]["ours"] for piece in pieces])
        published = [f"{DROPOUT[name]:.2f}"] if training == "long" else []
        rows.append([name, *published, *_cells(pieces, "tuned", TUNED), evidence])
    header = ["", *(["MC-dropout, published"] if training == "long" else []), *TUNED, "ours, by evidence"]
    return table(header, rows)


def _equal_verdict(sets: dict[str, list[Any]]) -> str:
    lines = []
    for label in ("ours", "ours 5%"):
        gaps = {
            name: mean(piece["equal"][label] - piece["equal"]["exact"] for piece in pieces)
            for name, pieces in sets.items()
        }
        missed = {name: gap for name, gap in gaps.items() if abs(gap) > CLOSE}
        misses = ", ".join(f"{name} {gap:+.3f}" for name, gap in missed.items())
        lines.append(
            f"`{label}` is within {CLOSE} nats of the exact block on {len(gaps) - len(missed)} of {len(gaps)} sets"
            + (f" (difference elsewhere: {misses})." if missed else ".")
        )
    return " ".join(lines)


def _dropout_verdict(sets: dict[str, list[Any]]) -> str:
    values = {name: mean(piece["tuned"]["ours"] for piece in pieces) for name, pieces in sets.items()}
    missed = {name: values[name] - DROPOUT[name] for name in values if round(values[name], 2) < DROPOUT[name]}
    misses = ", ".join(f"{name} by {-gap:.2f}" for name, gap in missed.items())
    return f"{len(values) - len(missed)} of {len(values)} sets" + (f"; it falls short on {misses}." if missed else ".")


def _pieces(result: Result, training: str, name: str) -> list[Any]:
    return [piece for key, piece in result.pieces.items() if key.split("/")[:2] == [training, name]]


def _cells(pieces: list[Any], kind: str, labels: Sequence[str]) -> list[str]:
    values = [[piece[kind][label] for piece in pieces] for label in labels]
    return bold_best([mean_error(one) for one in values], [round(mean(one), 3) for one in values], largest=True)


def _counts(values: list[float]) -> str:
    return ", ".join(f"{value:g} ({count})" for value, count in sorted(Counter(values).items()))
