"""What a fit tells about bytes: each layer's spectrum and its price by rank, and what other structures would take."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from infoform.laplace import Laplace
from infoform.planner import plan
from infoform.planning.after_fit import MAX_RANK
from infoform.posteriors import STRUCTURES, RankedStructure

if TYPE_CHECKING:
    from infoform.planning.plan import Plan

RANKS = sorted({round(10 ** (step / 10)) for step in range(34)})  # 1, 2, 3, 4, 5, 6, 8, 10, 13, ..., 1995


def spectrum(laplace: Laplace, name: str) -> dict[str, Any] | None:
    """Return the layer's K-th eigenvalue, the share kept by K pairs and their bytes, for some K; None without a basis.

    The bytes are of structure inf, which is the one that has a rank; None for the others.
    """
    curvature = laplace.curvature[name]
    structure = laplace.structure
    eigen = curvature.bases.get(laplace.settings.flat()["basis"])
    if eigen is None:
        return None
    values = eigen.eigenvalues.double().flatten().sort(descending=True).values.cpu()
    total = eigen.total_energy
    energy, nbytes = values.cumsum(0)[:MAX_RANK], None
    if isinstance(structure, RankedStructure) and curvature.diagonal is not None:
        curve = structure.rank_curve(curvature, max_rank=MAX_RANK)
        energy, nbytes = curve.energy, curve.nbytes + laplace.prior_bytes(name)
    places = torch.tensor(sorted({*(rank for rank in RANKS if rank < len(energy)), len(energy)})) - 1
    return {
        "rank": places + 1,
        "eigenvalue": values[places],
        "kept": (energy[places] / total).clamp_max(1) if total > 0 else torch.ones(len(places)),
        "nbytes": None if nbytes is None else nbytes[places],
    }


def by_rank(layers: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]] | None:
    """Return the energy kept in all layers, as `fit` tells them, and their bytes, with one rank for all.

    None where a layer has no spectrum or no price. A layer with fewer pairs than the rank keeps them all.
    """
    told = [(layer["spectrum"], layer["energy"]) for layer in layers]
    if any(curve is None or curve["nbytes"] is None or energy is None for curve, energy in told):
        return None
    largest = max(int(curve["rank"][-1]) for curve, _ in told)
    ranks = [*(rank for rank in RANKS if rank < largest), largest]
    total = math.fsum(energy for _, energy in told)
    kept, nbytes = [], []
    for rank in ranks:
        places = [int((curve["rank"] <= rank).sum()) - 1 for curve, _ in told]
        shares = [float(curve["kept"][at]) * energy for (curve, energy), at in zip(told, places, strict=True)]
        kept.append(math.fsum(shares) / total if total else 1.0)
        nbytes.append(sum(int(curve["nbytes"][at]) for (curve, _), at in zip(told, places, strict=True)))
    return {"rank": ranks, "kept": kept, "nbytes": nbytes}


def structures(laplace: Laplace, planned: "Plan") -> list[dict[str, Any]]:
    """Return the bytes of every structure at this run's rank: those of its own as they are, the others as planned."""
    settings = laplace.settings
    fit_options = replace(settings.fit, statistics="needed")
    found = []
    for name in STRUCTURES:
        if name != laplace.structure.label:
            other = plan(
                Laplace(
                    laplace.model,
                    laplace.likelihood,
                    structure=settings.resolve(name),
                    prior=laplace.prior,
                    layers=settings.layers,
                    fit_options=fit_options,
                    seed=settings.seed,
                )
            )
            found.append({"structure": name, "bytes": other.total_bytes, "exact": other.exact, "own": False})
    own = {"structure": laplace.structure.label, "bytes": planned.total_bytes, "exact": True, "own": True}
    return sorted([*found, own], key=lambda one: one["bytes"])


def weight_bytes(laplace: Laplace) -> int:
    """Return the bytes of the network's own parameters."""
    return sum(parameter.numel() * parameter.element_size() for parameter in laplace.model.parameters())
