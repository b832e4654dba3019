"""The page of uci-likelihood: tables from its JSON, beside the paper's and MC-dropout's published numbers."""

from collections import Counter
from collections.abc import Sequence
from statistics import mean, stdev
from typing import Any

from infoform.experiments.uci.published import DROPOUT
from infoform.experiments.uci.published import RMSE as PAPER_RMSE
from infoform.pages.markdown import bold_best, mean_std, table
from infoform.records.study_result import Result

EQUAL = ("plain", "diag", "kfac", "efb", "inf 5%", "inf 100%", "ours 5%", "ours", "exact")
TUNED = ("diag", "kfac", "efb", "inf 5%", "ours 5%", "ours", "exact")


def page(result: Result) -> str:
    parts = [_intro(result)]
    for training in result.settings["trainings"]:
        sets = {name: _pieces(result, training, name) for name in result.settings["sets"]}
        parts += _training(sets, training, result)
    return "\n\n".join(parts)


def _intro(result: Result) -> str:
    share = result.settings["held_out"]
    return f"""Predictions are N(f(x), σ² + ∇ᵀ P⁻¹ ∇), so that all structures have the same mean and RMSE. For each
split a network is trained on {1 - share:.0%} of the training part, and (N, τ, σ) are those of the best mean
log-likelihood of the other {share:.0%}; a network trained on the whole training part is then tested with them. N, τ and
σ are each free: P(sN, sτ) = s P(N, τ), and s, τ / N and σ² are on a grid. Log-likelihoods are in the units of
the data, in nats a test point, mean ± standard error over splits; the largest of a row is bold."""


def _training(sets: dict[str, list[Any]], training: str, result: Result) -> list[str]:
    parts = []
    if training == "long":
        settings = result.settings
        parts.append(
            f"""MC-dropout's published values are of networks trained for 4,000 epochs of mini-batches of 128. So are
these: {settings["long_epochs"]:,} epochs for the sets of less than 2,000 examples; for kin8nm, naval, power and protein
only {settings["long_epochs_large"]:,}, and only the first {settings["long_splits_large"]} splits, for want of time:
those are trained shorter than theirs. Weight decay and epochs
are chosen for each split by the held-out log-likelihood of the plain network."""
        )
    parts += [_rmse_table(sets, training), "## At equal (N, τ, σ), the best ones of the exact block"]
    parts += [_table(sets, "equal", EQUAL), _equal_verdict(sets)]
    parts += ["## Each with its own best (N, τ, σ)", _tuned_table(sets, training)]
    if training == "long":
        parts.append(_dropout_verdict(sets))
    return parts


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


def _table(sets: dict[str, list[Any]], kind: str, labels: Sequence[str]) -> str:
    return table(["", *labels], [[name, *_cells(pieces, kind, labels)] for name, pieces in sets.items()])


def _tuned_table(sets: dict[str, list[Any]], training: str) -> str:
    rows = []
    for name, pieces in sets.items():
        evidence = _error([piece["evidence"]["ours"] for piece in pieces])
        published = [f"{DROPOUT[name]:.2f}"] if training == "long" else []
        rows.append([name, *published, *_cells(pieces, "tuned", TUNED), evidence])
    header = ["", *(["MC-dropout, published"] if training == "long" else []), *TUNED, "ours, by evidence"]
    text = (
        'The last column needs no held-out data: `tune(noise="evidence")`, the rest by default, on the network trained '
        "on all data."
    )
    return text + "\n\n" + table(header, rows)


def _equal_verdict(sets: dict[str, list[Any]]) -> str:
    lines = []
    for label in ("ours", "ours 5%"):
        gaps = {
            name: mean(piece["equal"][label] - piece["equal"]["exact"] for piece in pieces)
            for name, pieces in sets.items()
        }
        missed = {name: gap for name, gap in gaps.items() if abs(gap) > 0.02}
        misses = ", ".join(f"{name} {gap:+.3f}" for name, gap in missed.items())
        lines.append(
            f"`{label}` is within 0.02 nats of the exact block on {len(gaps) - len(missed)} of {len(gaps)} sets"
            + (f" (difference elsewhere: {misses})." if missed else ".")
        )
    return " ".join(lines)


def _dropout_verdict(sets: dict[str, list[Any]]) -> str:
    values = {name: mean(piece["tuned"]["ours"] for piece in pieces) for name, pieces in sets.items()}
    missed = {name: values[name] - DROPOUT[name] for name in values if round(values[name], 2) < DROPOUT[name]}
    misses = ", ".join(f"{name} by {-gap:.2f}" for name, gap in missed.items())
    return (
        f"`ours`, tuned on held-out data, is at least as good as MC-dropout's published value on "
        f"{len(values) - len(missed)} of {len(values)} sets" + (f"; it falls short on {misses}." if missed else ".")
    )


def _pieces(result: Result, training: str, name: str) -> list[Any]:
    return [piece for key, piece in result.pieces.items() if key.split("/")[:2] == [training, name]]


def _cells(pieces: list[Any], kind: str, labels: Sequence[str]) -> list[str]:
    values = [[piece[kind][label] for piece in pieces] for label in labels]
    return bold_best([_error(one) for one in values], [round(mean(one), 3) for one in values], largest=True)


def _error(values: list[float]) -> str:
    """Return `mean ± standard error`."""
    if len(values) < 2:
        return f"{values[0]:.3f}"
    return f"{mean(values):.3f} ± {stdev(values) / len(values) ** 0.5:.3f}"


def _counts(values: list[float]) -> str:
    return ", ".join(f"{value:g} ({count})" for value, count in sorted(Counter(values).items()))
