"""One forward pass tells what a gradient pass holds, counted by hand."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from infoform.network.batches import read_inputs
from infoform.network.probe import probe, probe_batch
from models import MODELS


def test_activations_are_those_from_a_layer_on() -> None:
    model = nn.Sequential(nn.Linear(10, 20), nn.Tanh(), nn.Linear(20, 5), nn.Tanh(), nn.Linear(5, 3))
    seen = probe(model, torch.zeros(7, 10))
    wide, narrow = 4 * 7 * 20, 4 * 7 * 5  # what tanh saves is its output, which is what the next layer is given
    assert seen.activations == {
        "0": wide + narrow + 2 * wide,
        "2": wide + narrow + 2 * wide,
        "4": narrow + 2 * narrow,
    }
    assert list(seen.uses) == ["0", "2", "4"]
    assert (seen.outputs, seen.examples, seen.shape) == (3, 7, (7, 3))


def test_what_is_no_module_counts_too() -> None:
    class Functional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 6, bias=False), nn.Linear(6, 3, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            hidden = self.first(x)
            out = self.second(hidden.exp() * hidden.sin())
            assert isinstance(out, Tensor)
            return out

    saved = 4 * 5 * 6
    # sin saves its input, exp its output, their product both of its factors; and the second layer's inputs are held
    assert probe(Functional(), torch.zeros(5, 4)).activations["first"] == 4 * saved + 2 * saved


@pytest.mark.parametrize("case", MODELS)
def test_tensors_without_memory_tell_the_same(case: str) -> None:
    model = MODELS[case].model()
    with torch.device("meta"):
        empty = MODELS[case].model()
    with sdpa_kernel(SDPBackend.MATH):  # fused kernels, which there are none of without memory, hold other numbers
        seen = probe(model, MODELS[case].inputs(4))
        shapes = probe(empty, MODELS[case].inputs(4))
    assert shapes.activations == seen.activations
    assert shapes.uses == seen.uses


def test_another_device_gets_copies_and_the_model_stays() -> None:
    model = MODELS["conv2d"].model()
    batch = read_inputs(MODELS["conv2d"].inputs(4), torch.device("meta"))
    seen = probe_batch(model, batch, device=torch.device("meta"))
    assert seen.activations == probe(model, MODELS["conv2d"].inputs(4)).activations
    assert {parameter.device.type for parameter in model.parameters()} == {"cpu"}
    assert not any(module._forward_hooks for module in model.modules())
