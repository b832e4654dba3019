"""The page of time: means and ratios of its JSON, beside the paper's tables."""

from collections.abc import Mapping, Sequence
from statistics import mean, median
from typing import Any

from infoform.experiments.cost.published import FITS as PAPER_FITS
from infoform.experiments.cost.published import SAMPLES as PAPER_SAMPLES
from infoform.experiments.networks.architectures import ARCHITECTURES
from infoform.pages.markdown import bullets, table
from infoform.pages.numbers import mean_std, span
from infoform.pages.template import PageTemplate
from infoform.records.study_result import Result

TEMPLATE = PageTemplate.beside(__file__)
Seconds = Mapping[str, Sequence[float]]


def page(result: Result) -> str:
    samples, fits, efb = (_seconds(result, work) for work in ("samples", "fits", "efb"))
    settings = result.settings
    return TEMPLATE.fill(
        sample_times=span([_ratio(seconds, "inf") for seconds in samples.values()], ".1f"),
        kfac_times=span([_ratio(seconds, "kfac") for seconds in samples.values()], ".0f"),
        sample_ratios=_ratios(samples, PAPER_SAMPLES, {"inf": 3, "kfac": 1, "efb": 2}),
        verdict=_sample_verdict(samples),
        milliseconds=_milliseconds(samples),
        fit_ratios=_ratios(fits, PAPER_FITS, {"inf": 3, "kfac": 1}),
        fit_seconds=_fit_seconds(fits),
        efb=_efb(efb),
        sample_rounds=settings["sample_rounds"],
        fit_rounds=settings["fit_rounds"],
        images=settings["images"],
        size=settings["size"],
        batch=settings["batch"],
    )


def _seconds(result: Result, work: str) -> dict[str, Seconds]:
    """Return the seconds of every round by structure, by network, of one kind of work."""
    return {key.split()[0]: piece["seconds"] for key, piece in result.pieces.items() if key.endswith(work)}


def _milliseconds(found: Mapping[str, Seconds]) -> str:
    names = list(next(iter(found.values())))
    rows = [
        [
            ARCHITECTURES.get(network, network),
            *(mean_std([1e3 * value for value in seconds[name]], 1) for name in names),
        ]
        for network, seconds in found.items()
    ]
    return table(["", *(f"`{name}`" for name in names)], rows)


def _ratio(seconds: Seconds, name: str) -> float:
    return median(one / diag for one, diag in zip(seconds[name], seconds["diag"], strict=True))


def _ratios(found: Mapping[str, Seconds], paper: Mapping[str, Sequence[float]], places: Mapping[str, int]) -> str:
    names = [name for name in next(iter(found.values())) if name != "diag"]
    rows = []
    for network, seconds in found.items():
        cells = [ARCHITECTURES.get(network, network)]
        for name in names:
            printed = ""
            if name in places and network in paper:
                printed = f" ({paper[network][places[name]] / paper[network][0]:.2f})"
            cells.append(f"{_ratio(seconds, name):.2f}{printed}")
        rows.append(cells)
    return table(["", *(f"`{name}`" for name in names)], rows)


def _sample_verdict(found: Mapping[str, Seconds]) -> str:
    lines = []
    for network, seconds in found.items():
        beaten = [name for name in ("kfac", "efb") if _ratio(seconds, "inf") < _ratio(seconds, name)]
        word = "faster than " + " and ".join(beaten) if beaten else "slower than KFAC and EFB"
        text = f"{ARCHITECTURES.get(network, network)}: `inf` is {word}"
        if network in PAPER_SAMPLES:
            _, kfac, _, inf = PAPER_SAMPLES[network]
            share = _ratio(seconds, "inf") / _ratio(seconds, "kfac")
            text += f" ({share:.2f} of KFAC's time; the paper's INF: {inf / kfac:.2f})"
        lines.append(text + ".")
    return bullets(lines)


def _fit_seconds(found: Mapping[str, Seconds]) -> str:
    rows: list[list[Any]] = [
        [ARCHITECTURES.get(network, network), *(f"{mean(values):.2f}" for values in seconds.values())]
        for network, seconds in found.items()
    ]
    names = list(next(iter(found.values())))
    return table(["", *(f"`{name}`" for name in names)], rows)


def _efb(found: Mapping[str, Seconds]) -> str:
    rows = []
    for network, seconds in found.items():
        printed = ""
        if network in PAPER_FITS:
            printed = f" ({PAPER_FITS[network][2] / PAPER_FITS[network][0]:.2f})"
        cells = [f"{seconds[name][0]:.2f}" for name in ("diag", "efb")]
        rows.append([ARCHITECTURES.get(network, network), *cells, f"{_ratio(seconds, 'efb'):.2f}{printed}"])
    return table(["", "`diag`, seconds", "`efb`, seconds", "ratio (the paper's)"], rows)
