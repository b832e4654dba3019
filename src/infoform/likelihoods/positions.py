"""Positions: where a network answers at several places of an example (tokens, pixels), every place is a row.

    outputs   (N, *P, C)                  the network's, with the C numbers of a position last
    rows      (R, C), R = N · P           example by example; all that the methods of a likelihood ever see
    targets   (N, *P) or (N, *P, K)       −100 (NaN in a floating-point type) where a position has none: it counts not

A likelihood is one of a position. That of an example is the product over its positions that count, so that its Fisher
matrix is block-diagonal: nothing larger than C × C is ever formed, and labels drawn independently at all positions make
one Fisher vector of the whole example, since E[u_s u_tᵀ] = 0 for s ≠ t.
"""

from dataclasses import dataclass

from torch import Tensor


def outputs_last(x: Tensor, axis: int | None) -> Tensor:  # -> (N, *P, C)
    """Return outputs with the numbers of a position on the last axis; a view.

    Args:
        x: outputs of a network, (N, T, C) or (N, C, H, W), say.
        axis: where the numbers of a position are; None for the last axis of three and the second of four or more.

    Raises:
        ValueError: if there is no such axis.
    """
    if x.dim() < 3:
        return x
    place = (-1 if x.dim() == 3 else 1) if axis is None else axis
    if place == 0 or not -x.dim() < place < x.dim():
        raise ValueError(
            f"axis says where the numbers of a position are in outputs of shape {tuple(x.shape)}, whose first axis is "
            f"the examples, got {axis}; give a number from 1 to {x.dim() - 1}, or leave it out."
        )
    return x.movedim(place, -1)


def as_rows(x: Tensor) -> Tensor:  # (N, *P, C) -> (R, C)
    """Return outputs as rows, example by example; outputs without positions as they are."""
    return x if x.dim() < 3 else x.flatten(0, -2)


def positions_of(outputs: Tensor) -> tuple[int, ...]:  # (N, *P, C)
    """Return the shape *P of the positions of an example; empty where there are none."""
    return tuple(outputs.shape[1:-1])


def arranged_targets(targets: Tensor, outputs: Tensor, axis: int | None) -> Tensor:  # -> (N, *P) or (N, *P, K)
    """Return targets in the order of the outputs' positions.

    Args:
        targets: one for each position, (N, *P), or several numbers, arranged as the network's outputs are.
        outputs: arranged outputs, (N, *P, C), with positions.
        axis: as for `outputs_last`.

    Raises:
        ValueError: if they do not fit each other.
    """
    places = tuple(outputs.shape[:-1])
    found = targets
    if targets.dim() == outputs.dim():
        found = outputs_last(targets, axis)
    if tuple(found.shape[: len(places)]) == places and found.dim() in (len(places), len(places) + 1):
        return found
    raise ValueError(
        f"outputs at {'×'.join(map(str, places[1:]))} positions of {places[0]} examples need targets of shape {places} "
        f"(or numbers arranged as the outputs are), got {tuple(targets.shape)}; check the loader, or say with axis= "
        f"which axis of the outputs has the {outputs.shape[-1]} numbers of a position, as in Classification(axis=1)."
    )


@dataclass(frozen=True, eq=False)
class RowTargets:
    """Which rows count, and the targets of these."""

    rows: Tensor | None  # (r,) among R; None for all
    targets: Tensor | None  # (r, ...) as `log_prob` takes them; None where there are no labels

    def of(self, x: Tensor) -> Tensor:  # (R, ...) -> (r, ...)
        """Return the rows that count."""
        return x if self.rows is None else x.index_select(0, self.rows)

    def put(self, x: Tensor, count: int) -> Tensor:  # (r, ...) -> (R, ...)
        """Return all rows, zero where they do not count."""
        if self.rows is None:
            return x
        return x.new_zeros(count, *x.shape[1:]).index_copy_(0, self.rows, x)


def rows_where(mask: Tensor | None) -> Tensor | None:  # (N, *P) -> (r,)
    """Return the places of the rows that count; None for all."""
    if mask is None or bool(mask.all()):
        return None
    return mask.flatten().nonzero().squeeze(1)
