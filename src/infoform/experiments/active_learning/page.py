"""The page of active-learning: mean RMSE of every arm, and its curves."""

from pathlib import Path
from statistics import mean, stdev

from infoform.common.figures import save_figure
from infoform.pages.markdown import bold_best, table
from infoform.pages.numbers import count_of, mean_error, setting
from infoform.pages.template import PageTemplate
from infoform.records.study_result import Result

TEMPLATE = PageTemplate.beside(__file__)


def page(result: Result) -> str:
    settings = result.settings
    curves = {name: _curves(result, name) for name in settings["sets"]}
    arms = list(next(iter(curves.values())))
    along: list[list[str]] = []
    last: list[list[str]] = []
    against: list[list[str]] = []
    gains: list[tuple[float, float]] = []  # mean and standard error
    for name, of_arm in curves.items():
        means = {arm: [mean(curve) for curve in of_arm[arm]] for arm in arms}  # of a split, along its curve
        ends = {arm: [curve[-1] for curve in of_arm[arm]] for arm in arms}
        for rows, values in ((along, means), (last, ends)):
            cells = bold_best([mean_error(values[arm]) for arm in arms], [mean(values[arm]) for arm in arms])
            rows.append([name, *cells])
        differences = [
            [one - other for one, other in zip(means[arm], means["random"], strict=True)] for arm in arms[1:]
        ]
        against.append([name, *(mean_error(one) for one in differences)])
        gains += [(mean(one), stdev(one) / len(one) ** 0.5 if len(one) > 1 else 0.0) for one in differences]
    return TEMPLATE.fill(
        lower=count_of(gain < 0 for gain, _ in gains),
        clear=sum(gain < -2 * error for gain, error in gains),
        splits=settings["splits"],
        along=table(["", *arms], along),
        against=table(["", *arms[1:]], against),
        last=table(["", *arms], last),
        hidden=settings["hidden"],
        begin=settings["training_points"],
        steps=settings["steps"],
        factors=" or ".join(setting(factor) for factor in settings["data_factors"]),
    )


def draw(result: Result, path: Path) -> None:
    """Draw mean RMSE and its standard error over acquisitions, a panel for each set."""
    from matplotlib.figure import Figure

    names = result.settings["sets"]
    figure = Figure(figsize=(4 * len(names), 3.4), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        for arm, curves in _curves(result, name).items():
            columns = list(zip(*curves, strict=True))
            middle = [mean(column) for column in columns]
            error = [stdev(column) / len(column) ** 0.5 if len(column) > 1 else 0.0 for column in columns]
            style = "--" if arm.startswith("inf") else "k-" if arm == "random" else "-"
            (line,) = axes.plot(middle, style, label=f"{arm} ({mean(middle):.3g})", linewidth=1.2)
            low, high = zip(*((one - by, one + by) for one, by in zip(middle, error, strict=True)), strict=True)
            axes.fill_between(range(len(middle)), low, high, color=line.get_color(), alpha=0.08)
        axes.set(title=name, xlabel="acquisitions", ylabel="test RMSE")
        axes.legend(fontsize=7)
    save_figure(figure, path, dpi=110)


def _curves(result: Result, name: str) -> dict[str, list[list[float]]]:
    """Return the curves of every split, by arm."""
    pieces = [piece["rmse"] for key, piece in result.pieces.items() if key.split("/")[0] == name]
    return {arm: [piece[arm] for piece in pieces] for arm in pieces[0]}
