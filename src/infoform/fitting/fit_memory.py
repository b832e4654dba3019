"""The memory that the fit of some layers takes, and how to part layers into groups that keep a budget.

Every pass holds the running sums and the waiting gradients of all its layers, the activations that a backward pass to
the first of its layers needs, and patches and gradients of one layer. Between the passes the moments of one layer are
decomposed. The curvature of finished layers may stay in memory, too. Layers are taken in the order of their calls:
activations before the first layer of a group are not held, so that later groups need fewer activations.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from infoform.common.bytes import show_bytes
from infoform.curvature.request import FitSettings, StatisticsRequest, rereads_selected
from infoform.fitting.chunks import ChunkLimits
from infoform.fitting.layer_costs import eigen_bytes, statistics_bytes
from infoform.fitting.layer_sums import layer_dimensions
from infoform.network.layer import Layer
from infoform.network.probe import ProbeResult

__all__ = ["LayerMemory", "choose_groups", "largest_peak", "layer_dimensions", "layer_memory", "peak_bytes"]


@dataclass(frozen=True)
class LayerMemory:
    """Bytes that the fit of one layer takes."""

    sums: tuple[int, int]  # in the first and in the second pass, which may not be needed
    waiting: int  # gradients kept over batches
    working: int  # patches and gradients in hand
    eigen: int  # of its eigendecompositions
    activations: int  # that a backward pass to it saves

    @property
    def result(self) -> int:
        return self.sums[1] or self.sums[0]


def layer_memory(
    layers: Mapping[str, Layer], seen: ProbeResult, request: StatisticsRequest, settings: FitSettings
) -> dict[str, LayerMemory]:
    """Return the memory of each layer, in the order of their calls; layers that were not called come last.

    Args:
        layers: The layers that are fitted.
        seen: What an example batch has told of the model.
        request: The statistics that the fit is asked for.
        settings: How they are measured.
    """
    single = settings.fisher != "exact" and settings.fisher_samples == 1
    order = [name for name in seen.uses if name in layers] + [name for name in layers if name not in seen.uses]
    limits = ChunkLimits.of(settings.chunk, model_bytes=seen.model_bytes, single=single)
    rereads = rereads_selected(request, settings)
    found = {}
    for name in order:
        size = layer_dimensions(layers[name], request, settings, use=seen.uses.get(name))
        found[name] = LayerMemory(
            statistics_bytes(
                size,
                request.of(name),
                block=size.weights <= settings.block_limit,
                sifted=rereads,
                passes=2 if request.bases else 1,
            ),
            limits.waiting_bytes(size),
            limits.working_bytes(size, examples=seen.examples) if name in seen.uses else 0,
            eigen_bytes(size, request.of(name)),
            seen.activations.get(name, 0),
        )
    return found


def peak_bytes(layers: Iterable[LayerMemory]) -> int:
    """Return about the most that a fit of these layers holds at a time."""
    given = list(layers)
    sums = max(sum(one.sums[number] for one in given) for number in (0, 1))
    moving = sum(one.waiting for one in given) + max(one.working + one.activations for one in given)
    # one layer's vectors are found while its moments, and those of the others, are still there
    return sums + max(moving, max(one.eigen + one.sums[1] for one in given))


def choose_groups(given: Mapping[str, LayerMemory], *, budget: int, stays: bool, novelty: int = 0) -> list[list[str]]:
    """Return the names of the layers that are fitted together, as many in each group as the budget holds.

    Args:
        given: The memory of each layer, in the order of their calls.
        budget: Bytes that a group may take.
        stays: Whether the curvature of finished layers takes memory of the same device.
        novelty: Bytes that the first group holds for novelty, which sees all layers in its pass.

    Raises:
        ValueError: A layer alone takes more than the budget.
    """
    groups: list[list[str]] = []
    finished, beside = 0, novelty
    for name, one in given.items():
        if groups and finished + beside + peak_bytes(given[other] for other in [*groups[-1], name]) <= budget:
            groups[-1].append(name)
            continue
        if groups:
            beside = 0
            finished += sum(given[other].result for other in groups[-1]) if stays else 0
        least = finished + beside + peak_bytes([one])
        if least > budget:
            raise ValueError(_too_little(name, one, budget, least, finished, beside))
        groups.append([name])
    return groups


def largest_peak(
    given: Mapping[str, LayerMemory], groups: Sequence[Sequence[str]], *, stays: bool, novelty: int = 0
) -> int:
    """Return the most bytes that a fit in these groups holds at a time; the arguments are as for `choose_groups`."""
    peak = finished = 0
    for number, group in enumerate(groups):
        beside = novelty if number == 0 else 0
        peak = max(peak, finished + beside + peak_bytes(given[name] for name in group))
        finished += sum(given[name].result for name in group) if stays else 0
    return peak


def _too_little(name: str, one: LayerMemory, budget: int, least: int, finished: int, novelty: int) -> str:
    parts = {
        "activations of a batch": one.activations,
        "patches and gradients": one.waiting + one.working,
        "statistics": max(one.sums),
        "eigendecompositions": one.eigen,
        "layers that are finished": finished,
        "novelty": novelty,
    }
    told = ", ".join(f"{show_bytes(size)} for {what}" for what, size in parts.items() if size)
    remedy = "offload= what is finished, smaller batches or" if finished else "smaller batches, a smaller chunk= or"
    if novelty:
        remedy = f"FitOptions(novelty=False), {remedy}"
    return (
        f"max_memory must be at least {show_bytes(least)} for layer '{name}' ({told}), got {show_bytes(budget)}; "
        f"use {remedy} fewer layers=."
    )
