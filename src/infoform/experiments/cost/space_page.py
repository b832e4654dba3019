"""The page of space: values and megabytes of its JSON, beside the paper's."""

from typing import Any

from infoform.experiments.cost.published import SPACE as PAPER
from infoform.experiments.networks.architectures import ARCHITECTURES
from infoform.pages.markdown import bullets, table
from infoform.pages.numbers import span
from infoform.pages.template import PageTemplate
from infoform.records.study_result import Result

TEMPLATE = PageTemplate.beside(__file__)
ORDER = ("diag", "kfac", "efb-paper", "inf-paper")  # as in the paper's columns
OURS = ("inf", "inf, activation prior")
MEGABYTE = 2**20  # as the paper counts


def page(result: Result) -> str:
    settings, pieces = result.settings, result.pieces
    stored = [piece["stored"] for piece in pieces.values()]
    return TEMPLATE.fill(
        share_of_kfac=span([one["inf"]["bytes"] / one["kfac"]["bytes"] for one in stored], ".0%"),
        times_diag=span([one["inf"]["bytes"] / one["diag"]["bytes"] for one in stored]),
        half_times_diag=span([one["inf"]["bfloat16_bytes"] / one["diag"]["bytes"] for one in stored]),
        megabytes=_megabytes(pieces),
        halves=_halves(pieces),
        verdict=_verdict(pieces),
        planned=_planned(pieces),
        values=_values(pieces),
        images=settings["images"],
        size=settings["size"],
        rank=settings["rank"],
        prior_rank=settings["prior_rank"],
        networks=None if settings["paper_basis"] else len(pieces),
    )


def _values(pieces: Any) -> str:
    rows = []
    for network, piece in pieces.items():
        cells = [ARCHITECTURES.get(network, network)]
        for at, name in enumerate(ORDER):
            paper = f" ({PAPER[network][at]:,})" if network in PAPER else ""
            cells.append(f"{piece['stored'][name]['values']:,}{paper}")
        rows.append([*cells, *(f"{piece['stored'][name]['values']:,}" for name in OURS)])
    return table(["", *(f"`{name}`" for name in ORDER), *_ours()], rows)


def _megabytes(pieces: Any) -> str:
    rows = []
    for network, piece in pieces.items():
        cells = [ARCHITECTURES.get(network, network)]
        for at, name in enumerate(ORDER):
            paper = f" ({4 * PAPER[network][at] / MEGABYTE:.1f})" if network in PAPER else ""
            cells.append(f"{piece['stored'][name]['bytes'] / MEGABYTE:.1f}{paper}")
        cells += [f"{piece['stored'][name]['bytes'] / MEGABYTE:.1f}" for name in OURS]
        rows.append([*cells, f"{piece['stored'][OURS[1]]['file'] / MEGABYTE:.1f}"])
    header = ["", *(f"`{name}`" for name in ORDER), *_ours(), "file of the last"]
    return table(header, rows)


def _halves(pieces: Any) -> str:
    names = ("diag", "inf-paper", *OURS)
    rows = [
        [ARCHITECTURES.get(network, network)]
        + [_half(piece["stored"][name]) for name in names]
        + [f"{4 * PAPER[network][3] / MEGABYTE:.1f}" if network in PAPER else "–"]
        for network, piece in pieces.items()
    ]
    return table(["", "`diag`", "`inf-paper`", *_ours(), "paper: INF, float32"], rows)


def _half(stored: dict[str, Any]) -> str:
    return f"{stored['bfloat16_bytes'] / MEGABYTE:.1f}" if "bfloat16_bytes" in stored else "–"


def _planned(pieces: Any) -> str:
    names = (*ORDER, "inf, activation prior")
    rows = []
    for network, piece in pieces.items():
        cells = [ARCHITECTURES.get(network, network)]
        for name in names:
            planned = piece["planned"][name.split(",")[0]]["float32"]
            share = piece["stored"][name]["bytes"] / planned
            cells.append("equal" if share == 1 else f"{share:.3f}")
        rows.append(cells)
    return table(["", *(f"`{name}`" for name in ORDER), _ours()[1]], rows)


def _verdict(pieces: Any) -> str:
    lines = []
    for network, piece in pieces.items():
        stored = piece["stored"]
        size = stored["inf"]["bytes"]
        half = stored["inf"]["bfloat16_bytes"]
        paper = 4 * PAPER[network][3] if network in PAPER else None
        text = (
            f"{ARCHITECTURES.get(network, network)}: `inf` takes {size / stored['kfac']['bytes']:.1%} of KFAC's bytes"
        )
        text += f", {size / stored['diag']['bytes']:.2f} of Diag's; in bfloat16 {half / stored['diag']['bytes']:.2f}"
        if paper is not None:
            text += f", and {half / paper:.2f} of the paper's INF ({size / paper:.2f} in float32)"
        lines.append(text + ".")
    return bullets(lines)


def _ours() -> list[str]:
    return ["`inf` (ours)", "`inf`, activation prior"]
