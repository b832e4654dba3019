"""The page of active-learning: mean RMSE of every arm, and its curves."""

from pathlib import Path
from statistics import mean, stdev

from infoform.pages.markdown import bold_best, table
from infoform.records.study_result import Result


def page(result: Result) -> str:
    curves = {name: _curves(result, name) for name in result.settings["sets"]}
    arms = list(next(iter(curves.values())))
    along: list[list[str]] = []
    last: list[list[str]] = []
    against: list[list[str]] = []
    for name, of_arm in curves.items():
        means = {arm: [mean(curve) for curve in of_arm[arm]] for arm in arms}  # of a split, along its curve
        ends = {arm: [curve[-1] for curve in of_arm[arm]] for arm in arms}
        for rows, values in ((along, means), (last, ends)):
            cells = bold_best([_error(values[arm]) for arm in arms], [mean(values[arm]) for arm in arms])
            rows.append([name, *cells])
        differences = [
            [one - other for one, other in zip(means[arm], means["random"], strict=True)] for arm in arms[1:]
        ]
        against.append([name, *(_error(one) for one in differences)])
    settings = result.settings
    begin, steps = settings["training_points"], settings["steps"]
    return f"""A network with {settings["hidden"]} hidden units starts from {begin} labelled points; {steps} times one
more is labelled: a random one, or that of the largest predictive variance by linearised Laplace. `inf` is the paper's
estimator, `ours` the library's, both with 20, 50 and 100 % of the eigenvalues. Mean ± standard error over
{settings["splits"]} splits; all arms of a split share data and first network.

![Test RMSE over acquisitions](../images/active-learning.png)

## Mean RMSE along the curve (in brackets in the paper's figure, which has no table)

{table(["", *arms], along)}

## RMSE after the last acquisition

{table(["", *arms], last)}

## Difference to random along the curve, split by split

{table(["", *arms[1:]], against)}

Negative is better than random. What the paper leaves open and was chosen here: training goes on from the weights of the
step before; inputs are standardised by all inputs but the test's, targets by the first labels; the variance σ² is that
of the training residuals; of the range [0.5, 1] n for N both ends are tried. The Fisher matrix is exact."""


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
    figure.savefig(path, dpi=110)


def _curves(result: Result, name: str) -> dict[str, list[list[float]]]:
    """Return the curves of every split, by arm."""
    pieces = [piece["rmse"] for key, piece in result.pieces.items() if key.split("/")[0] == name]
    return {arm: [piece[arm] for piece in pieces] for arm in pieces[0]}


def _error(values: list[float]) -> str:
    if len(values) < 2:
        return f"{values[0]:.3f}"
    return f"{mean(values):.3f} ± {stdev(values) / len(values) ** 0.5:.3f}"
