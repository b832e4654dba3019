"""The page docs/evidence.md: one row a network, from committed results; measures nothing.

Our answer of a network is the row of `inf` (all layers, the last stage, or the last layer) with the least NLL on the
pictures that tuned it; the scores themselves choose nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from infoform.experiments.classification.page import title as row_title
from infoform.experiments.imagenet.networks import NETWORKS
from infoform.experiments.imagenet.run import LAST_LAYER
from infoform.experiments.method import Method
from infoform.experiments.public_resnets import page as resnets
from infoform.experiments.public_resnets.pictures import SVHN
from infoform.experiments.public_resnets.settings import NOVEL, PLAIN, TEMPERATURE
from infoform.pages.markdown import table
from infoform.records.study_result import Result

from .common import STUDIES, read_results, run_fold, template

UNKNOWN = {"mnist": "notMNIST", "cifar10": SVHN}
TITLES = {"mnist": "the paper's LeNet, MNIST", "cifar10": "the paper's small VGG, CIFAR-10"}
NOVELTY = {"mnist": "mnist", "cifar10": "vgg"}
OURS = ("inf", "last-layer", "last-stage")
COLUMNS = ("network alone", "temperature", "infoform", "the paper's INF", "laplace-torch", "ensemble")


@dataclass(frozen=True)
class Answer:
    """What one column of one network says."""

    nll: float
    ece: float
    auroc: float
    title: str = ""


@dataclass(frozen=True)
class Line:
    """One network: its answers by column, and AUROC by novelty."""

    network: str
    unknown: str
    page: str  # of the experiment
    answers: Mapping[str, Answer | None]
    novelty: float | None


def page() -> str:
    """Return docs/evidence.md."""
    lines = [*_trained(), *_photographs(), *_public()]
    ahead = {column: _ahead(lines, column) for column in COLUMNS if column != "infoform"}
    return template("evidence").fill(
        nll=_table(lines, "nll", digits=4),
        ece=_table(lines, "ece", digits=4),
        auroc=_table(lines, "auroc", digits=3, novelty=True),
        ours=table(
            ["", "infoform's row", "page"],
            [[one.network, _name(one), f"[{one.page}](experiments/{one.page}.md)"] for one in lines],
        ),
        ahead=", ".join(f"{won} of {of} beside {column}" for column, (won, of) in ahead.items()),
        novelty=_novelty(lines),
        run=run_fold({f"commit of {one.page}": _result(one.page).commit for one in lines}, {}),
    )


def _trained() -> Iterable[Line]:
    """Give the networks that we trained as the paper's: the first of them; the ensemble is of all."""
    peers = read_results("laplace_torch")
    for name, unknown in UNKNOWN.items():
        pieces = _result(name).pieces
        rows = {
            method.of_any_network.key: piece
            for key, piece in pieces.items()
            if "nll" in piece and (method := Method.parse(key)).network in (0, None)
        }
        answers = {
            "network alone": _answer(rows, "plain"),
            "temperature": None,
            "infoform": _answer(rows, _least(rows)),
            "the paper's INF": _answer(rows, "inf-paper isotropic mc validation"),
            "laplace-torch": Answer(*(peers[name][key] for key in ("nll", "ece", "auroc"))),
            "ensemble": _answer(rows, "ensemble"),
        }
        yield Line(TITLES[name], unknown, name, answers, _novelty_of(NOVELTY[name], unknown))


def _photographs() -> Iterable[Line]:
    """Give the public networks of ImageNet."""
    for name in ("imagenet", "imagenet-efficientnet", "imagenet-resnet50"):
        result = _result(name)
        rows = {key: piece for key, piece in result.pieces.items() if "nll" in piece}
        answers = {
            "network alone": _answer(rows, "plain"),
            "temperature": _answer(rows, "temperature"),
            "infoform": _answer(rows, LAST_LAYER),
            "the paper's INF": _answer(rows, "inf-paper isotropic mc search"),
            "laplace-torch": None,
            "ensemble": None,
        }
        network = NETWORKS[result.settings["network"]].title
        yield Line(f"{network}, ImageNet", "paintings", name, answers, rows[LAST_LAYER]["auroc_novelty"])


