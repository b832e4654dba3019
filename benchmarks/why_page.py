"""The page docs/why.md, from committed results of other benchmarks and experiments; measures nothing."""

import json
import statistics
from typing import Any

from infoform.pages.markdown import table

from .common import STUDIES, read_results, run_fold, template
from .novelty import page as novelty_page

METHODS = {
    "plain": "network alone",
    "temperature": "temperature scaling",
    "last tau+T": "infoform, last layer",
    "all tau+T": "infoform, all layers",
    "peer last": "laplace-torch, last layer",
}
COSTS = {"temperature": "temperature, 128", "last tau+T": "last, 128", "all tau+T": "linear, 128",
         "peer last": "peer last, 128"}  # fmt: skip


def page() -> str:
    """Return docs/why.md."""
    answers, networks = read_results("answers"), read_results("novelty")["networks"]
    quality, latency = answers["quality"]["resnet20"], answers["latency"]["resnet20"]
    pieces = json.loads((STUDIES / "cifar10.json").read_text(encoding="utf-8"))["pieces"]
    ensemble, plain, ours = pieces["ensemble 0"], _mean(pieces, "plain"), _mean(pieces, "inf activation:8x30 linear")
    names = list(networks)
    others = [name for name in novelty_page._methods(networks) if not name.startswith("novelty")]
    best = max(others, key=lambda name: novelty_page._mean(networks, name, names))
    vgg, lite = networks["vgg"]["methods"], networks["efficientnet"]["methods"]
    large = answers["latency"]["resnet50"]
    guarantee = read_results("guarantee")
    return template("why").fill(
        scores=table(
            ("ResNet-20, CIFAR-10", "NLL", "ECE", "AUROC, SVHN, by entropy", "cost"),
            [
                (title, *(_three(quality[key][name]) for name in ("nll", "ece", "auroc")), _cost(latency, key))
                for key, title in METHODS.items()
            ],
        ),
        plain_nll=_three(quality["plain"]["nll"]),
        temperature_nll=_three(quality["temperature"]["nll"]),
        all_nll=_three(quality["all tau+T"]["nll"]),
        last_nll=_three(quality["last tau+T"]["nll"]),
        last_auroc=_three(quality["last tau+T"]["auroc"]),
        temperature_auroc=_three(quality["temperature"]["auroc"]),
        peer_nll=_three(quality["peer last"]["nll"]),
        peer_auroc=_three(quality["peer last"]["auroc"]),
        ours_all=f"{latency['linear, 128']['now']['forwards']:.0f}",
        peer_all=f"{latency['peer all, 8']['laplace-torch']['forwards']:,.0f}",
        peer_all_inputs=latency["peer all, 8"]["laplace-torch"]["inputs"],
        large_last=f"{large['last, 8']['now']['forwards']:.2f}",
        large_peer=large["peer last, 8"]["laplace-torch"]["failed"],
        novelty=_three(networks["resnet20"]["methods"]["novelty"]["sets"]["SVHN"]["auroc"]),
        novelty_mean=_three(novelty_page._mean(networks, "novelty", names)),
        best=best,
        best_mean=_three(novelty_page._mean(networks, best, names)),
        networks=len(names),
        vgg_novelty=_three(vgg["novelty"]["sets"]["SVHN"]["auroc"]),
        vgg_she=_three(vgg["SHE"]["sets"]["SVHN"]["auroc"]),
        lite_novelty=_three(lite["novelty"]["sets"]["paintings"]["auroc"]),
        lite_other=_three(lite["fDBD"]["sets"]["paintings"]["auroc"]),
        ensemble_nll=_three(ensemble["nll"]),
        ensemble_accuracy=f"{ensemble['accuracy']:.1%}",
        ensemble_auroc=_three(ensemble["auroc"]),
        vgg_plain_nll=_three(plain["nll"]),
        vgg_plain_accuracy=f"{plain['accuracy']:.1%}",
        vgg_plain_auroc=_three(plain["auroc"]),
        vgg_ours_nll=_three(ours["nll"]),
        vgg_ours_auroc=_three(ours["auroc"]),
        set_level="99 %",
        scored=f"{answers['settings']['scored']:,}",
        validation=f"{answers['settings']['validation']:,}",
        unknown=f"{answers['settings']['unknown']:,}",
        run=run_fold(answers["settings"], answers["environment"]["versions"]),
        set_size=f"{guarantee['sets']['adaptive']['0.99']['classes']:.1f}",
    )


def _mean(pieces: dict[str, Any], method: str) -> dict[str, float]:
    """Return the means over networks that were trained from different seeds."""
    found = [piece for name, piece in pieces.items() if name.startswith(method) and "nll" in piece]
    return {name: statistics.mean(one[name] for one in found) for name in ("nll", "accuracy", "auroc")}


def _three(value: float) -> str:
    return f"{value:.3f}"


def _cost(latency: dict[str, Any], key: str) -> str:
    if key not in COSTS:
        return "1"
    row = latency[COSTS[key]]
    return f"{row['laplace-torch' if 'peer' in key else 'now']['forwards']:.1f}"
