"""The page and the picture of toy-rank, from its JSON."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev

from infoform.common.figures import save_figure
from infoform.pages.markdown import bold_best, table
from infoform.pages.numbers import count_of, mean_std
from infoform.pages.template import PageTemplate
from infoform.records.study_result import Result

TEMPLATE = PageTemplate.beside(__file__)
DIAGONAL, OFF = 0, 1
COLOURS = {
    "Diag": "#7f7f7f",
    "KFAC": "#2ca02c",
    "EFB": "#9467bd",
    "INF": "#d62728",
    "INF clipped": "#ff7f0e",
    "ours": "#1f77b4",
}


def page(result: Result) -> str:
    size, networks = _size(result), result.settings["networks"]
    full = mean(_of(result, "INF", OFF, size))
    below = [rank for rank in range(1, size + 1) if mean(_of(result, "ours", OFF, rank)) < full]
    wins = [
        ours < theirs
        for rank in range(1, size + 1)
        for ours, theirs in zip(_of(result, "ours", OFF, rank), _of(result, "INF", OFF, rank), strict=True)
    ]
    return TEMPLATE.fill(
        full=f"{full:.3f}",
        least=f"from rank {min(below)} on" if below else "at no rank",
        networks=networks,
        wins=count_of(wins),
        off=_table(result, OFF),
        diagonal=_table(result, DIAGONAL),
        definite=_definite(result),
        size=size,
    )


def charts(result: Result, folder: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.5, 3.6))
    figure.subplots_adjust(left=0.05, right=0.98, bottom=0.13, top=0.91, wspace=0.13)
    for panel, part, title in zip(
        figure.subplots(1, 2), (DIAGONAL, OFF), ("diagonal error", "off-diagonal error"), strict=True
    ):
        ranks = range(1, _size(result) + 1)
        for label in _fixed(result):
            panel.axhline(mean(_of(result, label, part)), color=COLOURS[label], linestyle="--", label=label)
        for label in _ranked(result):
            values = [_of(result, label, part, rank) for rank in ranks]
            panel.plot(ranks, [mean(one) for one in values], color=COLOURS[label], marker=".", label=label)
            low = [mean(one) - _std(one) for one in values]
            high = [mean(one) + _std(one) for one in values]
            panel.fill_between(ranks, low, high, color=COLOURS[label], alpha=0.15, linewidth=0)
        panel.set(title=title, xlabel="rank", ylim=(-0.03, 1.1))
    panel.legend(fontsize=8, ncols=2)
    save_figure(
        figure, folder / "toy-rank-errors.png", dpi=90, metadata={"Software": None}, pil_kwargs={"optimize": True}
    )


def _table(result: Result, part: int) -> str:
    ranks = sorted({1, 2, 3, 5, 7, 10, _size(result)})
    labels = [*_fixed(result), *_ranked(result)]
    rows = []
    for rank in ranks:
        values = [_of(result, label, part, rank if label in _ranked(result) else None) for label in labels]
        cells = [mean_std(one) for one in values]
        rows.append([str(rank), *bold_best(cells, [round(mean(one), 3) for one in values])])
    return table(["rank", *labels], rows)


def _definite(result: Result) -> str:
    size = _size(result)
    rows = []
    for label in _ranked(result):
        lowest = [[piece["lowest"][label][rank - 1] for piece in result.pieces.values()] for rank in (1, 3, 7, size)]
        rows.append([label, *(f"{min(one):.1e} ({sum(value < -1e-12 for value in one)})" for one in lowest)])
    return table(["", *(f"rank {rank}" for rank in (1, 3, 7, size))], rows)


def _of(result: Result, label: str, part: int, rank: int | None = None) -> list[float]:
    if rank is None:
        return [piece["fixed"][label][part] for piece in result.pieces.values()]
    return [piece["ranked"][label][rank - 1][part] for piece in result.pieces.values()]


def _fixed(result: Result) -> list[str]:
    return list(next(iter(result.pieces.values()))["fixed"])


def _ranked(result: Result) -> list[str]:
    return list(next(iter(result.pieces.values()))["ranked"])


def _size(result: Result) -> int:
    return len(next(iter(next(iter(result.pieces.values()))["ranked"].values())))


def _std(values: Sequence[float]) -> float:
    return stdev(values) if len(values) > 1 else 0.0
