"""The page of uci-information: tables from its JSON, beside the paper's numbers."""

from collections.abc import Sequence
from statistics import mean
from typing import Any

from infoform.experiments.uci.published import ERRORS as PAPER
from infoform.pages.markdown import bold_best, table
from infoform.pages.numbers import mean_std, span
from infoform.pages.template import PageTemplate
from infoform.records.study_result import Result

TEMPLATE = PageTemplate.beside(__file__)
DEFAULT_RANK = 100  # of the library
ROUNDING = 1e-12  # of the lowest eigenvalue over the largest
DIAGONAL, OFF, DIAGONAL_ALL, OFF_ALL = range(4)  # of a method's errors in the JSON
RIVALS = ("diag", "kfac", "okf", "efb", "inf 100%", "inf 5%")


def page(result: Result) -> str:
    settings = result.settings
    sets = {name: _pieces(result, name) for name in settings["sets"]}
    compared = {name: [piece for piece in pieces if "ratios" in piece] for name, pieces in sets.items()}
    ours = [_mean(pieces, "ours", OFF) for pieces in sets.values()]
    rivals = [_mean(pieces, label, OFF) for pieces in sets.values() for label in ("kfac", "efb", "inf 100%", "inf 5%")]
    return TEMPLATE.fill(
        ours_error=span(ours, ".3f"),
        rival_error=span(rivals, ".3f"),
        below_paper=_count(
            [name for name, pieces in sets.items() if _mean(pieces, "ours 5%", OFF) < PAPER[name][3]], sets
        ),
        below_rivals=_count([name for name, pieces in sets.items() if _is_least(pieces, "ours 5%")], sets),
        off=_off_table(sets),
        variance=_variance_table(compared),
        precisions=", ".join(f"{value:g}" for value in settings["prior_precisions"]),
        variance_splits=settings["variance_splits"],
        variance_verdict=_variance_verdict(compared),
        by_precision=_by_precision(result, compared),
        diagonal=_diagonal_table(sets),
        ranks=_rank_table(sets),
        both=_all_table(sets),
        default_rank=DEFAULT_RANK,
        definite=_definite_table(sets),
        epochs=settings["epochs"],
        batch=settings["batch_size"],
        rate=f"{settings['learning_rate']:g}",
    )


def _off_table(sets: dict[str, list[Any]]) -> str:
    labels = ("kfac", "efb", "inf 100%", "inf 5%", "ours 5%", "ours")
    header = ["", "paper: KFAC", "paper: INF", "paper: INF 5 %", *labels]
    rows = []
    for name, pieces in sets.items():
        paper = [f"{value:.3f}" for value in PAPER[name][2:]]
        rows.append([name, *paper, *_best_cells(pieces, labels, OFF)])
    return table(header, rows)


def _is_least(pieces: list[Any], ours: str) -> bool:
    error = _mean(pieces, ours, OFF)
    return all(error < _mean(pieces, label, OFF) for label in ("kfac", "efb", "inf 100%", "inf 5%"))


def _rank_table(sets: dict[str, list[Any]]) -> str:
    labels = ("diag", "inf 100%", "inf 75%", "inf 50%", "inf 25%", "inf 5%")
    rows = [[name, *(_cell(pieces, label, OFF) for label in labels)] for name, pieces in sets.items()]
    return table(["", *labels], rows)


def _diagonal_table(sets: dict[str, list[Any]]) -> str:
    labels = ("kfac", "efb", "inf 100%", "inf 5%", "ours 5%", "ours", "ours, sampled Fisher")
    rows = [
        [name, *(f"{value:.3f}" for value in PAPER[name][:2]), *(_cell(pieces, label, DIAGONAL) for label in labels)]
        for name, pieces in sets.items()
    ]
    return table(["", "paper: KFAC", "paper: EFB", *labels], rows)


