"""The page and the pictures of toy, from its JSON."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, variance
from typing import Any

from infoform.pages.markdown import bold_best, table
from infoform.records.study_result import Result

REACH = 4.0  # the data lie within ± this
TITLES = {
    "printed": "As printed, information averaged",
    "summed": "As printed, information summed",
    "equal": "At equal hyperparameters, sampled networks",
    "held": "At equal hyperparameters, directions of little information held fixed",
    "linear": "At equal hyperparameters, linearised",
}
COLUMNS = ("inside", "outside")


@dataclass(frozen=True)
class Band:
    """Mean and standard deviation of the networks' outputs over the grid."""

    mean: Sequence[float]
    std: Sequence[float]


@dataclass(frozen=True)
class Scores:
    """Distances from HMC's band, averaged over a part of the grid."""

    log_ratio: float  # |log(σ / σ_HMC)|
    signed: float  # log(σ / σ_HMC)
    wasserstein: float  # of order 2, between Gaussians of these moments
    divergence: float  # KL(HMC | method), with the data's noise added to both


def page(result: Result) -> str:
    laplace, truth = result.pieces["laplace"], ground_truth(result)
    scores = {way: _scores(result, truth, way) for way in TITLES}
    return "\n\n".join(
        [
            _intro(result),
            "![Bands of all methods at the paper's hyperparameters](../images/toy-printed.png)",
            _table(scores["printed"]),
            _fixed_text(laplace),
            f"## {TITLES['summed']}",
            "The same with the sum over the examples in the place of their average: N = 1 then means all data once.",
            "![Bands of all methods, information summed](../images/toy-summed.png)",
            _table(scores["summed"]),
            f"## {TITLES['equal']}",
            _equal_text(result),
            "![Bands of all methods at equal hyperparameters](../images/toy-equal.png)",
            _table(scores["equal"]),
            f"## {TITLES['held']}",
            _held_text(result, scores),
            "![Bands of all methods, directions of little information held fixed](../images/toy-held.png)",
            _table(scores["held"]),
            _limits_text(result, truth),
            f"## {TITLES['linear']}",
            'The same posteriors, with the network made linear in its weights (`kind="linear"`), in closed form.',
            "![Bands of all methods, linearised](../images/toy-linear.png)",
            _table(scores["linear"]),
            "## What the paper says of these bands, and what is found",
            _claims(scores),
            "## Covariance of OKF and KFAC, first layer",
            "![Covariances of OKF and KFAC](../images/toy-covariance.png)",
            _covariance_text(laplace["covariance"]),
            "## The information matrix, first layer",
            "![Information matrices](../images/toy-information.png)",
            _information_text(result),
            "## The ground truth",
            _hmc_text(result),
        ]
    )


def ground_truth(result: Result) -> Band:
    """Return the moments of all chains of HMC together."""
    chains, each = _chains(result), _samples_of_a_chain(result)
    means = list(zip(*(chain["mean"] for chain in chains), strict=True))
    stds = list(zip(*(chain["std"] for chain in chains), strict=True))
    pooled = []
    for std, centres in zip(stds, means, strict=True):
        middle = mean(centres)
        squares = (each - 1) * sum(s**2 for s in std) + each * sum((one - middle) ** 2 for one in centres)
        pooled.append(squares / (len(chains) * each - 1))
    return Band([mean(centres) for centres in means], [math.sqrt(one) for one in pooled])


def largest_r_hat(result: Result) -> float:
    """Return the largest R̂ over the grid: 1 where chains from different starts have the same mean."""
    chains, each = _chains(result), _samples_of_a_chain(result)
    found = []
    for at in range(len(chains[0]["mean"])):
        within = mean(chain["std"][at] ** 2 for chain in chains)
        between = variance([chain["mean"][at] for chain in chains])
        found.append(math.sqrt((each - 1) / each + between / within))
    return max(found)


