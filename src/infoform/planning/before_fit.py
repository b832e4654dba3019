"""A plan before any data is seen: bytes of the posterior by layer, bytes of the statistics, peak and cost of a fit.

The bytes are exact but for a structure whose kept columns depend on the data; there they are the most that it can
take. Positions of convolutions and tokens, and with them peak and cost, are known from an example batch.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch

from infoform.common.bytes import available_bytes, show_bytes
from infoform.curvature.dimensions import Dimensions
from infoform.curvature.request import StatisticsRequest, rereads_selected
from infoform.fitting.fit_memory import choose_groups, largest_peak, layer_dimensions, layer_memory
from infoform.fitting.layer_costs import eigen_flops, fit_flops, forward_flops, statistics_bytes
from infoform.likelihoods.positions import outputs_last, positions_of
from infoform.network.batches import device_of
from infoform.network.probe import ProbeResult, probe
from infoform.novelty.memory import novelty_memory
from infoform.planning.plan import LayerPlan, Plan
from infoform.planning.target import PlanTarget
from infoform.posteriors import RankedStructure, Structure, structure_for


def plan_before_fit(
    target: PlanTarget,
    *,
    budget: int | None = None,
    example: Any = None,
    outputs: int | None = None,
    limit: int | None = None,
    stays: bool = True,
) -> Plan:
    """Plan a posterior and its fit from the sizes of layers alone.

    Args:
        target: The model, and what is to be fitted.
        budget: Bytes that the posterior may take: one rank for all layers is chosen for the worst case.
        example: A batch of inputs, of the size that the fit will see.
        outputs: Number of the model's outputs, where it cannot be seen from the example.
        limit: Bytes that the fit may take: layers are parted into groups.
        stays: Whether what is finished stays on the device of the work.

    Raises:
        ValueError: If the budget, or the limit, holds not even the least.
    """
    settings = target.settings
    seen = None if example is None else probe(target.model, example, also=target.layers)
    structure = target.structure if budget is None else _structure_within(budget, target, seen)
    request = target.request(structure)
    sizes = _sizes(target, structure, seen)
    blocks = {name: size.weights <= settings.block_limit for name, size in sizes.items()}
    reread = rereads_selected(request, settings)
    statistics = {
        name: statistics_bytes(
            size, request.of(name), block=blocks[name], sifted=reread, passes=2 if request.bases else 1
        )
        for name, size in sizes.items()
    }
    rows = tuple(
        LayerPlan(
            name,
            (size.outputs, size.inputs),
            own.planned_rank(size, layer=name) if isinstance(own, RankedStructure) else None,
            own.planned_bytes(size, layer=name) + target.prior.planned_bytes(size),
            max(statistics[name]),
        )
        for name, size in sizes.items()
        for own in [
            structure_for(structure, only_diagonal=size.only_diagonal).of_layer(name, (size.outputs, size.inputs))
        ]
    )
    peak = cost = eigen = None
    groups = [list(sizes)]
    if seen is not None:
        needed = layer_memory(target.layers, seen, request, settings)
        novelty = novelty_memory(seen.pooled, outputs=outputs or _answers(target, seen)[0]) if target.novelty else 0
        if limit is not None:
            groups = choose_groups(needed, budget=limit, stays=stays, novelty=novelty)
        peak = largest_peak(needed, groups, stays=stays, novelty=novelty)
        cost, eigen = _cost(target, request, sizes, seen, outputs=outputs, groups=len(groups))
    return Plan(
        structure=structure.label,
        layers=rows,
        fitted=False,
        exact=structure.planned_exactly,
        budget=budget,
        statistics_bytes=max(sum(one[number] for one in statistics.values()) for number in (0, 1)),
        peak_bytes=peak,
        cost=cost,
        eigen_examples=eigen,
        available_bytes=available_bytes(device_of(target.model)),
        notes=tuple(_notes(target, structure, sizes, seen)),
        groups=tuple(map(tuple, groups)) if len(groups) > 1 else (),
    )


def _sizes(target: PlanTarget, structure: Structure, seen: ProbeResult | None) -> dict[str, Dimensions]:
    uses = {} if seen is None else seen.uses
    request = target.request(structure)
    return {
        name: layer_dimensions(layer, request, target.settings, use=uses.get(name))
        for name, layer in target.layers.items()
    }


def _answers(target: PlanTarget, seen: ProbeResult) -> tuple[int, int]:
    """Return the outputs C of a position, and the positions of an example."""
    if len(seen.shape) < 2:
        return 1, 1
    arranged = outputs_last(torch.empty(seen.shape, device="meta"), target.likelihood.axis)
    return arranged.shape[-1], math.prod(positions_of(arranged))


def _cost(
    target: PlanTarget,
    request: StatisticsRequest,
    sizes: Mapping[str, Dimensions],
    seen: ProbeResult,
    *,
    outputs: int | None,
    groups: int,
) -> tuple[float, float]:
    """Return the cost of a fit in gradient passes over its data, and that of eigendecompositions in examples."""
    settings, likelihood = target.settings, target.likelihood
    called = {name: size for name, size in sizes.items() if size.positions is not None}
    width, positions = _answers(target, seen)
    vectors = likelihood.num_vectors(outputs or width, settings.fisher, settings.fisher_samples, positions)
    forward = sum(
        forward_flops(layer_dimensions(layer, request, settings, use=seen.uses[name]))
        for name, layer in seen.layers.items()
    )
    extra = sum(
        fit_flops(size, request.of(name), block=size.weights <= settings.block_limit, vectors=vectors)
        for name, size in called.items()
    )
    if any(seen.layers[name].rule.expands for name in called if name in seen.layers):  # the network with copies
        extra += (1 + vectors) * forward
    passes = (2 if request.bases else 1) * groups
    eigen = sum(eigen_flops(size, request.of(name)) for name, size in called.items())
    return (passes * (1 + vectors) * forward + extra) / (3 * forward), eigen / (3 * forward)


def _notes(
    target: PlanTarget, structure: Structure, sizes: Mapping[str, Dimensions], seen: ProbeResult | None
) -> list[str]:
    notes = []
    if not structure.planned_exactly:
        notes.append(
            f"the bytes of {structure.name} are the most it can take: which columns it uses depends on the data"
        )
    try:
        shapes = {name: (size.outputs, size.inputs) for name, size in sizes.items() if not size.only_diagonal}
        structure.check_layers(shapes, block_limit=target.settings.block_limit)
    except ValueError:
        owners = {name: structure.of_layer(name, shape) for name, shape in shapes.items()}
        exact = [
            name for name, own in owners.items() if not own.has_ranks and _refuses(own, name, shapes[name], target)
        ]
        if not exact:
            raise
        largest, label = max(sizes[name].weights for name in exact), owners[exact[0]].name
        notes.append(f"structure='{label}' needs block_limit={largest} here, which Laplace takes, or fewer layers=")
    if seen is None:
        notes.append("peak and cost of a fit are unknown without example=, a batch of inputs")
        return notes
    uncalled = [name for name, size in sizes.items() if size.positions is None]
    if uncalled:
        notes.append(f"never called with this example: {', '.join(uncalled)}")
    return notes


def _structure_within(budget: int, target: PlanTarget, seen: ProbeResult | None) -> Structure:
    """Return the structure with the largest rank for all layers whose worst case keeps the budget."""
    structure = target.structure

    def total(chosen: Structure) -> int:
        return sum(
            structure_for(chosen, only_diagonal=size.only_diagonal).planned_bytes(size, layer=name)
            + target.prior.planned_bytes(size)
            for name, size in _sizes(target, chosen, seen).items()
        )

    def at_rank(rank: int) -> Structure:
        if isinstance(structure, RankedStructure):
            return structure.with_options(rank=rank)
        return structure.with_layer_ranks(dict.fromkeys(target.layers, rank))

    ranked = structure.has_ranks
    least = total(at_rank(1))
    if least > budget:
        what = "rank 1 in every layer" if ranked else f"structure {structure.name!r}"
        raise ValueError(
            f"memory must be at least {least} bytes ({show_bytes(least)}), which {what} takes, got {budget}; "
            "leave layers out with layers=, or choose another structure."
        )
    if not ranked:
        return structure
    low, high = 1, max(layer.shape[0] * layer.shape[1] for layer in target.layers.values())
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if total(at_rank(middle)) <= budget else (low, middle - 1)
    return at_rank(low)


def _refuses(structure: Structure, name: str, shape: tuple[int, int], target: PlanTarget) -> bool:
    try:
        structure.check_layers({name: shape}, block_limit=target.settings.block_limit)
    except ValueError:
        return True
    return False