def _all_table(sets: dict[str, list[Any]]) -> str:
    labels = ("kfac", "efb", "inf 100%", "inf 5%", "ours 5%", "ours")
    return table(["", *labels], [[name, *_best_cells(pieces, labels, OFF_ALL)] for name, pieces in sets.items()])


def _definite_table(sets: dict[str, list[Any]]) -> str:
    labels = ("inf 100%", "inf 5%", "ours 5%", "ours")
    rows = []
    for name, pieces in sets.items():
        lowest = {label: [piece["lowest"][label] for piece in pieces] for label in labels}
        negative = [f"{sum(value < -ROUNDING for value in lowest[label])} of {len(pieces)}" for label in labels]
        share = f"{mean(piece['clipped'] for piece in pieces):.0%}"
        rows.append([name, *negative, f"{min(lowest['inf 5%']):.1e}", f"{min(lowest['ours 5%']):.1e}", share])
    header = ["not definite at τ = 0⁺", *labels, "lowest, inf 5%", "lowest, ours 5%", "D < 0 in inf 100%"]
    return table(header, rows)


def _variance_table(sets: dict[str, list[Any]]) -> str:
    labels = (*RIVALS, "ours 5%", "ours", "ours 100%")
    rows = []
    for name, pieces in sets.items():
        values = {label: [_absolute(piece, label) for piece in pieces] for label in labels}
        cells = [mean_std(values[label], 2) for label in labels]
        rows.append([name, *bold_best(cells, [mean(values[label]) for label in labels])])
    return table(["", *labels], rows)


def _variance_verdict(sets: dict[str, list[Any]]) -> str:
    def smallest(ours: str) -> list[str]:
        return [
            name
            for name, pieces in sets.items()
            if all(_mean_ratio(pieces, ours) < _mean_ratio(pieces, label) for label in RIVALS)
        ]

    return (
        f"Against all others, ours with its defaults has the smallest error on {_count(smallest('ours'), sets)}, at "
        f"5 % on {_count(smallest('ours 5%'), sets)}, and with all eigenpairs, as EFB and KFAC have them, on "
        f"{_count(smallest('ours 100%'), sets)}."
    )


def _by_precision(result: Result, sets: dict[str, list[Any]]) -> str:
    labels = (*RIVALS, "ours 5%", "ours", "ours 100%")
    header = ["τ", *labels, "log(v / v_exact)"]
    rows = []
    for at, precision in enumerate(result.settings["prior_precisions"]):
        values = [
            mean(piece["ratios"][label][at][0] for pieces in sets.values() for piece in pieces) for label in labels
        ]
        sign = mean(piece["ratios"]["ours"][at][1] for pieces in sets.values() for piece in pieces)
        cells = bold_best([f"{value:.2f}" for value in values], values)
        rows.append([f"{precision:g}", *cells, f"{sign:+.2f}"])
    return table(header, rows)


def _pieces(result: Result, name: str) -> list[Any]:
    return [piece for key, piece in result.pieces.items() if key.split("/")[0] == name]


def _mean(pieces: list[Any], label: str, which: int) -> float:
    return float(mean(piece["errors"][label][which] for piece in pieces))


def _cell(pieces: list[Any], label: str, which: int) -> str:
    return mean_std([piece["errors"][label][which] for piece in pieces])


def _best_cells(pieces: list[Any], labels: Sequence[str], which: int) -> list[str]:
    return bold_best(
        [_cell(pieces, label, which) for label in labels], [_mean(pieces, label, which) for label in labels]
    )


def _absolute(piece: Any, label: str) -> float:
    return float(mean(one[0] for one in piece["ratios"][label]))


def _mean_ratio(pieces: list[Any], label: str) -> float:
    return mean(_absolute(piece, label) for piece in pieces)


def _count(names: Sequence[str], sets: dict[str, list[Any]]) -> str:
    missed = [name for name in sets if name not in names]
    return f"{len(names)} of {len(sets)} sets" + (f" (not on {', '.join(missed)})" if missed else "")
