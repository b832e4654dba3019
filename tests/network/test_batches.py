"""What a loader may give, and what a model may return."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from infoform.network.batches import TARGET_KEYS, device_of, read_batch, read_outputs
from models import Output

CPU = torch.device("cpu")
X, Z, Y = torch.ones(2, 3), torch.zeros(2, 4), torch.tensor([0, 1])


def test_a_tensor_is_inputs_alone() -> None:
    batch = read_batch(X, CPU)
    assert batch.args == (X,)
    assert batch.kwargs == {}
    assert batch.targets is None


@pytest.mark.parametrize("form", [tuple, list])
def test_the_last_of_several_is_the_target(form: Any) -> None:
    batch = read_batch(form([X, Y]), CPU)
    assert batch.args[0] is X
    assert batch.targets is Y
    batch = read_batch(form([X, Z, Y]), CPU)
    assert batch.args[0] is X
    assert batch.args[1] is Z
    assert batch.targets is Y
    assert read_batch(form([X]), CPU).targets is None


@pytest.mark.parametrize("target", [[0, 1], np.array([0, 1]), Y])
def test_targets_become_tensors(target: Any) -> None:
    targets = read_batch((X, target), CPU).targets
    assert targets is not None
    assert torch.equal(targets, Y)


@pytest.mark.parametrize("key", TARGET_KEYS)
def test_a_dict_is_the_models_arguments_without_the_target(key: str) -> None:
    batch = read_batch({"input_ids": X, key: Y, "use_cache": False}, CPU)
    assert batch.args == ()
    assert batch.kwargs == {"input_ids": X, "use_cache": False}
    assert batch.targets is Y
    assert list(batch.tensors()) == [X]


def test_a_dict_may_come_with_its_target_beside_it_or_with_none() -> None:
    batch = read_batch(({"input_ids": X}, Y), CPU)
    assert batch.kwargs == {"input_ids": X}
    assert batch.targets is Y
    assert read_batch({"input_ids": X}, CPU).targets is None


@pytest.mark.parametrize("batch", ["text", 3, None, (), object()])
def test_anything_else_is_refused(batch: Any) -> None:
    with pytest.raises(TypeError, match=f"got {type(batch).__name__}; adapt the loader's collate function"):
        read_batch(batch, CPU)


@pytest.mark.parametrize("outputs", [X, Output(X), {"logits": X, "loss": None}], ids=["tensor", "object", "dict"])
def test_outputs_are_found(outputs: Any) -> None:
    assert read_outputs(outputs) is X


@pytest.mark.parametrize("outputs", [(X, X), {"loss": X}, None, 3])
def test_outputs_that_are_not_found_are_refused(outputs: Any) -> None:
    with pytest.raises(TypeError, match=f"got {type(outputs).__name__}; wrap it in a module"):
        read_outputs(outputs)


def test_the_device_is_that_of_the_parameters() -> None:
    assert device_of(nn.Linear(2, 3)) == CPU
    assert device_of(nn.Linear(2, 3, device="meta")) == torch.device("meta")
    assert device_of(nn.ReLU()) == CPU


def test_a_batch_moves_to_the_device() -> None:
    batch = read_batch({"x": X, "labels": Y}, torch.device("meta"))
    moved = batch.kwargs["x"]
    assert isinstance(moved, Tensor)
    assert moved.is_meta
    assert batch.targets is not None
    assert batch.targets.is_meta
