"""Which parts, which number of eigenpairs and which rule: every variant on the two networks that the choice is made on.

The Gaussians are built here in float64, apart from the library, so that variants that it does not have can be tried.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from benchmarks.novelty.features import Features
from benchmarks.novelty.measure import KNOWN, is_unknown
from torch import Tensor
from torch.nn import functional

from infoform import metrics

RANKS, CHOSEN = (4, 8, 16, 32), 32
WIDEST = 512  # columns of a layer whose correlations are decomposed whole; more are sketched
Table = dict[str, Tensor]  # set -> scores


class Gaussian:
    """Means, deviations and correlations of rows, with K leading eigenpairs and a diagonal remainder."""

    def __init__(self, rows: Tensor, rank: int, *, bits: int = 64, floor: float = 1e-3) -> None:
        x = rows.double()
        self.mean, self.deviation = x.mean(0), x.std(0)
        self.deviation = self.deviation.clamp_min(1e-4 * self.deviation.max())
        y = (x - self.mean) / self.deviation
        if y.shape[1] > WIDEST:
            _, values, vectors = torch.svd_lowrank(y / len(y) ** 0.5, q=rank + 16, niter=2)
            pairs = (vectors * values)[:, :rank]
        else:
            eigenvalues, vectors = torch.linalg.eigh(y.T @ y / len(y))
            pairs = (vectors * eigenvalues.clamp_min(0).sqrt()).flip(1)[:, :rank]
        if bits < 64:
            scale = (pairs.abs().amax(0) / (2 ** (bits - 1) - 1)).clamp_min(1e-30)
            pairs = (pairs / scale).round() * scale
        self.pairs, self.remainder = pairs, (1 - pairs.square().sum(1)).clamp_min(floor)
        weighted = pairs / self.remainder[:, None]
        core = torch.eye(pairs.shape[1], dtype=torch.float64) + pairs.T @ weighted
        self.update = torch.linalg.solve_triangular(torch.linalg.cholesky(core), weighted.T, upper=False).T

    def log_distance(self, rows: Tensor) -> Tensor:  # (N, D) -> (N,)
        y = (rows.double() - self.mean) / self.deviation
        squared: Tensor = (y.square() / self.remainder).sum(1) - (y @ self.update).square().sum(1)
        return squared.clamp_min(1e-9).log()


def log_p(known: Tensor, values: Tensor) -> Tensor:
    """Return log p-values: empirical, with an exponential tail above the 95 % point."""
    ordered, count = known.sort().values, len(known)
    top = max(10, count // 20)
    p = (count - torch.searchsorted(ordered, values.contiguous()) + 1) / (count + 1)
    start, beta = ordered[-top - 1], (ordered[-top:] - ordered[-top - 1]).mean().clamp_min(1e-30)
    tail = torch.tensor((top + 1) / (count + 1)).log() - (values - start) / beta
    return torch.where(values > start, tail, p.log())


def joined(tables: Sequence[Table], weights: Sequence[float]) -> Table:
    """Return Fisher's sum of weighted log p-values."""
    return {
        name: -torch.stack(
            [w * log_p(one["validation"], one[name]) for one, w in zip(tables, weights, strict=True)]
        ).sum(0)
        for name in tables[0]
    }


def study(sets: Mapping[str, Features]) -> dict[str, Any]:
    """Return the mean AUROC over unknown sets, and that of each, for every variant."""
    sets = {name: one for name, one in sets.items() if name in KNOWN or is_unknown(name)}
    asked = [name for name in sets if name != "train"]
    parts = _head_parts(sets, asked)
    for rank in RANKS:
        parts |= _typicality(sets, asked, rank)
    parts |= {f"{name}, 8 bits": one for name, one in _typicality(sets, asked, CHOSEN, bits=8).items()}
    parts |= {f"{name}, 16 bits": one for name, one in _typicality(sets, asked, CHOSEN, bits=16).items()}
    chosen = (f"softplus² {CHOSEN}", "head", "energy")
    plans: dict[str, tuple[Sequence[str], Sequence[float]]] = {
        f"chosen: 2 × softplus² over layers, {CHOSEN} eigenpairs; head; energy": (chosen, (2, 1, 1)),
        **{f"{rank} eigenpairs": ((f"softplus² {rank}", *chosen[1:]), (2, 1, 1)) for rank in RANKS if rank != CHOSEN},
        **{
            f"eigenpairs in {bits} bits": ((f"softplus² {CHOSEN}, {bits} bits", *chosen[1:]), (2, 1, 1))
            for bits in (8, 16)
        },
        "weights 1, 1, 1": (chosen, (1, 1, 1)),
        "weights 3, 1, 1": (chosen, (3, 1, 1)),
        "weights 2, 2, 1": (chosen, (2, 2, 1)),
        "mean over layers": ((f"mean {CHOSEN}", *chosen[1:]), (2, 1, 1)),
        "largest over layers": ((f"max {CHOSEN}", *chosen[1:]), (2, 1, 1)),
        "p-values of layers by Fisher's rule": ((f"fisher {CHOSEN}", *chosen[1:]), (2, 1, 1)),
        "entropy for energy": ((*chosen[:2], "entropy"), (2, 1, 1)),
        "without the answer": (chosen[:2], (2, 1)),
        "without the head": ((f"softplus² {CHOSEN}", "energy"), (2, 1)),
        "without typicality": (chosen[1:], (1, 1)),
        **{f"{name} for head": ((f"softplus² {CHOSEN}", name, "energy"), (2, 1, 1)) for name in HEADS},
        **{f"and {name}": ((*chosen, name), (2, 1, 1, 1)) for name in (*HEADS, "two-sided length")},
    }
    table = {
        name: _figures(parts[name])
        for name in (f"softplus² {CHOSEN}", "head", *HEADS, "energy", "entropy", "two-sided length")
    }
    return {
        "alone": table,
        "joined": {name: _figures(joined([parts[k] for k in keys], w)) for name, (keys, w) in plans.items()},
    }


