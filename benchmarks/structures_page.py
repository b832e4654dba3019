"""The measured tables of docs/structures.md, from results that others have measured; nothing is measured here.

    python -m benchmarks.structures_page

writes them into the page, between two marks. Means are over networks first and data sets after that.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "structures.md"
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


def measured(root: Path = ROOT) -> str:
    """Return the tables, as Markdown."""
    information, likelihood = (_read(root / f"results/uci-{name}.json") for name in ("information", "likelihood"))
    predictives, speed = (_read(root / f"benchmarks/results/{name}.json") for name in ("predictives", "speed"))
    return "\n\n".join(
        (_quality(information["pieces"], likelihood["pieces"]), _tasks(predictives["rows"]), _cost(speed))
    )


def write_page(page: Path = PAGE) -> None:
    """Put the tables where the page has its marks."""
    head, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, tail = rest.partition(END)
    page.write_text(f"{head}{BEGIN}\n\n{measured()}\n\n{END}{tail}", encoding="utf-8")


def _quality(information: Mapping[str, Piece], likelihood: Mapping[str, Piece]) -> str:
    """Say how near a structure is to the exact block, on UCI."""
    lines = [["structure", "off-diagonal error", "not positive definite", "log-likelihood less exact's"]]
    for structure, name in INFORMATION.items():
        error = _over_sets({key: piece["errors"][name][1] for key, piece in information.items()})
        lows = [piece["lowest"].get(name) for piece in information.values()]
        indefinite = "" if None in lows else f"{sum(low < -ROUNDING for low in lows)} of {len(lows)}"
        short = {
            key.removeprefix("short/"): one["equal"] for key, one in likelihood.items() if key.startswith("short/")
        }
        gap = _over_sets({key: scores[name] - scores["exact"] for key, scores in short.items()})
        lines.append([_code(structure), f"{error:.3f}", indefinite, f"{gap:+.3f}"])
    nets = len(information)
    return (
        f"**How near it is to the exact matrix.** Nine UCI sets, {nets} networks, first layer; mean over sets. "
        "The error is that of the paper, |Î − I| / |I| off the diagonal. The log-likelihoods are of linearised "
        "predictions, all at the (N, τ, σ) that suits the exact block best, in nats a test point. *Not positive "
        "definite*: networks for which it has a negative eigenvalue, and so no posterior without a prior. "
        "`inf-paper` has all its eigenpairs here, `inf` its default, K = 100.\n\n" + _table(lines)
    )


def _tasks(rows: Sequence[Piece]) -> str:
    """Say what predictions are like, each structure and prior with the τ that validation data choose."""
    lines = [["structure", "prior", "digits: NLL", "digits: ECE", "digits: AUROC", "UCI: NLL less plain's"]]
    plain = _scores(rows, structure="plain")
    lines.append(["plain network", "", *_cells(plain["digits"]), ""])
    for structure in INFORMATION:
        for prior in PRIORS:
            own = _scores(rows, structure=structure, prior=prior, kind="linear", tuning="validation")
            sets = [task for task in own if task.startswith("uci-")]
            gain = mean(own[task]["nll"] - plain[task]["nll"] for task in sets)
            mark = " (default)" if (structure, prior) == DEFAULT else ""
            lines.append([_code(structure) + mark, prior, *_cells(own["digits"]), f"{gain:+.2f}"])
    return (
        '**What predictions are like.** `kind="linear"`, τ by the NLL of validation data. *Digits*: the demo\'s CNN on '
        "400 noisy digits, three networks; AUROC of the entropy, unknown: shuffled pixels. *UCI*: Boston, concrete and "
        "yacht, three splits each; the NLL of standardised targets, less that of the plain network. Differences on "
        "digits of less than 0.01 in NLL or ECE are within the spread between networks "
        "([all rows](predictives.md)).\n\n" + _table(lines)
    )


def _cost(speed: Mapping[str, Any]) -> str:
    """Say what a posterior of ResNet-18 takes."""
    from pytorchcv.model_provider import get_model

    from infoform import plan

    rows = {row["method"]: row for row in speed["rows"] if (row["stage"], row["network"]) == ("posteriors", "resnet18")}
    network = get_model("resnet18")
    lines = [["structure", "stored, float32", "stored, bfloat16"]]
    for structure in ("diag", "kfac", "efb", "inf"):
        if structure in STORED:
            row = rows[STORED[structure]]
            sizes = [row["bytes"], row["bfloat16_bytes"]]
        else:
            sizes = [plan(network, structure=structure, basis_size=None).total_bytes]
        lines.append([_code(structure), *(f"{size / 1e6:.1f} MB" for size in sizes), *["–"] * (2 - len(sizes))])
    prior = rows["inf"]["bytes"] - rows["inf isotropic"]["bytes"]
    weights = rows["diag"]["weights"]
    return (
        f"**What it takes.** ResNet-18, {weights:,} weights; `inf` at rank 100, `kfac` and `efb` with all eigenvectors "
        f"(counted by `infoform.plan`, the others measured). The activation prior adds {prior / 1e6:.1f} MB to `inf`. "
        "Times of fits are in [speed.md](speed.md).\n\n" + _table(lines)
    )


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
        if task != "mnist"  # not measured for all structures
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


def _table(lines: Sequence[Sequence[str]]) -> str:
    head, *body = lines
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *body))


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    write_page()
