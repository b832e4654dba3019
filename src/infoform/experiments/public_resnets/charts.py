"""The pictures of the page: NLL beside temperature scaling with its interval, and AUROC by unknown set."""

from pathlib import Path

from infoform.common.figures import save_figure
from infoform.experiments.public_resnets.page import collect, is_ours, title
from infoform.experiments.public_resnets.settings import NOVEL, PLAIN, TEMPERATURE
from infoform.records.study_result import Result

OURS, OTHER = "#2563a8", "0.55"


def draw(result: Result, folder: Path) -> None:
    """Draw into `folder`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    networks = collect(result)
    most = max(len(rows) for rows in networks.values())
    figure = Figure(figsize=(5.2 * len(networks), 1.0 + 0.32 * most), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (depth, rows) in zip(figure.subplots(1, len(networks), squeeze=False)[0], networks.items(), strict=True):
        shown = [key for key, row in rows.items() if "nll_to_temperature" in row and key not in (PLAIN, TEMPERATURE)]
        for place, key in enumerate(shown[::-1]):
            mean, low, high = rows[key]["nll_to_temperature"]
            axes.errorbar(mean, place, xerr=[[mean - low], [high - mean]], fmt="o", capsize=3, ms=4,
                          color=OURS if is_ours(key) else OTHER)  # fmt: skip
        axes.axvline(0, color="black", lw=0.8)
        axes.set_yticks(
            range(len(shown)), [title(key).replace("`", "").removeprefix("infoform: ") for key in shown[::-1]]
        )
        axes.tick_params(labelsize=7)
        axes.set_title(f"ResNet-{depth}", fontsize=9)
        axes.set_xlabel("NLL less that of temperature scaling, nats", fontsize=8)
    save_figure(figure, folder / "cifar10-resnet-nll.png", dpi=110)

    figure = Figure(figsize=(5.2 * len(networks), 3.2), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (depth, rows) in zip(figure.subplots(1, len(networks), squeeze=False)[0], networks.items(), strict=True):
        sets = list(rows[NOVEL]["apart"])
        bars = (
            ("entropy, temperature scaling", TEMPERATURE, "entropy", OTHER),
            ("entropy, last layer", NOVEL, "entropy", "#8fb8de"),
            ("novelty", NOVEL, "novelty", OURS),
        )
        for number, (name, key, sign, colour) in enumerate(bars):
            found = [rows[key]["apart"][one][sign]["auroc"] for one in sets]
            axes.bar([place + 0.27 * (number - 1) for place in range(len(sets))], found, 0.25, label=name, color=colour)
        axes.set_xticks(range(len(sets)), sets, rotation=20, ha="right", fontsize=8)
        axes.set_ylim(0.7, 1.0)
        axes.set_ylabel("AUROC", fontsize=8)
        axes.set_title(f"ResNet-{depth}", fontsize=9)
        axes.legend(fontsize=7, loc="lower right")
    save_figure(figure, folder / "cifar10-resnet-unknown.png", dpi=110)
