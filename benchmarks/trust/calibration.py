"""Simulation-based calibration: the truth has a uniform rank among draws from the posterior, and intervals cover it.

The truth is drawn from the prior, data from the truth, and a network without hidden layers is trained on them exactly:
its posterior is a Gaussian that the library must find. Ranks of the truth among draws are then uniform (Talts et al.
2018), for every weight and every prediction.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from infoform import FitOptions, Inf, Isotropic, Laplace, Regression

from . import claim

FEATURES, OUTPUTS, EXAMPLES, DRAWS, BINS, NOISE, TAU = 4, 2, 12, 99, 10, 0.5, 2.0
STRUCTURES: dict[str, Any] = {"full": "full", "inf, full rank": Inf(rank=1000)}


def run(*, quick: bool, seed: int) -> dict[str, Any]:
    """Return the p-values of uniform ranks, and the coverage of intervals."""
    count = 100 if quick else 1000
    rows, claims = [], []
    for name, structure in STRUCTURES.items():
        ranks, inside = zip(*(_simulated(structure, seed + 7919 * i) for i in range(count)), strict=True)
        by_weight = torch.stack(ranks).T  # (weights and a prediction, simulations)
        values = [_p_value(one) for one in by_weight]
        covered = {
            f"{level:.0%}": float(torch.stack([one[level] for one in inside]).double().mean()) for level in inside[0]
        }
        share = min(values) * len(values)  # Bonferroni
        rows.append({"structure": name, "simulations": count, "p_values": values, "covered": covered})
        claims.append(claim(f"{name}: ranks of the truth are uniform (p, for {len(values)} quantities together)",
                            share > 0.01, f"{min(1.0, share):.2f}"))  # fmt: skip
        for level in inside[0]:
            found = covered[f"{level:.0%}"]
            spread = 4 * math.sqrt(level * (1 - level) / count)
            claims.append(claim(f"{name}: {level:.0%} intervals cover", abs(found - level) < spread, f"{found:.1%}"))
    return {"claims": claims, "rows": rows}


def _simulated(structure: Any, seed: int) -> tuple[Tensor, dict[float, Tensor]]:
    """Return the ranks of the true weights and of one prediction, and whether intervals cover that prediction."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    x, new = normal(EXAMPLES, FEATURES), normal(1, FEATURES)
    design, asked = (torch.cat([one, torch.ones(len(one), 1, dtype=torch.float64)], dim=1) for one in (x, new))
    truth = normal(OUTPUTS, FEATURES + 1) / math.sqrt(TAU)
    y = design @ truth.T + NOISE * normal(EXAMPLES, OUTPUTS)
    gram = design.T @ design / NOISE**2 + TAU * torch.eye(FEATURES + 1, dtype=torch.float64)
    best = torch.linalg.solve(gram, design.T @ y / NOISE**2).T  # (C, A)
    model = nn.Linear(FEATURES, OUTPUTS).double()
    with torch.no_grad():
        model.weight.copy_(best[:, :-1])
        model.bias.copy_(best[:, -1])
    exact = FitOptions(fisher="exact")  # sampled labels of twelve examples would be another posterior
    laplace = Laplace(model, Regression(NOISE), structure=structure, prior=Isotropic(TAU), fit_options=exact)
    layer = laplace.fit([(x, y)], progress=False).posterior().layers[""]
    draws = best + layer.sample(DRAWS, generator=generator)  # (M, C, A)
    of_weights = (draws < truth).sum(0).flatten()
    of_answer = ((draws @ asked[0])[:, :1] < (truth @ asked[0])[:1]).sum(0)
    prediction = laplace.predict(new, kind="linear")
    target = (truth @ asked[0]) + NOISE * normal(OUTPUTS)
    inside = {}
    for level in (0.5, 0.9):
        low, high = prediction.gaussian_interval(level)
        inside[level] = (low[0, 0] <= target[0]) & (target[0] <= high[0, 0])
    return torch.cat([of_weights, of_answer]), inside


def _p_value(ranks: Tensor) -> float:  # (simulations,), of 0 to DRAWS
    """Return the p-value of equally many ranks in every bin, by the chi-square distribution."""
    counts = torch.histc(ranks.double(), BINS, 0, DRAWS + 1)
    expected = len(ranks) / BINS
    statistic = float(((counts - expected) ** 2 / expected).sum())
    half = torch.tensor([(BINS - 1) / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))
