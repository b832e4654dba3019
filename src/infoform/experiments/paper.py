"""Every table and figure of the paper, in its order, and where its counterpart is made here."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

IMAGENET = ("imagenet", "imagenet-resnet50", "imagenet-efficientnet")
OTHERS = "on networks at hand, not all the paper's"


@dataclass(frozen=True)
class Item:
    """A table or figure."""

    label: str  # in the paper's source: "fig:diag"
    kind: str  # "table" or "figure"
    shows: str  # in our words
    experiments: tuple[str, ...] = ()  # names in EXPERIMENTS
    instead: str = ""  # what stands for one that shows no measurement; Markdown
    but: str = ""  # in what ours differs, where it is not the same thing measured again


MAIN = (
    Item("fig:lra:concept", "figure", "how eigenvalues are selected, a drawing", (), "[the mathematics](math.md)"),
    Item("fig:intro:concept", "figure", "the idea of the paper, a drawing", (), "[the mathematics](math.md)"),
    Item("fig:diag", "figure", "errors of the information matrix over the rank, toy regression", ("toy-rank",)),
    Item("fig:1", "figure", "predictive uncertainty of a toy regression", ("toy",)),
    Item("results:tab:frobenius", "table", "errors of the information matrix on UCI", ("uci-information",)),
    Item("fig:al_exper", "figure", "RMSE while labels are acquired", ("active-learning",)),
    Item("results:tab:final", "table", "accuracy, calibration and entropy of classifiers", ("mnist", "cifar10")),
    Item("fig:calib", "figure", "reliability of ResNet-18 on ImageNet", IMAGENET, but=OTHERS),
    Item("results:sm:complexity:imagenet:all", "table", "sizes of posteriors of ImageNet networks", ("space",)),
    Item("fig:entropy", "figure", "entropies of ResNet-50 on known and unknown images", IMAGENET, but=OTHERS),
)
SUPPLEMENT = (
    Item(
        "sm:sec2:problem_statement",
        "table",
        "orders of cost of storing, inverting and factorising",
        (),
        "[the mathematics](math.md), measured in [speed](speed.md)",
    ),
    Item("results:uci:rmse", "table", "RMSE on UCI", ("uci-likelihood",)),
    Item("fig:uci", "figure", "test log-likelihood on UCI", ("uci-likelihood", "uci-likelihood-long")),
    Item("fig:hyper", "figure", "random searches over (N, τ), DenseNet-121", IMAGENET, but=OTHERS),
    Item("fig:grid:mnist", "figure", "searches over τ of Diag and KFAC on MNIST", ("mnist",)),
    Item("tab:complexity", "table", "ranks and reduced dimensions by layer", ("mnist", "cifar10")),
    Item("fig:eig_hist", "figure", "histograms of eigenvalues", ("spectra",)),
    Item("results:sm:frolra", "table", "errors of the information matrix at lower ranks", ("uci-information",)),
    Item("fig:toy:additional", "figure", "toy regression, other structures", ("toy",)),
    Item("fig:1:sm:4:2", "figure", "toy regression with and without factored damping", ("toy",)),
    Item("fig:1:sm:4:3", "figure", "the information matrix of fewer and of more data", ("toy",)),
    Item("fig:boston:hyp_landscape", "figure", "test log-likelihood over (N, τ), Boston", ("uci-landscape",)),
    Item("fig:kin8nm:hyp_landscape", "figure", "test log-likelihood over (N, τ), Kin8nm", ("uci-landscape",)),
    Item("fig:calibration", "figure", "reliability of four more networks on ImageNet", IMAGENET, but=OTHERS),
    Item("fig:ood", "figure", "entropies of four more networks on unknown images", IMAGENET, but=OTHERS),
    Item("results:sm:img:complexity1", "table", "time to draw a sample", ("time",)),
    Item("results:sm:img:complexity2", "table", "time to compute the information matrix", ("time",)),
)


def paper_table(pages: Path) -> str:
    """Return all of them as a Markdown table, with links to the pages of experiments that have been run."""
    lines = ["| in the paper | | shows | here |", "|---|---|---|---|"]
    for part, items in (("sections", MAIN), ("supplement", SUPPLEMENT)):
        lines += [f"| {part} | {one.kind} | {one.shows} | {_here(one, pages)} |" for one in items]
    return "\n".join(lines)


def _here(item: Item, pages: Path) -> str:
    run: Sequence[str] = [name for name in item.experiments if (pages / f"{name}.md").exists()]
    if run:
        return ", ".join(f"[{name}](experiments/{name}.md)" for name in run) + (f", {item.but}" if item.but else "")
    return item.instead or f"`{item.experiments[0]}`: not run yet"