HEADS = (
    "head, one mean",
    "4 prototypes a class",
    "covariance a class",
    "relative distance",
    "residual",
    "kNN, 50 of all",
)


def _head_parts(sets: Mapping[str, Features], asked: Sequence[str]) -> dict[str, Table]:
    train = sets["train"]
    assert train.labels is not None
    unit = functional.normalize(train.head.double(), dim=1)
    labels, classes = train.labels, range(train.logits.shape[1])
    means = torch.stack([unit[labels == c].mean(0) for c in classes])
    shared = Gaussian(unit - means[labels], 64)
    shared.mean = torch.zeros_like(shared.mean)
    whole = Gaussian(unit, 64)
    own = [Gaussian(unit[labels == c], 8, floor=1e-2) for c in classes]
    prototypes = torch.cat([_prototypes(unit[labels == c], 4) for c in classes])
    length = train.head.double().norm(dim=1).log()
    rest = torch.linalg.eigh(unit.T @ unit).eigenvectors[:, : unit.shape[1] // 2]

    def nearest(z: Tensor, centres: Tensor) -> Tensor:
        return torch.stack([shared.log_distance(z - one) for one in centres], 1).amin(1)

    ways: dict[str, Callable[[Tensor], Tensor]] = {
        "head": lambda z: nearest(z, means),
        "head, one mean": whole.log_distance,
        "4 prototypes a class": lambda z: nearest(z, prototypes),
        "covariance a class": lambda z: torch.stack([one.log_distance(z) for one in own], 1).amin(1),
        "relative distance": lambda z: nearest(z, means).exp() - whole.log_distance(z).exp(),
        "residual": lambda z: (z @ rest).norm(dim=1),
        "kNN, 50 of all": lambda z: torch.cat(
            [torch.cdist(b.float(), unit.float()).kthvalue(50, dim=1).values for b in z.split(500)]
        ).double(),
    }
    found: dict[str, Table] = {}
    for name in asked:
        z, logits = functional.normalize(sets[name].head.double(), dim=1), sets[name].logits.double()
        for way, distance in ways.items():
            found.setdefault(way, {})[name] = distance(z)
        away = sets[name].head.double().norm(dim=1).clamp_min(1e-30).log() - length.mean()
        found.setdefault("two-sided length", {})[name] = away.abs()
        found.setdefault("energy", {})[name] = -logits.logsumexp(1)
        found.setdefault("entropy", {})[name] = -(logits.softmax(1) * logits.log_softmax(1)).sum(1)
    return found


def _typicality(sets: Mapping[str, Features], asked: Sequence[str], rank: int, bits: int = 64) -> dict[str, Table]:
    columns: dict[str, list[Tensor]] = {name: [] for name in asked}
    for layer, rows in sets["train"].pooled.items():
        gaussian = Gaussian(rows, rank, bits=bits)
        distances = {name: gaussian.log_distance(sets[name].pooled[layer]) for name in asked}
        centre, spread = distances["validation"].mean(), distances["validation"].std()
        for name, one in distances.items():
            columns[name].append((one - centre) / spread)
    z = {name: torch.stack(one, 1) for name, one in columns.items()}
    layers = range(z["validation"].shape[1])
    return {
        f"softplus² {rank}": {name: functional.softplus(one).square().mean(1) for name, one in z.items()},
        f"mean {rank}": {name: one.mean(1) for name, one in z.items()},
        f"max {rank}": {name: one.amax(1) for name, one in z.items()},
        f"fisher {rank}": {
            name: -torch.stack([log_p(z["validation"][:, i], one[:, i]) for i in layers]).sum(0)
            for name, one in z.items()
        },
    }


def _prototypes(rows: Tensor, count: int, rounds: int = 20) -> Tensor:  # (n, D) -> (count, D)
    """Return the centres of k-means, from rows that are far apart at the start."""
    centres = rows[:1]
    while len(centres) < count:
        centres = torch.cat([centres, rows[torch.cdist(rows, centres).amin(1).argmax()][None]])
    for _ in range(rounds):
        nearest = torch.cdist(rows, centres).argmin(1)
        centres = torch.stack(
            [rows[nearest == c].mean(0) if (nearest == c).any() else centres[c] for c in range(count)]
        )
    return centres


def _figures(scores: Table) -> dict[str, Any]:
    sets = {name: metrics.ood(scores["fresh"], one)["auroc"] for name, one in scores.items() if is_unknown(name)}
    limit = scores["validation"].quantile(0.95)
    alarms = float((scores["fresh"] > limit).double().mean())
    return {"mean": sum(sets.values()) / len(sets), "false_alarms": alarms, "sets": sets}
