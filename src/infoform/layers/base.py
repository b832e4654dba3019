"""What a layer type must tell: its weight as one matrix, its inputs and output gradients in one format.

    ∇ = Σ_s g_s a_sᵀ          inputs a (H, N, S, A), output gradients g (H, N, S, G / H), ∇ (N, G, A)

`H` counts the groups of a grouped convolution and is 1 everywhere else; group h owns rows h·G/H … of ∇.
The bias, where there is one, is the last column of the matrix, and its input is 1.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from infoform.common.float64 import in_double

POOLED_AT_ONCE = 2**18  # numbers whose squares are held at a time
LONGEST_RUN = 64  # positions that are summed in float32


class LayerRule(ABC):
    """How one type of module becomes a linear map with shared weights; holds no state.

    A rule of your own is a subclass with `types`, `inputs` and `gradients`, and a line in `infoform.layers.LAYERS`. A
    rule for a module whose parameters are not a `weight` (G, ...) and a `bias` (G,) also overrides `parameter_names`,
    `shape`, `matrix` and `parameters`.

    Attributes:
        types: the module types that the rule is for, as error messages name them.
        runs_batched: whether several small networks with this layer run faster together, by `torch.vmap`, than one
            after the other.
        by_default: whether such layers get a posterior where the user names no layers; others need `layers="all"`, or
            their names.
        only_diagonal: whether the exact diagonal is all that is measured of such a layer, whatever the structure of
            the others is.
        sparse: whether an example has a gradient in a few rows of the matrix alone, which `row_indices` and
            `row_gradients` give in the place of `inputs` and `gradients`.
        forms: whether `matrices` is the only way to a gradient, in the place of `inputs` and `gradients`; those of
            several calls add up.
        expands: whether gradients come from the network with one copy of the parameter for each example, and not from
            calls of a module.

    Example:
        ```python
        from torch import nn
        from infoform.layers import find_rule
        rule = find_rule(nn.Linear(3, 2))
        assert rule.shape(nn.Linear(3, 2)) == (2, 4)
        ```
    """

    types: ClassVar[tuple[type[nn.Module], ...]]
    runs_batched: ClassVar[bool] = False
    by_default: ClassVar[bool] = True
    only_diagonal: ClassVar[bool] = False
    sparse: ClassVar[bool] = False
    forms: ClassVar[bool] = False
    expands: ClassVar[bool] = False

    def argument(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Tensor:
        """Return what the other methods take for x: of a call's arguments, the one that the weights are applied to.

        Args:
            module: a module that the rule applies to.
            args: positional arguments of the call.
            kwargs: named arguments of the call.

        Returns:
            The first argument, if the rule does not know better, (N, ...).
        """
        first: Tensor = args[0] if args else next(iter(kwargs.values()))
        return first

    @abstractmethod
    def inputs(self, module: nn.Module, x: Tensor) -> Tensor:  # (N, ...) -> (H, N, S, A)
        """Return the inputs of the linear map, with the bias's 1 as last column.

        Args:
            module: a module that the rule applies to.
            x: first argument of one call of the module, (N, ...).

        Returns:
            The inputs, (H, N, S, A).
        """

    @abstractmethod
    def gradients(self, module: nn.Module, g: Tensor) -> Tensor:  # (N, ...) -> (H, N, S, G / H)
        """Return the gradients of the layer's output, in the positions of `inputs`.

        Args:
            module: a module that the rule applies to.
            g: gradient of what one call of the module returned, (N, ...).

        Returns:
            The gradients, (H, N, S, G / H).
        """

    def applies(self, module: nn.Module) -> bool:
        """Whether the module computes what this rule assumes (a subclass with its own forward may not).

        Args:
            module: any module.

        Returns:
            Whether it is of one of the `types`, with the forward pass of that type.
        """
        return any(isinstance(module, known) and type(module).forward is known.forward for known in self.types)

    def parameter_names(self, module: nn.Module) -> set[str]:
        """Return the names of the parameters that the matrix is made of.

        A module that has other parameters instead (of a weight norm, say) is held fixed.

        Args:
            module: a module that the rule applies to.

        Returns:
            Names of the module's own parameters.
        """
        return {"weight"} if _bias(module) is None else {"weight", "bias"}

    def shape(self, module: nn.Module) -> tuple[int, int]:
        """Return the shape of the layer's matrix.

        Args:
            module: a module that the rule applies to.

        Returns:
            Numbers of outputs and of inputs (with the bias's 1), (G, A).
        """
        weight = _weight(module)
        return weight.shape[0], weight[0].numel() + (_bias(module) is not None)

    def matrix(self, module: nn.Module) -> Tensor:  # (G, A)
        """Return the weights of the module as one matrix.

        Args:
            module: a module that the rule applies to.

        Returns:
            The matrix, (G, A), with the bias as last column.
        """
        weight, bias = _weight(module).detach().flatten(1), _bias(module)
        return weight if bias is None else torch.cat([weight, bias.detach().unsqueeze(1)], dim=1)

    def parameters(self, module: nn.Module, matrix: Tensor) -> dict[str, Tensor]:  # (..., G, A)
        """Cut a matrix of the layer's format back into the module's parameters.

        Args:
            module: a module that the rule applies to.
            matrix: one matrix or several, (..., G, A).

        Returns:
            The parameters by name, each with the axes `...` first.
        """
        shape = matrix.shape[:-1] + _weight(module).shape[1:]
        if _bias(module) is None:
            return {"weight": matrix.reshape(shape)}
        return {"weight": matrix[..., :-1].reshape(shape), "bias": matrix[..., -1]}

    def matrices(self, module: nn.Module, x: Tensor, g: Tensor) -> Tensor | None:  # (N, ...), (N, ...) -> (N, G, A)
        """Return ∇ of every example, where there is a faster way than through `inputs`.

        Args:
            module: a module that the rule applies to.
            x: first argument of one call of the module, (N, ...).
            g: gradient of what that call returned, (N, ...).

        Returns:
            The gradients of the weights, (N, G, A), or None where there is no faster way.
        """
        return None

    def forms_matrices(self, module: nn.Module, g: Tensor) -> bool:  # (N, ...)
        """Whether `matrices` returns more than None.

        Args:
            module: a module that the rule applies to.
            g: gradient of what one call of the module returned, (N, ...).

        Returns:
            Whether ∇ is formed without `inputs`, for gradients like these.
        """
        return False

    def row_indices(self, module: nn.Module, x: Tensor) -> Tensor:  # (N, ...) -> (N, S)
        """Return which rows of the matrix each example uses, where the rule is `sparse`.

        Args:
            module: a module that the rule applies to.
            x: what `argument` gives, (N, ...).

        Returns:
            Numbers of rows; the same may come several times.
        """
        raise TypeError(
            f"{type(self).__name__} is sparse=True, and such a rule must have row_indices; add it, or drop sparse."
        )

    def row_gradients(self, module: nn.Module, x: Tensor, g: Tensor) -> Tensor:  # (N, ...), (N, ...) -> (N, S, A)
        """Return the gradients of these rows, where the rule is `sparse`.

        Args:
            module: a module that the rule applies to.
            x: what `argument` gives, (N, ...).
            g: gradient of what one call of the module returned, (N, ...).

        Returns:
            One row for each of `row_indices`.
        """
        raise TypeError(
            f"{type(self).__name__} is sparse=True, and such a rule must have row_gradients; add it, or drop sparse."
        )

    def pooled(self, module: nn.Module, x: Tensor, *, mask: Tensor | None = None) -> Tensor:  # (N, ...) -> (N, D)
        """Return what novelty looks at: one row an example, of the inputs as they are or pooled over positions.

        Args:
            module: a module that the rule applies to.
            x: first argument of one call of the module, (N, ...).
            mask: which tokens of an example count, (N, T); None for all.

        Returns:
            The inputs where an example has one position, else mean and root mean square over positions, (N, D).
        """
        positions = self.inputs(module, x).permute(1, 2, 0, 3).flatten(2)  # (N, S, H * A)
        return positions[:, 0] if positions.shape[1] == 1 else pool_positions(positions, mask=mask)

    def write_rows(self, module: nn.Module, x: Tensor, out: Tensor) -> None:  # (N, ...) -> (N, A)
        """Write the inputs of examples that use the weight once (H = S = 1).

        Args:
            module: a module that the rule applies to.
            x: first argument of one call of the module, (N, ...).
            out: where the rows go, (N, A).
        """
        out.copy_(self.inputs(module, x)[0, :, 0])


def pool_positions(x: Tensor, *, mask: Tensor | None = None) -> Tensor:  # (N, S, A) -> (N, 2 * A)
    """Return mean and root mean square over the positions of each example.

    Args:
        x: inputs by position, (N, S, A).
        mask: which positions count, (N, S); of another shape it is not of these positions, and all count.

    Returns:
        Means, then root mean squares, in float64, (N, 2 * A).
    """
    x = x if x.dtype in (torch.float32, torch.float64) else x.float()
    if mask is None or mask.shape != x.shape[:2]:
        # torch sums by halves, so that no digit is lost; other runtimes one number after the other
        return _pooled_in_runs(x) if torch.compiler.is_exporting() else _pooled(x)
    kept = mask.to(x).unsqueeze(2)
    count = in_double(kept.sum(1).clamp_min(1))
    x = x * kept
    return torch.cat([in_double(x).sum(1) / count, (in_double(x).square().sum(1) / count).sqrt()], dim=1)


def _pooled(x: Tensor) -> Tensor:  # (N, S, A) -> (N, 2 * A)
    """Return mean and root mean square, in parts that stay in the cache where positions lie apart."""
    if x.numel() == 0 or x.stride(1) == 1:
        norm = torch.linalg.vector_norm(x, dim=1)
        return torch.cat([in_double(x.mean(1)), in_double(norm) / math.sqrt(x.shape[1] or 1)], dim=1)
    parts = x.split(max(1, POOLED_AT_ONCE // (x.shape[1] * x.shape[2])))
    squares = torch.cat([one.square().mean(1) for one in parts])
    return torch.cat([in_double(x.mean(1)), in_double(squares).sqrt()], dim=1)


def _pooled_in_runs(x: Tensor) -> Tensor:  # (N, S, A) -> (N, 2 * A)
    """Return the same, summed over runs of positions in the dtype of x, and over runs in float64.

    The two depend on each other so closely, of images above all, that the seventh digit of a long sum in float32 tells.
    """
    runs = x.unflatten(1, (-1, _run_length(x.shape[1])))  # (N, S / R, R, A)
    means, squares = (in_double(one.mean(2)).mean(1) for one in (runs, runs.square()))
    return torch.cat([means, squares.sqrt()], dim=1)


def _run_length(positions: int) -> int:
    """Return the largest divisor of a number of positions that is at most LONGEST_RUN."""
    return next(size for size in range(min(LONGEST_RUN, positions), 0, -1) if positions % size == 0)


def _weight(module: nn.Module) -> Tensor:
    assert isinstance(module.weight, Tensor)
    return module.weight


def _bias(module: nn.Module) -> Tensor | None:
    bias = getattr(module, "bias", None)
    assert bias is None or isinstance(bias, Tensor)
    return bias


def is_outer(inputs: Tensor) -> bool:  # (H, N, S, A), or the gradients in their places
    """Whether the weight is used once an example, so that ∇ has rank one."""
    return inputs.shape[0] == 1 and inputs.shape[2] == 1
