"""Several sets of weights give what each gives alone, whether vmap can run them together or not."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from infoform.common.vmap_or_loop import vmap_or_loop

WEIGHTS = {"a": torch.arange(6.0).reshape(3, 2), "b": torch.arange(3.0)}


def plain(weights: dict[str, Tensor]) -> Tensor:
    return weights["a"] * weights["b"]


def branching(weights: dict[str, Tensor]) -> Tensor:
    return weights["a"] * (weights["b"] if bool(weights["b"] >= 0) else 0)


@pytest.mark.parametrize("run", [plain, branching])
def test_every_set_of_weights_is_run(run: object) -> None:
    assert callable(run)
    assert_close(vmap_or_loop(run, WEIGHTS, 3), WEIGHTS["a"] * WEIGHTS["b"].unsqueeze(1))
    one = {name: value[:1] for name, value in WEIGHTS.items()}
    assert_close(vmap_or_loop(run, one, 1), plain({name: value[0] for name, value in one.items()}).unsqueeze(0))


def test_small_networks_are_run_together() -> None:
    calls = []

    def counted(weights: dict[str, Tensor]) -> Tensor:
        calls.append(weights["a"].shape)
        return plain(weights)

    vmap_or_loop(counted, WEIGHTS, 3)
    assert len(calls) == 1


def test_the_functions_own_mistake_is_not_hidden() -> None:
    with pytest.raises(RuntimeError, match=r"shapes|size"):
        vmap_or_loop(lambda weights: weights["a"] @ torch.zeros(3, 3), WEIGHTS, 3)
