"""Single parameters that no other rule knows: class tokens, positions, recurrent weights, experts.

A module may do anything with such a parameter. Its gradients by example are those of the network with one copy of the
parameter for each example (network/expanded.py), and the exact diagonal is all that is measured.
"""

import weakref
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from torch import Tensor, nn

from infoform.layers.base import LayerRule

VALUE = "value"  # what the rule calls the parameter
_USES: "WeakKeyDictionary[nn.Module, dict[str, ParameterUse]]" = WeakKeyDictionary()


class ParameterUse(nn.Module):
    """Stands for one parameter of a module; it is never called."""

    def __init__(self, owner: nn.Module, key: str) -> None:
        super().__init__()
        self._owner, self.key = weakref.ref(owner), key

    @property
    def owner(self) -> nn.Module:
        found = self._owner()
        assert found is not None
        return found

    @property
    def parameter(self) -> Tensor:
        found: Tensor = getattr(self.owner, self.key)
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return parameter_use, (self.owner, self.key)


def parameter_use(owner: nn.Module, key: str) -> ParameterUse:
    """Return what stands for a parameter: always the same for the same parameter."""
    known = _USES.setdefault(owner, {})
    return known[key] if key in known else known.setdefault(key, ParameterUse(owner, key))


class ParameterRule(LayerRule):
    """One parameter of any shape; its last axis are the columns of the matrix."""

    types: ClassVar[tuple[type[nn.Module], ...]] = ()
    by_default: ClassVar[bool] = False
    only_diagonal: ClassVar[bool] = True
    forms: ClassVar[bool] = True
    expands: ClassVar[bool] = True

    def applies(self, module: nn.Module) -> bool:
        return isinstance(module, ParameterUse)

    def parameter_names(self, module: nn.Module) -> set[str]:
        return {VALUE}

    def shape(self, module: nn.Module) -> tuple[int, int]:
        shape = _parameter(module).shape
        return (shape[:-1].numel(), shape[-1]) if shape else (1, 1)

    def matrix(self, module: nn.Module) -> Tensor:
        return _parameter(module).detach().reshape(self.shape(module))

    def parameters(self, module: nn.Module, matrix: Tensor) -> dict[str, Tensor]:
        return {VALUE: matrix.reshape(matrix.shape[:-2] + _parameter(module).shape)}

    def inputs(self, module: nn.Module, x: Tensor) -> Tensor:
        raise TypeError("nothing is known of what a single parameter is multiplied with.")

    def gradients(self, module: nn.Module, g: Tensor) -> Tensor:
        raise TypeError("a single parameter puts out nothing of its own.")

    def matrices(self, module: nn.Module, x: Tensor, g: Tensor) -> Tensor | None:
        return g.reshape(len(g), *self.shape(module))

    def forms_matrices(self, module: nn.Module, g: Tensor) -> bool:
        return True


def _parameter(module: nn.Module) -> Tensor:
    assert isinstance(module, ParameterUse)
    return module.parameter


PARAMETER = ParameterRule()  # found by `network/candidates.py`: it applies to no module of a model