def _public() -> Iterable[Line]:
    """Give the public ResNets of CIFAR-10."""
    result = _result("cifar10-resnet")
    for depth, rows in resnets.collect(result).items():
        best = resnets.best_of_ours(rows)

        def answer(key: str, rows: Mapping[str, Any] = rows) -> Answer | None:
            if key not in rows:
                return None
            auroc = rows[key]["apart"][SVHN]["entropy"]["auroc"]
            return Answer(rows[key]["nll"], rows[key]["ece"], auroc, resnets.title(key).removeprefix("infoform: "))

        answers = {
            "network alone": answer(PLAIN),
            "temperature": answer(TEMPERATURE),
            "infoform": answer(best),
            "the paper's INF": answer("inf-paper isotropic mc validation"),
            "laplace-torch": answer("laplace-torch-all") or answer("laplace-torch-last"),
            "ensemble": None,
        }
        novelty = rows[NOVEL]["apart"][SVHN]["novelty"]["auroc"]
        yield Line(f"ResNet-{depth}, CIFAR-10, public", SVHN, "cifar10-resnet", answers, novelty)


def _least(rows: Mapping[str, dict[str, Any]]) -> str:
    """Return the row of ours with the least NLL on what tuned it."""
    own = {}
    for key, row in rows.items():
        method = Method.parse(key)
        if method.name in OURS and method.storage is None and method.tuning in ("validation", "search"):
            own[key] = min(tried[-1] for tried in row["tried"])
    validated = {key: score for key, score in own.items() if Method.parse(key).tuning == "validation"}
    chosen = validated or own  # a search by ECE says nothing of NLL
    return min(chosen, key=lambda key: chosen[key])


def _answer(rows: Mapping[str, dict[str, Any]], key: str) -> Answer | None:
    if key not in rows:
        return None
    found = [rows[key][name] for name in ("nll", "ece", "auroc")]
    nll, ece, auroc = found
    return Answer(nll, ece, auroc, row_title(key))


def _novelty_of(network: str, unknown: str) -> float:
    found = read_results("novelty")["networks"][network]["methods"]["novelty"]["sets"][unknown]["auroc"]
    return float(found)


def _result(name: str) -> Result:
    return Result.load(STUDIES / f"{name}.json")


def _table(lines: Iterable[Line], measure: str, *, digits: int, novelty: bool = False) -> str:
    cells = []
    for line in lines:
        found = [None if one is None else getattr(one, measure) for one in line.answers.values()]
        told = ["–" if one is None else f"{one:.{digits}f}" for one in found]
        known = [one for one in found if one is not None]
        best = max(known) if measure == "auroc" else min(known)
        told = [f"**{text}**" if one == best else text for one, text in zip(found, told, strict=True)]
        if novelty:
            told = [line.unknown, "–" if line.novelty is None else f"{line.novelty:.{digits}f}", *told]
        cells.append([line.network, *told])
    more = ["against", "infoform, novelty"] if novelty else []
    return table(["", *more, *COLUMNS], cells)


def _ahead(lines: Iterable[Line], column: str) -> tuple[int, int]:
    """Return on how many networks our NLL is below that of a column, and how many have both."""
    pairs = [
        (own.nll, other.nll)
        for line in lines
        if (own := line.answers["infoform"]) is not None and (other := line.answers[column]) is not None
    ]
    return sum(own < other for own, other in pairs), len(pairs)


def _novelty(lines: Iterable[Line]) -> str:
    found = [(line, own.auroc) for line in lines if (own := line.answers["infoform"]) is not None]
    told = [(line.network, line.novelty, entropy) for line, entropy in found if line.novelty is not None]
    behind = [network for network, novelty, entropy in told if novelty < entropy]
    return f"{len(told) - len(behind)} of {len(told)} networks" + (f", not on {' and '.join(behind)}" if behind else "")


def _name(line: Line) -> str:
    own = line.answers["infoform"]
    assert own is not None
    return own.title
