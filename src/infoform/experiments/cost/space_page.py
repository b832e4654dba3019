"""The page of space: values and megabytes of its JSON, beside the paper's."""

from typing import Any

from infoform.experiments.cost.published import SPACE as PAPER
from infoform.experiments.networks.architectures import ARCHITECTURES
from infoform.pages.markdown import table
from infoform.records.study_result import Result

ORDER = ("diag", "kfac", "efb-paper", "inf-paper")  # as in the paper's columns
OURS = ("inf", "inf, activation prior")
MEGABYTE = 2**20  # as the paper counts


def page(result: Result) -> str:
    pieces = result.pieces
    return "\n\n".join(
        [
            _intro(result),
            "## Values",
            _values(pieces),
            "## Megabytes (of 2²⁰ bytes), float32",
            _megabytes(pieces),
            "## Megabytes in bfloat16",
            _halves(pieces),
            "## Planned and stored",
            _planned(pieces),
            "## What it says",
            _verdict(pieces),
        ]
    )


def _intro(result: Result) -> str:
    s = result.settings
    paper = (
        ""
        if s["paper_basis"]
        else """ KFAC and EFB are counted from the shapes that their tensors have, and
`inf-paper` is here the paper's form of INF (grid support, additive correction) in our basis: in its own it needs an
eigendecomposition of every layer's input factor, hours for all five networks (`--full`)."""
    )
    return f"""Networks are pytorchcv's definitions at a random start, fitted on {s["images"]} photographs of
{s["size"]}² pixels at rank {s["rank"]}: what is stored does not depend on the number and the size of pictures, but for
which eigenvectors INF's pairs use.{paper} Values are all numbers of whatever type: `inf` has a byte for each weight,
the scale S, besides its diagonal. The activation prior (the default of `inf` on classifiers) adds
{s["prior_rank"]} eigenpairs and the diagonal of every layer's inputs."""


def _values(pieces: Any) -> str:
    rows = []
    for network, piece in pieces.items():
        cells = [ARCHITECTURES.get(network, network)]
        for at, name in enumerate(ORDER):
            paper = f" ({PAPER[network][at]:,})" if network in PAPER else ""
            cells.append(f"{piece['stored'][name]['values']:,}{paper}")
        rows.append([*cells, *(f"{piece['stored'][name]['values']:,}" for name in OURS)])
    return "The paper's in parentheses.\n\n" + table(["", *(f"`{name}`" for name in ORDER), *_ours()], rows)


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
    return "The paper's in parentheses.\n\n" + table(header, rows)


def _halves(pieces: Any) -> str:
    names = ("diag", "inf-paper", *OURS)
    rows = [
        [ARCHITECTURES.get(network, network)]
        + [_half(piece["stored"][name]) for name in names]
        + [f"{4 * PAPER[network][3] / MEGABYTE:.1f}" if network in PAPER else "–"]
        for network, piece in pieces.items()
    ]
    text = """Diagonal and eigenvectors in bfloat16; eigenvalues, pairs and scales as before. KFAC and EFB have no such
form here."""
    return f"{text}\n\n" + table(["", "`diag`", "`inf-paper`", *_ours(), "paper: INF, float32"], rows)


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
    return """Bytes stored, as a share of what `infoform.plan` tells before any data is seen: it is exact for the first
three, and for INF the most that it can take.\n\n""" + table(["", *(f"`{name}`" for name in ORDER), _ours()[1]], rows)


def _verdict(pieces: Any) -> str:
    lines = []
    for network, piece in pieces.items():
        stored = piece["stored"]
        size = stored["inf"]["bytes"]
        half = stored["inf"]["bfloat16_bytes"]
        paper = 4 * PAPER[network][3] if network in PAPER else None
        text = (
            f"- {ARCHITECTURES.get(network, network)}: `inf` takes {size / stored['kfac']['bytes']:.1%} of KFAC's bytes"
        )
        text += f", {size / stored['diag']['bytes']:.2f} of Diag's; in bfloat16 {half / stored['diag']['bytes']:.2f}"
        if paper is not None:
            text += f", and {half / paper:.2f} of the paper's INF ({size / paper:.2f} in float32)"
        lines.append(text + ".")
    return "\n".join(lines)


def _ours() -> list[str]:
    return ["`inf` (ours)", "`inf`, activation prior"]
