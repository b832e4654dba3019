"""A plan after a fit: the bytes of its posterior, or the ranks that keep most energy within a budget of bytes."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch

from infoform.common.bytes import available_bytes
from infoform.curvature.curvature import Curvature, pack_curvature
from infoform.planning.plan import LayerPlan, Plan
from infoform.planning.rank_budget import choice_at, spend
from infoform.posteriors import LayerPosterior, RankCurve, RankedStructure, Structure, structure_for
from infoform.priors import LayerPrior

MAX_RANK = 2048  # its K × K Gram takes 34 MB in float64, and its eigenvectors seconds


def plan_posterior(
    structure: Structure,
    layers: Mapping[str, LayerPosterior],
    curvature: Mapping[str, Curvature],
    *,
    device: torch.device,
) -> Plan:
    """Return the plan of a posterior that is there: its bytes, and the energy that its eigenpairs keep."""
    rows = []
    for name, layer in layers.items():
        energy = kept = None
        own = structure_for(structure, only_diagonal=curvature[name].only_diagonal).of_layer(name, layer.shape)
        if isinstance(own, RankedStructure) and layer.kept_energy is not None:
            energy = curvature[name].bases[own.basis].total_energy
            kept = _share(layer.kept_energy, energy)
        held = _held_bytes(curvature[name])
        rows.append(LayerPlan(name, layer.shape, layer.rank, layer.nbytes, held, energy, kept))
    return _plan(structure, rows, device)


def plan_ranks(
    structure: Structure,
    curvature: Mapping[str, Curvature],
    *,
    budget: int,
    prior_bytes: Callable[[str], int],  # of a layer, by name
    device: torch.device,
    max_rank: int = MAX_RANK,
) -> Plan:
    """Choose the ranks that keep most energy within a budget of bytes.

    Raises:
        ValueError: If the structure has no rank, if the fit did not collect what it needs, or if the budget holds not
            even rank 1 in every layer.
    """
    if not structure.has_ranks:
        raise ValueError(
            f"memory= chooses the ranks of structure 'inf', got {structure.label!r}; fit with structure='inf'."
        )
    curves: dict[str, RankCurve] = {}
    fixed: dict[str, int] = {}  # bytes of layers that have no rank
    for name, one in curvature.items():
        own = structure_for(structure, only_diagonal=one.only_diagonal).of_layer(name, one.shape)
        if not isinstance(own, RankedStructure):
            fixed[name] = own.build(one, prior=LayerPrior(1.0), num_data=1.0).nbytes + prior_bytes(name)
            continue
        if one.diagonal is None or own.basis not in one.bases:
            raise ValueError(
                f"structure {structure.label!r} needs statistics of layer '{name}' that the fit did not collect; "
                "fit with that structure or with statistics='all'."
            )
        curve = own.rank_curve(one, max_rank=max_rank)
        curves[name] = replace(curve, nbytes=curve.nbytes + prior_bytes(name))  # at any rank
    if not curves and sum(fixed.values()) > budget:
        raise ValueError(
            f"memory must be at least {sum(fixed.values())} bytes, which layers without a rank take, got {budget}; "
            "leave layers out with layers=, or choose another structure."
        )
    choices = spend(curves, budget - sum(fixed.values())) if curves else {}
    rows = [
        LayerPlan(name, curvature[name].shape, None, nbytes, _held_bytes(curvature[name]), None, None)
        for name, nbytes in fixed.items()
    ]
    for name, choice in choices.items():
        total, held = curves[name].total, _held_bytes(curvature[name])
        share = _share(choice_at(curves[name], choice.rank).energy, total)
        rows.append(LayerPlan(name, curvature[name].shape, choice.rank, choice.nbytes, held, total, share))
    full = [name for name, choice in choices.items() if choice.rank == len(curves[name].nbytes) == max_rank]
    notes = (f"at max_rank={max_rank}, more would be slow: {', '.join(full)}",) if full else ()
    return _plan(structure, rows, device, budget=budget, notes=notes)


def _plan(
    structure: Structure,
    rows: list[LayerPlan],
    device: torch.device,
    *,
    budget: int | None = None,
    notes: tuple[str, ...] = (),
) -> Plan:
    return Plan(
        structure=structure.label,
        layers=tuple(rows),
        fitted=True,
        exact=True,
        budget=budget,
        statistics_bytes=sum(row.statistics_bytes for row in rows),
        peak_bytes=None,
        cost=None,
        eigen_examples=None,
        available_bytes=available_bytes(device),
        notes=notes,
    )


def _held_bytes(curvature: Curvature) -> int:
    return sum(tensor.nbytes for tensor in pack_curvature(curvature)[0].values())


def _share(part: float, total: float) -> float:
    return min(1.0, part / total) if total > 0 else 1.0