def distance(band: Band, truth: Band, where: Sequence[int], noise: float) -> Scores:
    """Compare with HMC at these places of the grid."""
    ratios, transports, divergences = [], [], []
    for at in where:
        shift, std, exact = band.mean[at] - truth.mean[at], band.std[at], truth.std[at]
        ratios.append(math.log(max(std, 1e-12) / exact))
        transports.append(math.hypot(shift, std - exact))
        v, w = std**2 + noise**2, exact**2 + noise**2
        divergences.append(0.5 * (math.log(v / w) + (w + shift**2) / v - 1))
    return Scores(mean(map(abs, ratios)), mean(ratios), mean(transports), mean(divergences))


def charts(result: Result, folder: Path) -> None:
    from infoform.experiments.toy import charts as toy_charts

    toy_charts.draw(result, folder)


def bands(result: Result, way: str) -> dict[str, Band]:
    """Return all methods' bands; BBB has no printed hyperparameters, and is the same in all."""
    bbb = {} if way == "linear" else {"BBB": result.pieces["bbb"]}
    found: Mapping[str, Any] = {**bbb, **result.pieces["laplace"][way]}
    return {label: Band(one["mean"], one["std"]) for label, one in found.items()}


def _chains(result: Result) -> list[dict[str, Any]]:
    return [piece for key, piece in result.pieces.items() if key.startswith("hmc/")]


