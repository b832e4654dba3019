"""What a posterior costs in memory: each layer at every rank, and the whole in other structures."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from glob import escape
from typing import TYPE_CHECKING

import torch

from infoform.laplace import Laplace
from infoform.planner import plan
from infoform.planning.after_fit import MAX_RANK
from infoform.posteriors import STRUCTURES, ByLayer, RankedStructure
from infoform.records.fit import ByRank, FittedLayer, Spectrum, StructureBytes

if TYPE_CHECKING:
    from infoform.planning.plan import Plan

RANKS = sorted({round(10 ** (step / 10)) for step in range(34)})  # 1, 2, 3, 4, 5, 6, 8, 10, 13, ..., 1995


def spectrum(laplace: Laplace, name: str) -> Spectrum | None:
    """Return a layer's K-th eigenvalue, the share of the energy that K pairs keep, and their bytes, for some K.

    None where the structure has no eigenbasis. The bytes are None where it has no rank; only inf has one.
    """
    curvature = laplace.curvature[name]
    structure = laplace.structure.of_layer(name, curvature.shape)
    eigen = curvature.bases.get(structure.options().get("basis", laplace.settings.flat()["basis"]))
    if eigen is None:
        return None
    values = eigen.eigenvalues.double().flatten().sort(descending=True).values.cpu()
    total = eigen.total_energy
    energy, nbytes = values.cumsum(0)[:MAX_RANK], None
    if isinstance(structure, RankedStructure) and curvature.diagonal is not None:
        curve = structure.rank_curve(curvature, max_rank=MAX_RANK)
        energy, nbytes = curve.energy, curve.nbytes + laplace.prior_bytes(name)
    places = torch.tensor(sorted({*(rank for rank in RANKS if rank < len(energy)), len(energy)})) - 1
    kept = (energy[places] / total).clamp_max(1) if total > 0 else torch.ones(len(places))
    return Spectrum(
        rank=(places + 1).tolist(),
        eigenvalue=values[places].tolist(),
        kept=kept.tolist(),
        nbytes=None if nbytes is None else nbytes[places].tolist(),
    )


def by_rank(layers: Sequence[FittedLayer]) -> ByRank | None:
    """Return what all layers together keep and take if they all have the same rank.

    None where a layer has no spectrum or no bytes by rank. A layer with fewer pairs than the rank keeps all of them.
    """
    curves: list[tuple[list[int], list[float], list[int], float]] = []
    for layer in layers:
        curve = layer.spectrum
        if curve is None or curve.nbytes is None or layer.energy is None:
            return None
        curves.append((curve.rank, curve.kept, curve.nbytes, layer.energy))
    largest = max(ranks[-1] for ranks, _, _, _ in curves)
    total = math.fsum(energy for _, _, _, energy in curves)
    table = ByRank([*(rank for rank in RANKS if rank < largest), largest], [], [])
    for rank in table.rank:
        places = [bisect_right(ranks, rank) - 1 for ranks, _, _, _ in curves]
        shares = [shares[at] * energy for (_, shares, _, energy), at in zip(curves, places, strict=True)]
        table.kept.append(math.fsum(shares) / total if total else 1.0)
        table.nbytes.append(sum(nbytes[at] for (_, _, nbytes, _), at in zip(curves, places, strict=True)))
    return table


def structures(laplace: Laplace, planned: "Plan") -> tuple[StructureBytes, ...]:
    """Return the bytes of the posterior in its own structure, and as planned in every other one at the same rank."""
    settings = laplace.settings
    fit_options = replace(settings.fit, statistics="needed")
    sizes = [StructureBytes(laplace.structure.label, planned.total_bytes, exact=True, own=True)]
    for name, kind in STRUCTURES.items():
        if name != laplace.structure.label and not issubclass(kind, ByLayer):  # of which there are many
            other = Laplace(
                laplace.model,
                laplace.likelihood,
                structure=settings.resolve(name),
                prior=laplace.prior,
                layers=[escape(layer) for layer in laplace.layers],
                fit_options=fit_options,
                seed=settings.seed,
            )
            expected = plan(other)
            sizes.append(StructureBytes(name, expected.total_bytes, exact=expected.exact, own=False))
    return tuple(sorted(sizes, key=lambda size: size.bytes))


def weight_bytes(laplace: Laplace) -> int:
    """Return the bytes of the network's parameters."""
    return sum(parameter.numel() * parameter.element_size() for parameter in laplace.model.parameters())
