"""The sizes of one layer that bytes and operations depend on."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Dimensions:
    """The sizes of one layer that its costs depend on."""

    outputs: int  # G
    inputs: int  # A
    columns: tuple[int, int]  # (g, a): kept columns of U_G and U_A
    dtype: torch.dtype  # of the statistics
    positions: int | None = None  # S, over all calls of an example; None where not known
    groups: int = 1  # H
    input_rank: int | None = None  # eigenpairs that a prior keeps of the inputs; None where it does not look at them
    core: int = 0  # pairs of each basis that are measured together
    only_diagonal: bool = False  # whether nothing but the diagonal is measured

    @property
    def weights(self) -> int:
        return self.outputs * self.inputs

    @property
    def pairs(self) -> int:
        """Return the largest rank that the layer can have."""
        return self.columns[0] * self.columns[1]

    @property
    def truncated(self) -> bool:
        return self.columns != (self.outputs, self.inputs)

    @property
    def sides(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return (n, kept columns) of outputs and of inputs."""
        return (self.outputs, self.columns[0]), (self.inputs, self.columns[1])

    @property
    def outer(self) -> bool:
        return self.positions == 1 and self.groups == 1

    @property
    def uses(self) -> int:
        """Return how often an example uses the weight, which an example batch must have told."""
        assert self.positions is not None
        return self.positions