def _samples_of_a_chain(result: Result) -> int:
    return int(result.settings["hmc_samples"] // result.settings["hmc_chains"])


def _scores(result: Result, truth: Band, way: str) -> dict[str, tuple[Scores, Scores]]:
    grid = result.pieces["laplace"]["grid"]
    inside = [at for at, x in enumerate(grid) if abs(x) <= REACH]
    outside = [at for at, x in enumerate(grid) if abs(x) > REACH]
    noise = result.settings["noise"]
    return {
        label: (distance(band, truth, inside, noise), distance(band, truth, outside, noise))
        for label, band in bands(result, way).items()
    }


def _table(scores: Mapping[str, tuple[Scores, Scores]]) -> str:
    header = ["", *(f"{what} {where}" for what in ("abs. log ratio", "log ratio", "W₂", "KL") for where in COLUMNS)]
    columns = []
    for name in ("log_ratio", "signed", "wasserstein", "divergence"):
        for part in (0, 1):
            values = [getattr(one[part], name) for one in scores.values()]
            cells = [f"{value:+.2f}" if name == "signed" else _short(value) for value in values]
            columns.append(cells if name == "signed" else bold_best(cells, values))
    return table(header, [[label, *cells] for label, *cells in zip(scores, *columns, strict=True)])


def _short(value: float) -> str:
    return f"{value:.2f}" if value < 100 else f"{value:.3g}"


def _intro(result: Result) -> str:
    settings = result.settings
    low, high, _ = settings["grid"]
    return f"""A network with one hidden layer of {settings["width"]} ReLUs, {settings["examples"]} points x ~ U(−4, 4),
y ~ N(x³, 3²), Adam at {settings["learning_rate"]:g} on the mean squared error of all data for {settings["steps"]}
steps; of {settings["restarts"]} random starts the best fit is kept (mean squared error
{result.pieces["laplace"]["mse"]:.2f}). Bands are the mean and one, two and three standard deviations of the outputs of
{settings["weight_samples"]} networks with sampled weights, without the noise of the data; dots are the data, red is the
trained network. Tables compare with HMC on a grid from {low:g} to {high:g}: *inside*, where data are (|x| ≤ 4), and
*outside*. W₂ is the Wasserstein distance of order two between Gaussians with the bands' moments, in units of y; KL is
from HMC's predictive Gaussian to the method's, with the noise of 3 added to both. {settings["weight_samples"]} networks
tell a standard deviation to about {100 / math.sqrt(2 * settings["weight_samples"]):.0f} %.

All is of one network and one data set (seed {settings["seed"]}), as in the paper: differences between methods that are
near each other may not hold for another. The five settings below were added one after the other, the second since the
first did not give the paper's picture, the fourth to explain the third; none was left out.

The paper gives its hyperparameters, but not what N counts nor HMC's prior. "As printed" reads it by the letter:
P = 1 · I + τ, I the average over examples at a noise of 1 (which the mean squared error stands for), τ = 0.2 for KFAC
and OKF, 0.45 for Diag, 0 for the exact block and INF, and, since nothing else is said, for EFB.

## {TITLES["printed"]}"""


def _fixed_text(laplace: Mapping[str, Any]) -> str:
    fixed = {label: one["fixed"] for label, one in laplace["printed"].items() if one["fixed"]}
    which = ", ".join(f"{label} {count}" for label, count in fixed.items()) or "none"
    return f"""With τ = 0, directions of the weights without information have no variance to be drawn with. The paper
holds single weights without information fixed; here whole directions are (of 22; {which}). Units that are on for the
same points have the same gradients but for a factor (the 7 units have {laplace["patterns"]} patterns), so that the
exact block can be singular even where no weight is without information: `Laplace` refuses to invert it, and this page
pseudo-inverts it."""


def _equal_text(result: Result) -> str:
    settings = result.settings
    return f"""All methods approximate the posterior that HMC samples from: N = {settings["examples"]}, a noise of
{settings["noise"]:g}, τ = {settings["prior_precision"]:g}; `Laplace.predict(kind="mc")` as anyone uses it. KFAC differs
from OKF in its factored damping alone. BBB has the same prior and noise, and is the same as above."""


def _claims(scores: Mapping[str, Mapping[str, tuple[Scores, Scores]]]) -> str:
    def closest(way: str, labels: Sequence[str]) -> str:
        return min((one for one in labels if one in scores[way]), key=lambda one: scores[way][one][0].wasserstein)

    def distances(way: str, *labels: str) -> str:
        return " / ".join(_short(scores[way][one][0].wasserstein) for one in labels)

    paper = ("BBB", "Diag", "KFAC", "EFB", "exact block", "INF", "INF rank 1")
    rows = [
        ["the exact block is the closest to HMC: which is?", *(closest(way, paper) for way in TITLES)],
        ["INF is closer than KFAC and BBB: which is?", *(closest(way, ("KFAC", "BBB", "INF")) for way in TITLES)],
        ["KFAC is too wide: σ/σ_HMC", *(f"{math.exp(scores[way]['KFAC'][0].signed):.2f}" for way in TITLES)],
        ["INF of rank 1 is worse than of full rank: W₂", *(distances(way, "INF rank 1", "INF") for way in TITLES)],
        ["EFB is worse than INF: W₂", *(distances(way, "EFB", "INF") for way in TITLES)],
        ["(ours of rank 1, of full rank: W₂)", *(distances(way, "ours rank 1", "ours") for way in TITLES)],
    ]
    return table(["inside the data", "averaged", "summed", "equal", "equal, held", "equal, linearised"], rows)


def _held_text(result: Result, scores: Mapping[str, Mapping[str, tuple[Scores, Scores]]]) -> str:
    laplace, first = result.pieces["laplace"], result.settings["held_limits"][0]
    sampled, held, linear = (math.exp(scores[way]["exact block"][0].signed) for way in ("equal", "held", "linear"))
    fixed = ", ".join(f"{label} {one['fixed']}" for label, one in laplace["held"].items())
    ours, lowest = math.exp(scores["held"]["ours"][0].signed), laplace["held"]["ours"]["lowest"]
    return f"""Why are sampled networks so wide? The exact block's are {sampled:.2g} times as wide as HMC's inside the
data, while the same posterior is {linear:.2g} times as wide where the network is linearised (below). Here, the paper's
remedy for weights without information is used for directions: those with a precision below {first:g} τ, in which the
data tell less than the prior, are held fixed, and nothing else is changed. The exact block then is {held:.2g} times as
wide: the excess comes from these few directions. Held, of 22: {fixed}. Ours of full rank (least precision {lowest:.2g},
limit {first * result.settings["prior_precision"]:g}) is then {ours:.2g} times as wide as HMC."""


def _limits_text(result: Result, truth: Band) -> str:
    grid, noise = result.pieces["laplace"]["grid"], result.settings["noise"]
    inside = [at for at, x in enumerate(grid) if abs(x) <= REACH]
    limits = result.pieces["laplace"]["limits"]
    rows = []
    for label in next(iter(limits.values())):
        found = [limits[key][label] for key in limits]
        scores = [distance(Band(one["mean"], one["std"]), truth, inside, noise) for one in found]
        cells = zip(scores, found, strict=True)
        rows.append([label, *(f"{_short(s.wasserstein)} ({math.exp(s.signed):.2f}, {o['fixed']})" for s, o in cells)])
    return f"""This rule is an explanation found afterwards, not a method that was tested: it was made up to explain the
widths above, on this one network, with HMC's band in sight, after these limits (and no limit) had been tried. The
first is shown since it is where data and prior tell as much; it was not the one closest to HMC. All of them, as W₂
inside (σ/σ_HMC, directions held):

{table(["", *(f"P < {key} τ" for key in limits)], rows)}"""


def _covariance_text(covariances: Mapping[str, Sequence[Sequence[float]]]) -> str:
    largest = {label: max(abs(one) for row in rows for one in row) for label, rows in covariances.items()}
    trace = {label: sum(row[at] for at, row in enumerate(rows)) for label, rows in covariances.items()}
    return f"""At the same (N, τ) of the paper. The factored damping makes the covariance smaller, as the paper finds:
its trace is {trace["OKF"]:.3g} for OKF and {trace["KFAC"]:.3g} for KFAC, its largest entry {largest["OKF"]:.3g} and
{largest["KFAC"]:.3g}."""


def _information_text(result: Result) -> str:
    found = result.pieces["laplace"]["information"]
    few, every = result.settings["few_examples"], result.settings["examples"]
    rows = [
        [f"{count} points", str(found[key]["fixed_weights"]), str(found[key]["fixed_directions"])]
        for count, key in ((few, "few"), (every, "all"))
    ]
    header = ["of 14", "weights without information", "directions without information"]
    return f"""The exact block I of the same network on the first {few} points and on all {every}, coloured by
sign(I) · log(1 + |I|).

{table(header, rows)}"""


def _hmc_text(result: Result) -> str:
    chains, settings = _chains(result), result.settings
    each = _samples_of_a_chain(result)
    steps, most = mean(chain["steps"] for chain in chains), 2 ** settings["hmc_tree_depth"] - 1
    divergences = sum(chain["divergences"] for chain in chains)
    r_hat = "" if len(chains) < 2 else f"R̂ of the outputs over the grid is at most {largest_r_hat(result):.3f}; "
    return f"""NUTS by NumPyro, prior N(0, 1/τ) with τ = {settings["prior_precision"]:g}, noise
{settings["noise"]:g}: {len(chains)} chains from draws of the prior, {each} samples each after a warm-up of
{settings["hmc_warmup"]}. {r_hat}effective samples of the outputs, all chains: at least
{sum(chain["effective_samples"] for chain in chains):.0f}; mean acceptance
{mean(chain["accept_prob"] for chain in chains):.2f}.

It is not a perfect truth. Trajectories are cut at {most} gradients (on average they take {steps:.0f}, so most are cut),
a limit that was lowered from 1,023 to save time; and {divergences} of {settings["hmc_samples"]} samples
({divergences / settings["hmc_samples"]:.1%}) ended in a divergence, which says that some narrow parts of the posterior,
whose gradient jumps at the kinks of the ReLUs, may be visited too seldom. Priors with τ = 0.01 and 0.1 were tried for
how well chains mix, before any method was compared; only the first was used. HMC's noise and prior are ours, not the
paper's."""
