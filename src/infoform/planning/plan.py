"""A plan as a value: what each layer takes, what a fit costs, and whether that fits this machine."""

import math
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from infoform.common.bytes import show_bytes


@dataclass(frozen=True)
class LayerPlan:
    """One layer's share of a plan."""

    name: str
    shape: tuple[int, int]  # (G, A)
    rank: int | None  # of INF
    nbytes: int  # of the posterior
    statistics_bytes: int  # of the fit, at most at a time
    energy: float | None = None  # Σ Λ of all pairs, known after a fit
    kept: float | None = None  # Σ Λ_T / Σ Λ


@dataclass(frozen=True)
class Plan:
    """Bytes and cost of a posterior; prints as a table.

    Args:
        structure: Name of the structure.
        layers: One row for each layer.
        fitted: Whether made from a fit's statistics, or before any data was seen.
        exact: Whether bytes are exact, or the most they can be.
        budget: Bytes that were given, if any.
        statistics_bytes: Of all layers, at most at a time.
        peak_bytes: Of a fit with batches of the example's size, about; beside the model.
        cost: Of a fit, in gradient passes over the same data.
        eigen_examples: Of the eigendecompositions, in gradient passes of one example.
        available_bytes: Memory that is free here; None where that cannot be known.
        notes: Sentences that a reader should know.
        groups: Layers that are fitted together, where these are not all.

    Example:
        ```python
        plan = infoform.plan(model)
        print(plan.total_bytes, plan.ranks)
        ```
    """

    structure: str
    layers: tuple[LayerPlan, ...]
    fitted: bool  # whether made from a fit's statistics, or before any data was seen
    exact: bool  # whether nbytes are exact, or the most they can be
    budget: int | None
    statistics_bytes: int  # of all layers, at most at a time
    peak_bytes: int | None  # of a fit with batches of the example's size, about; beside the model
    cost: float | None  # of a fit, in gradient passes over the same data
    eigen_examples: float | None  # of the eigendecompositions, in gradient passes of one example
    available_bytes: int | None
    notes: tuple[str, ...] = ()
    groups: tuple[tuple[str, ...], ...] = ()  # of layers that are fitted together, where these are not all

    @property
    def total_bytes(self) -> int:
        """Return the bytes of the posterior of all layers."""
        return sum(layer.nbytes for layer in self.layers)

    @property
    def ranks(self) -> dict[str, int]:
        """Return the rank of every layer, for `rank=`; empty where the structure has none."""
        return {layer.name: layer.rank for layer in self.layers if layer.rank is not None}

    @property
    def kept(self) -> float | None:
        """Return Σ Λ_T / Σ Λ over all layers; None before a fit."""
        energies = [(layer.energy, layer.kept) for layer in self.layers]
        total = math.fsum(energy for energy, _ in energies if energy is not None)
        if any(kept is None for _, kept in energies):
            return None
        return math.fsum(e * k for e, k in energies if e is not None and k is not None) / total if total else 1.0

    @property
    def fits(self) -> bool | None:
        """Return whether fit and posterior fit the memory now available; None where that cannot be known."""
        if self.available_bytes is None:
            return None
        left = self.available_bytes - self.total_bytes
        if self.fitted:
            return left >= 0
        if self.peak_bytes is None:  # then the statistics are the least that a fit takes
            return None if left >= self.statistics_bytes else False
        return left >= self.peak_bytes

    def __str__(self) -> str:
        right: dict[str, Any] = {"justify": "right"}
        table = Table(Column("layer", overflow="fold"), *(Column(head, **right) for head in _HEADS))
        for layer in self.layers:
            table.add_row(layer.name, "×".join(map(str, layer.shape)), *_cells(layer))
        table.add_section()
        kept = self.kept
        total = LayerPlan("all", (0, 0), None, self.total_bytes, self.statistics_bytes, None, kept)
        table.add_row("all", "", *_cells(total))
        console = Console(width=120)
        with console.capture() as captured:
            console.print(table)
        return captured.get() + "\n".join(self._sentences()) + "\n"

    def _sentences(self) -> list[str]:
        size = show_bytes(self.total_bytes)
        lines = [f"posterior ({self.structure}): {size if self.exact else f'at most {size}'}"]
        if self.budget is not None:
            lines[0] += f" of {show_bytes(self.budget)}"
        if self.kept is not None:
            lines[0] += f", keeps {self.kept:.1%} of the energy"
        if self.peak_bytes is not None:
            lines.append(f"peak of a fit: about {show_bytes(self.peak_bytes)} beside the model")
        if self.groups:
            lines[-1] += f", in {len(self.groups)} groups of layers"
        if self.cost is not None:
            lines.append(f"cost of a fit, by flops: {self.cost:.1f} times a gradient pass over the same data")
        if self.eigen_examples:
            lines[-1] += f", and eigendecompositions worth {self.eigen_examples:,.0f} examples"
        free = "unknown" if self.available_bytes is None else show_bytes(self.available_bytes)
        answer = {True: "it fits", False: "it does not fit", None: "whether it fits is unknown"}[self.fits]
        lines.append(f"memory available here: {free}; {answer}")
        return [*lines, *self.notes]


_HEADS = ("shape", "rank", "posterior", "statistics", "kept")


def _cells(layer: LayerPlan) -> list[str]:
    return [
        "" if layer.rank is None else str(layer.rank),
        show_bytes(layer.nbytes),
        show_bytes(layer.statistics_bytes),
        "" if layer.kept is None else f"{layer.kept:.1%}",
    ]
