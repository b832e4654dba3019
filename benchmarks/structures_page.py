"""The measured tables of docs/structures.md, from results that others have measured; nothing is measured here.

    python -m benchmarks.structures_page

writes them into the page, between two marks. Means are over networks first and data sets after that.
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import mean
from typing import Any

from benchmarks.common import DOCS, STUDIES, read_results, template, write_page

from infoform.pages.markdown import table
from infoform.pages.numbers import listed, size
from infoform.records.study_result import Result

PAGE = DOCS / "structures.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
INFORMATION = {  # structure -> its name in the experiments on UCI
    "diag": "diag",
    "kfac": "kfac",
    "efb-paper": "efb",
    "inf-paper": "inf 100%",
    "inf": "ours",
}
ROUNDING = 1e-12  # of the lowest eigenvalue over the largest
PRIORS = ("isotropic", "activation")
DEFAULT = ("inf", "activation")
STORED = {"diag": "diag", "inf": "inf isotropic"}  # structure -> its name in speed.json
Piece = Mapping[str, Any]


def measured() -> str:
    """Return the tables, as Markdown."""
    information, likelihood = (Result.load(STUDIES / f"uci-{name}.json") for name in ("information", "likelihood"))
    rows, speed = read_results("predictives")["rows"], read_results("speed")
    stored = {
        row["method"]: row for row in speed["rows"] if (row["stage"], row["network"]) == ("posteriors", "resnet18")
    }
    tasks = dict.fromkeys(row["choice"]["task"] for row in rows)
    return template("structures").fill(
        sets=len(information.settings["sets"]),
        nets=len(information.pieces),
        quality=_quality(information.pieces, likelihood.pieces),
        networks=len({row["choice"]["seed"] for row in rows if row["choice"]["task"] == "digits"}),
        uci=listed([task.removeprefix("uci-") for task in tasks if task.startswith("uci-")]),
        tasks=_tasks(rows),
        weights=f"{stored['diag']['weights']:,}",
        prior=size(stored["inf"]["bytes"] - stored["inf isotropic"]["bytes"]),
        cost=_cost(stored),
    )


def page() -> str:
    """Return docs/structures.md, with the tables between its marks."""
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n\n{measured()}\n\n{END}{tail}".rstrip()


def _quality(information: Mapping[str, Piece], likelihood: Mapping[str, Piece]) -> str:
    """Say how near a structure is to the exact block, on UCI."""
    lines = []
    for structure, name in INFORMATION.items():
        error = _over_sets({key: piece["errors"][name][1] for key, piece in information.items()})
        lows = [piece["lowest"].get(name) for piece in information.values()]
        indefinite = "" if None in lows else f"{sum(low < -ROUNDING for low in lows)} of {len(lows)}"
        short = {
            key.removeprefix("short/"): one["equal"] for key, one in likelihood.items() if key.startswith("short/")
        }
        gap = _over_sets({key: scores[name] - scores["exact"] for key, scores in short.items()})
        lines.append([_code(structure), f"{error:.3f}", indefinite, f"{gap:+.3f}"])
    return table(["structure", "off-diagonal error", "not positive definite", "log-likelihood less exact's"], lines)


def _tasks(rows: Sequence[Piece]) -> str:
    """Say what predictions are like, each structure and prior tuned by validation data."""
    plain = _scores(rows, structure="plain")
    scaled = _scores(rows, structure="temperature")
    sets = [task for task in plain if task.startswith("uci-")]
    gain = mean(scaled[task]["nll"] - plain[task]["nll"] for task in sets)
    lines = [
        ["network alone", "", *_cells(plain["digits"]), ""],
        ["network alone, T or noise tuned", "", *_cells(scaled["digits"]), f"{gain:+.2f}"],
    ]
    for structure in INFORMATION:
        for prior in PRIORS:
            linear = [row for row in rows if row["choice"].get("link") != "probit"]  # with the default link
            own = _scores(linear, structure=structure, prior=prior, kind="linear", tuning="validation")
            gain = mean(own[task]["nll"] - plain[task]["nll"] for task in sets)
            mark = " (default)" if (structure, prior) == DEFAULT else ""
            lines.append([_code(structure) + mark, prior, *_cells(own["digits"]), f"{gain:+.2f}"])
    heads = ["structure", "prior", "digits: NLL", "digits: ECE", "digits: AUROC", "UCI: NLL less plain's"]
    return table(heads, lines, words=2)


def _cost(rows: Mapping[str, Piece]) -> str:
    """Say what a posterior of ResNet-18 takes."""
    from pytorchcv.model_provider import get_model

    from infoform import FitOptions, plan

    network = get_model("resnet18")
    lines = []
    for structure in ("diag", "kfac", "efb", "inf"):
        if structure in STORED:
            row = rows[STORED[structure]]
            sizes = [row["bytes"], row["bfloat16_bytes"]]
        else:
            sizes = [plan(network, structure=structure, fit_options=FitOptions(basis_size=None)).total_bytes, None]
        lines.append([_code(structure), *map(size, sizes)])
    return table(["structure", "stored, float32", "stored, bfloat16"], lines)


def _scores(rows: Iterable[Piece], **wanted: str) -> dict[str, dict[str, float]]:
    """Return the mean of every score over networks, by task."""
    found: dict[str, list[Piece]] = {}
    for row in rows:
        if all(row["choice"].get(name) == value for name, value in wanted.items()):
            found.setdefault(row["choice"]["task"], []).append(row)
    keys = ("nll", "ece", "auroc")
    return {
        task: {key: mean(row[key] for row in own) for key in keys if key in own[0]}
        for task, own in found.items()
        if task == "digits" or task.startswith("uci-")  # not all structures were measured on others
    }


def _over_sets(values: Mapping[str, float]) -> float:
    """Return the mean over data sets of the mean over splits; keys are set/split."""
    sets: dict[str, list[float]] = {}
    for key, value in values.items():
        sets.setdefault(key.split("/")[0], []).append(value)
    return mean(map(mean, sets.values()))


def _cells(scores: Mapping[str, float]) -> list[str]:
    return [f"{scores['nll']:.3f}", f"{scores['ece']:.3f}", f"{scores['auroc']:.3f}"]


def _code(structure: str) -> str:
    return f"`{structure}`"


if __name__ == "__main__":
    write_page("structures", page())
