"""The page of toy, from its JSON: distances of every method's band from HMC's."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, variance
from typing import Any

from infoform.experiments.toy.published import PRECISIONS
from infoform.pages.markdown import bold_best, table
from infoform.pages.numbers import listed
from infoform.pages.template import PageTemplate
from infoform.records.study_result import Result

TEMPLATE = PageTemplate.beside(__file__)
REACH = 4.0  # the data lie within ± this
WAYS = ("printed", "summed", "equal", "held", "linear")  # settings of the hyperparameters, as in the JSON
TRIED_PRECISIONS = (0.01, 0.1)  # priors of HMC, before any method was compared; the first is the run's
COLUMNS = ("inside", "outside")
Values = dict[str, object]  # of the template's names


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
    truth = ground_truth(result)
    scores = {way: _scores(result, truth, way) for way in WAYS}
    return TEMPLATE.fill(
        **{way: _table(scores[way]) for way in WAYS},
        **_widths(scores),
        **_network_values(result),
        **_held_values(result),
        **_covariance_values(result.pieces["laplace"]["covariance"]),
        **_hmc_values(result),
        claims=_claims(scores),
        limits=_limits_table(result, truth),
        information=_information_table(result),
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


def _widths(scores: Mapping[str, Mapping[str, tuple[Scores, Scores]]]) -> Values:
    """Return σ / σ_HMC inside the data."""

    def width(way: str, label: str) -> str:
        return f"{math.exp(scores[way][label][0].signed):.2g}"

    return {
        "linear_width": width("linear", "exact block"),
        "sampled_width": width("equal", "exact block"),
        "held_width": width("held", "exact block"),
        "ours_width": width("linear", "ours"),
        "ours_held_width": width("held", "ours"),
    }


def _network_values(result: Result) -> Values:
    settings, laplace = result.settings, result.pieces["laplace"]
    fixed = {label: one["fixed"] for label, one in laplace["printed"].items() if one["fixed"]}
    low, high, _ = settings["grid"]
    return {
        "examples": settings["examples"],
        "width": settings["width"],
        "weights": 3 * settings["width"] + 1,  # of both layers, with their biases
        "reach": f"{REACH:g}",
        "noise": f"{settings['noise']:g}",
        "precision": f"{settings['prior_precision']:g}",
        "rate": f"{settings['learning_rate']:g}",
        "steps": settings["steps"],
        "restarts": settings["restarts"],
        "mse": f"{laplace['mse']:.2f}",
        "samples": settings["weight_samples"],
        "precision_of_std": f"{100 / math.sqrt(2 * settings['weight_samples']):.0f}",
        "low": f"{low:g}",
        "high": f"{high:g}",
        "seed": settings["seed"],
        "fixed": ", ".join(f"{label} {count}" for label, count in fixed.items()) or "none",
        "patterns": laplace["patterns"],
        "few": settings["few_examples"],
    }


def _held_values(result: Result) -> Values:
    laplace, first = result.pieces["laplace"], result.settings["held_limits"][0]
    return {
        "kfac_precision": f"{PRECISIONS['KFAC']:g}",
        "diag_precision": f"{PRECISIONS['Diag']:g}",
        "first_limit": f"{first:g}",
        "limit": f"{first * result.settings['prior_precision']:g}",
        "held_counts": ", ".join(f"{label} {one['fixed']}" for label, one in laplace["held"].items()),
        "ours_lowest": f"{laplace['held']['ours']['lowest']:.2g}",
    }


def _claims(scores: Mapping[str, Mapping[str, tuple[Scores, Scores]]]) -> str:
    def closest(way: str, labels: Sequence[str]) -> str:
        return min((one for one in labels if one in scores[way]), key=lambda one: scores[way][one][0].wasserstein)

    def distances(way: str, *labels: str) -> str:
        return " / ".join(_short(scores[way][one][0].wasserstein) for one in labels)

    paper = ("BBB", "Diag", "KFAC", "EFB", "exact block", "INF", "INF rank 1")
    rows = [
        ["the exact block is the closest to HMC: which is?", *(closest(way, paper) for way in WAYS)],
        ["INF is closer than KFAC and BBB: which is?", *(closest(way, ("KFAC", "BBB", "INF")) for way in WAYS)],
        ["KFAC is too wide: σ/σ_HMC", *(f"{math.exp(scores[way]['KFAC'][0].signed):.2f}" for way in WAYS)],
        ["INF of rank 1 is worse than of full rank: W₂", *(distances(way, "INF rank 1", "INF") for way in WAYS)],
        ["EFB is worse than INF: W₂", *(distances(way, "EFB", "INF") for way in WAYS)],
        ["(ours of rank 1, of full rank: W₂)", *(distances(way, "ours rank 1", "ours") for way in WAYS)],
    ]
    return table(["inside the data", "averaged", "summed", "equal", "equal, held", "equal, linearised"], rows)


def _limits_table(result: Result, truth: Band) -> str:
    grid, noise = result.pieces["laplace"]["grid"], result.settings["noise"]
    inside = [at for at, x in enumerate(grid) if abs(x) <= REACH]
    limits = result.pieces["laplace"]["limits"]
    rows = []
    for label in next(iter(limits.values())):
        found = [limits[key][label] for key in limits]
        scores = [distance(Band(one["mean"], one["std"]), truth, inside, noise) for one in found]
        cells = zip(scores, found, strict=True)
        rows.append([label, *(f"{_short(s.wasserstein)} ({math.exp(s.signed):.2f}, {o['fixed']})" for s, o in cells)])
    return table(["", *(f"P < {key} τ" for key in limits)], rows)


def _covariance_values(covariances: Mapping[str, Sequence[Sequence[float]]]) -> Values:
    values: Values = {}
    for label, rows in covariances.items():
        values[f"{label.lower()}_trace"] = f"{sum(row[at] for at, row in enumerate(rows)):.3g}"
        values[f"{label.lower()}_largest"] = f"{max(abs(one) for row in rows for one in row):.3g}"
    return values


def _information_table(result: Result) -> str:
    found = result.pieces["laplace"]["information"]
    few, every = result.settings["few_examples"], result.settings["examples"]
    rows = [
        [f"{count} points", str(found[key]["fixed_weights"]), str(found[key]["fixed_directions"])]
        for count, key in ((few, "few"), (every, "all"))
    ]
    weights = 2 * result.settings["width"]  # of the first layer, with its biases
    return table([f"of {weights}", "weights without information", "directions without information"], rows)


def _hmc_values(result: Result) -> Values:
    chains, settings = _chains(result), result.settings
    divergences = sum(chain["divergences"] for chain in chains)
    return {
        "chains": len(chains),
        "each": _samples_of_a_chain(result),
        "warmup": settings["hmc_warmup"],
        "effective": f"{sum(chain['effective_samples'] for chain in chains):.0f}",
        "acceptance": f"{mean(chain['accept_prob'] for chain in chains):.2f}",
        "r_hat": f"{largest_r_hat(result):.3f}" if len(chains) > 1 else None,
        "most": 2 ** settings["hmc_tree_depth"] - 1,
        "gradients": f"{mean(chain['steps'] for chain in chains):.0f}",
        "divergences": divergences,
        "hmc_samples": settings["hmc_samples"],
        "divergent": f"{divergences / settings['hmc_samples']:.1%}",
        "tried_precisions": listed([f"{value:g}" for value in TRIED_PRECISIONS]),
    }
