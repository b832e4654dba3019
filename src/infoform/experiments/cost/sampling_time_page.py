"""The page of time: means and ratios of its JSON, beside the paper's tables."""

from collections.abc import Mapping, Sequence
from statistics import mean, median, stdev
from typing import Any

from infoform.experiments.cost.published import FITS as PAPER_FITS
from infoform.experiments.cost.published import SAMPLES as PAPER_SAMPLES
from infoform.experiments.networks.architectures import ARCHITECTURES
from infoform.pages.markdown import table
from infoform.records.study_result import Result

Seconds = Mapping[str, Sequence[float]]


def page(result: Result) -> str:
    samples = {key.split()[0]: piece["seconds"] for key, piece in result.pieces.items() if key.endswith("samples")}
    fits = {key.split()[0]: piece["seconds"] for key, piece in result.pieces.items() if key.endswith("fits")}
    efb = {key.split()[0]: piece["seconds"] for key, piece in result.pieces.items() if key.endswith("efb")}
    s = result.settings
    return "\n\n".join(
        [
            f"""One thread. Each round runs every structure once; {s["sample_rounds"]} rounds of samples, and
{s["fit_rounds"]} of fits of {s["images"]} photographs ({s["size"]}² pixels, batches of {s["batch"]}), after one that is
not counted. Networks are pytorchcv's at a random start. KFAC and EFB are drawn from with random matrices in place of
a fit's: the time of dense products does not depend on their numbers. `inf-paper` is the paper's form of INF (grid
support, additive correction) in our basis and with our sampler.""",
            "## A sample of all weights, milliseconds",
            _milliseconds(samples),
            "## The same over Diag's",
            "Medians of the rounds' ratios; the paper's (on a GPU) in parentheses.",
            _ratios(samples, PAPER_SAMPLES, {"inf": 3, "kfac": 1, "efb": 2}),
            _sample_verdict(samples),
            "## The information matrix, over Diag's",
            """Medians of the rounds' ratios; the paper's in parentheses. KFAC's is the time to its factors, which a
posterior has yet to decompose; INF's is all of it.""",
            _ratios(fits, PAPER_FITS, {"inf": 3, "kfac": 1}),
            _fit_seconds(fits),
            """EFB decomposes every layer's factors, which for few photographs is most of its time; once, beside a fit
of Diag:""",
            _efb(efb),
        ]
    )


def _milliseconds(found: Mapping[str, Seconds]) -> str:
    names = list(next(iter(found.values())))
    rows = [
        [ARCHITECTURES.get(network, network), *(_spread(seconds[name]) for name in names)]
        for network, seconds in found.items()
    ]
    return table(["", *(f"`{name}`" for name in names)], rows)


def _spread(seconds: Sequence[float]) -> str:
    values = [1e3 * value for value in seconds]
    return f"{mean(values):.1f} ± {stdev(values):.1f}" if len(values) > 1 else f"{values[0]:.1f}"


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
        text = f"- {ARCHITECTURES.get(network, network)}: `inf` is {word}"
        if network in PAPER_SAMPLES:
            _, kfac, _, inf = PAPER_SAMPLES[network]
            share = _ratio(seconds, "inf") / _ratio(seconds, "kfac")
            text += f" ({share:.2f} of KFAC's time; the paper's INF: {inf / kfac:.2f})"
        lines.append(text + ".")
    return "\n".join(lines)


def _fit_seconds(found: Mapping[str, Seconds]) -> str:
    rows: list[list[Any]] = [
        [ARCHITECTURES.get(network, network), *(f"{mean(values):.2f}" for values in seconds.values())]
        for network, seconds in found.items()
    ]
    names = list(next(iter(found.values())))
    return "Mean seconds of a fit:\n\n" + table(["", *(f"`{name}`" for name in names)], rows)


def _efb(found: Mapping[str, Seconds]) -> str:
    rows = []
    for network, seconds in found.items():
        printed = ""
        if network in PAPER_FITS:
            printed = f" ({PAPER_FITS[network][2] / PAPER_FITS[network][0]:.2f})"
        cells = [f"{seconds[name][0]:.2f}" for name in ("diag", "efb")]
        rows.append([ARCHITECTURES.get(network, network), *cells, f"{_ratio(seconds, 'efb'):.2f}{printed}"])
    return table(["", "`diag`, seconds", "`efb`, seconds", "ratio (the paper's)"], rows)
