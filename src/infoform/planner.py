"""What a posterior will cost before a fit, and how to spend a budget of bytes after it.

Before: bytes of the posterior by layer, bytes of the statistics, peak memory and cost of a fit. The bytes are exact but
for INF, whose pairs use columns that depend on the data; there they are the most that it can take. Positions of
convolutions and tokens, and with them peak and cost, are known from an example batch.
After: the rank of every layer, by kept energy for each byte (see budget.py).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from infoform.common.bytes import available_bytes, read_bytes, show_bytes
from infoform.common.checks import check_whole
from infoform.curvature.curvature import Curvature, pack_curvature
from infoform.curvature.dimensions import Dimensions
from infoform.curvature.request import ALL_STATISTICS, CHUNK_BYTES, StatisticsRequest, rereads_selected
from infoform.fitting.fit_memory import choose_groups, largest_peak, layer_dimensions, layer_memory
from infoform.fitting.layer_costs import eigen_flops, fit_flops, forward_flops, statistics_bytes
from infoform.laplace import Laplace
from infoform.network.batches import device_of
from infoform.network.probe import probe
from infoform.options import Rank
from infoform.planning.plan import LayerPlan, Plan
from infoform.planning.rank_budget import choice_at, rank_curve, spend
from infoform.posteriors import STRUCTURES, Inf
from infoform.posteriors.planned_bytes import posterior_bytes, prior_bytes

MAX_RANK = 2048  # its K × K Gram takes 34 MB in float64, and its eigenvectors seconds


def plan(
    target: nn.Module | Laplace,
    *,
    structure: str | None = None,
    rank: Rank | None = None,
    memory: int | str | None = None,
    storage: str | None = None,
    basis_size: int | str | None = "auto",
    layers: Sequence[str] | None = None,
    example: Any = None,
    likelihood_outputs: int | None = None,
    fisher: str = "mc",
    chunk: int | str = CHUNK_BYTES,
    max_memory: int | str | None = None,
    offload: bool = False,
    max_rank: int = MAX_RANK,
) -> Plan:
    """Plan the posterior of a model before any data is seen, or of a fitted `Laplace` from what it has measured.

    `memory` ("48MB", "48MiB" or a number of bytes) chooses the ranks of structure "inf": after a fit layer by layer,
    where they keep most, none above `max_rank`; before it one for all, for the worst case. `example` is a batch of
    inputs, of the size that the fit will see; `likelihood_outputs` the number of the model's outputs, which matters
    with `fisher="exact"`. `max_memory` is that of `fit`: with an example the plan tells the groups of layers, and
    `offload` whether what is finished leaves the device. The model is left as found, and may be on the meta device.
    """
    budget = None if memory is None else read_bytes(memory)
    check_whole("max_rank", max_rank)
    if budget is not None and rank is not None:
        raise ValueError(f"rank and memory exclude each other, got rank={rank!r} and memory={memory!r}; give one.")
    if isinstance(target, Laplace):
        size = None if basis_size == "auto" else basis_size
        own = None if chunk == CHUNK_BYTES else chunk
        given = {"storage": storage, "basis_size": size, "layers": layers, "rank": rank, "chunk": own}
        wrong = [name for name, value in given.items() if value is not None]
        if wrong:
            raise ValueError(f"a Laplace has its own {wrong[0]}, got {wrong[0]}={given[wrong[0]]!r}; leave it out.")
        if target.num_data is not None:
            if max_memory is not None:
                raise ValueError(f"max_memory is of a fit, and this one is done, got {max_memory!r}; leave it out.")
            return _after_fit(target, structure, budget, max_rank)
        if structure is not None:
            raise ValueError(f"an unfitted Laplace has its own structure, got {structure!r}; leave it out, or fit.")
        laplace = target
    else:
        laplace = Laplace(
            target,
            "classification",
            structure=structure or "inf",
            rank=100 if rank is None else rank,
            storage=storage,
            basis_size=basis_size,
            layers=layers,
            fisher=fisher,
            chunk=chunk,
        )
    limit = None if max_memory is None else read_bytes(max_memory)
    if limit is not None and example is None:
        raise ValueError("max_memory needs example=, a batch of inputs, to know what a pass holds; give one.")
    return _before_fit(laplace, budget, example, likelihood_outputs, limit, stays=not offload)


def _before_fit(
    laplace: Laplace, budget: int | None, example: Any, outputs: int | None, limit: int | None, *, stays: bool
) -> Plan:
    settings, for_fit = laplace.settings, laplace.settings.for_fit()
    kind, options = settings.resolve(None, {})
    seen = None if example is None else probe(laplace.model, example)

    def at(rank: Rank | None) -> tuple[StatisticsRequest, dict[str, Dimensions]]:
        given = options if rank is None else options | {"rank": rank}
        request = ALL_STATISTICS if settings.statistics == "all" else STRUCTURES[kind].request(given)
        request = request | StatisticsRequest(inputs=laplace.prior.needs_inputs)
        uses = {} if seen is None else seen.uses
        return request, {
            name: layer_dimensions(layer, request, for_fit, use=uses.get(name))
            for name, layer in laplace.layers.items()
        }

    if budget is None:
        request, sizes = at(None)
        ranks = {name: _asked_rank(options.get("rank", 1), name, size) for name, size in sizes.items()}
    else:
        rank = _rank_within(budget, kind, options, lambda rank: at(rank)[1])
        request, sizes = at(rank)
        ranks = {name: min(rank, size.pairs) for name, size in sizes.items()}
    blocks = {name: size.weights <= settings.block_limit for name, size in sizes.items()}
    sifted = rereads_selected(request, for_fit)
    statistics = {
        name: statistics_bytes(size, request, block=blocks[name], sifted=sifted) for name, size in sizes.items()
    }
    rows = tuple(
        LayerPlan(
            name,
            (size.outputs, size.inputs),
            ranks[name] if kind == "inf" else None,
            posterior_bytes(size, kind, options, rank=ranks[name]) + prior_bytes(size),
            max(statistics[name]),
        )
        for name, size in sizes.items()
    )
    passes = [sum(one[number] for one in statistics.values()) for number in (0, 1)]
    peak = cost = eigen = None
    groups = [list(sizes)]
    if seen is not None:
        called = {name: size for name, size in sizes.items() if size.positions is not None}
        count = outputs or seen.outputs
        vectors = laplace.likelihood.num_vectors(count, settings.fisher, settings.fisher_samples)
        forward = sum(
            forward_flops(layer_dimensions(layer, request, for_fit, use=seen.uses[name]))
            for name, layer in seen.layers.items()
        )
        extra = sum(fit_flops(one, request, block=blocks[name], vectors=vectors) for name, one in called.items())
        needed = layer_memory(laplace.layers, seen, request, for_fit)
        if limit is not None:
            groups = choose_groups(needed, budget=limit, stays=stays)
        number = (2 if request.bases else 1) * len(groups)
        cost = (number * (1 + vectors) * forward + extra) / (3 * forward)
        eigen = sum(eigen_flops(size, request) for size in called.values()) / (3 * forward)
        peak = largest_peak(needed, groups, stays=stays)
    notes = []
    if kind == "inf":
        notes.append("the bytes of inf are the most it can take: which columns it uses depends on the data")
    if kind == "full" and not all(blocks.values()):
        largest = max(size.weights for size in sizes.values())
        notes.append(f"structure='full' needs block_limit={largest} here, which Laplace takes, or fewer layers=")
    if seen is None:
        notes.append("peak and cost of a fit are unknown without example=, a batch of inputs")
    elif len(called) < len(sizes):
        notes.append(f"never called with this example: {', '.join(name for name in sizes if name not in called)}")
    return Plan(
        settings.structure,
        rows,
        False,
        kind != "inf",
        budget,
        max(passes),
        peak,
        cost,
        eigen,
        available_bytes(device_of(laplace.model)),
        tuple(notes),
        tuple(map(tuple, groups)) if len(groups) > 1 else (),
    )


def _after_fit(laplace: Laplace, structure: str | None, budget: int | None, max_rank: int) -> Plan:
    kind, options = laplace.settings.resolve(structure, {})
    name_of_structure = structure or laplace.settings.structure
    curvatures = laplace.curvature
    if budget is not None and kind != "inf":
        raise ValueError(
            f"memory= chooses the ranks of structure 'inf', got {name_of_structure!r}; fit with structure='inf'."
        )
    rows, notes = [], []
    if budget is None:
        for name, layer in laplace.posterior(structure=structure).layers.items():
            inf = layer if isinstance(layer, Inf) else None
            energy = None if inf is None else _energy(curvatures[name], options["basis"])
            kept = None if inf is None or energy is None else _share(float(inf.eigenvalues.double().sum()), energy)
            held = _held_bytes(curvatures[name])
            rows.append(
                LayerPlan(name, layer.shape, None if inf is None else inf.rank, layer.nbytes, held, energy, kept)
            )
    else:
        curves = {}
        for name, curvature in curvatures.items():
            if curvature.diagonal is None or options["basis"] not in curvature.bases:
                raise ValueError(
                    f"structure {name_of_structure!r} needs statistics of layer '{name}' that the fit did not collect; "
                    "fit with that structure or with statistics='all'."
                )
            eigen = curvature.bases[options["basis"]]
            columns = (eigen.gradient_vectors.shape[1], eigen.input_vectors.shape[1])
            size = Dimensions(*curvature.shape, columns, curvature.diagonal.dtype)
            curve = rank_curve(size, eigen, options, max_rank=max_rank)
            curves[name] = replace(curve, nbytes=curve.nbytes + laplace.prior_bytes(name, structure))  # at any rank
        bought = spend(curves, budget)
        for name, one in bought.items():
            total, held = curves[name].total, _held_bytes(curvatures[name])
            share = _share(choice_at(curves[name], one.rank).energy, total)
            rows.append(LayerPlan(name, curvatures[name].shape, one.rank, one.nbytes, held, total, share))
        full = [name for name, one in bought.items() if one.rank == len(curves[name].nbytes) == max_rank]
        if full:
            notes.append(f"at max_rank={max_rank}, more would be slow: {', '.join(full)}")
    return Plan(
        name_of_structure,
        tuple(rows),
        True,
        True,
        budget,
        sum(row.statistics_bytes for row in rows),
        None,
        None,
        None,
        available_bytes(device_of(laplace.model)),
        tuple(notes),
    )


def _rank_within(
    budget: int, kind: str, options: Mapping[str, Any], sizes_at: Callable[[int], Mapping[str, Dimensions]]
) -> int:
    """Return the largest rank for all layers whose worst case keeps the budget."""

    def total(rank: int) -> int:
        return sum(
            posterior_bytes(size, kind, options, rank=min(rank, size.pairs)) + prior_bytes(size)
            for size in sizes_at(rank).values()
        )

    least = total(1)
    if least > budget:
        what = "rank 1 in every layer" if kind == "inf" else f"structure {kind!r}"
        raise ValueError(
            f"memory must be at least {least} bytes ({show_bytes(least)}), which {what} takes, got {budget}; "
            "leave layers out with layers=, or choose another structure."
        )
    low, high = 1, max(size.weights for size in sizes_at(1).values()) if kind == "inf" else 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if total(middle) <= budget else (low, middle - 1)
    return low


def _asked_rank(rank: Rank, name: str, size: Dimensions) -> int:
    if isinstance(rank, Mapping):
        if name not in rank:
            raise ValueError(f"rank must have a value for each layer, got none for '{name}'; add it.")
        return min(rank[name], size.pairs)
    return min(size.pairs, max(1, round(rank * size.weights)) if isinstance(rank, float) else rank)


def _energy(curvature: Curvature, basis: str) -> float:
    eigen = curvature.bases[basis]
    left_out = 0.0 if eigen.residual is None else float(eigen.residual.double().sum())
    return float(eigen.eigenvalues.double().sum()) + left_out


def _held_bytes(curvature: Curvature) -> int:
    return sum(tensor.nbytes for tensor in pack_curvature(curvature)[0].values())


def _share(part: float, total: float) -> float:
    return min(1.0, part / total) if total > 0 else 1.0
