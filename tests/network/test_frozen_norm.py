"""Batch norm in evaluation mode has torch's outputs to the bit, and torch's gradients up to rounding."""

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from infoform.network.frozen_norm import norm_hooks
from infoform.network.hooks import hooked_modules

NORMS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "features": (nn.BatchNorm1d(3), (5, 3)),
    "sequences": (nn.BatchNorm1d(3, affine=False), (5, 3, 4)),
    "images": (nn.BatchNorm2d(3, eps=0.1), (5, 3, 4, 2)),
    "volumes": (nn.BatchNorm3d(3), (5, 3, 4, 2, 2)),
}


def prepared(norm: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    norm = norm.double()
    assert isinstance(norm.running_var, Tensor)
    assert isinstance(norm.running_mean, Tensor)
    norm.running_var.uniform_(0.5, 2)
    norm.running_mean.normal_()
    for parameter in norm.parameters():
        nn.init.normal_(parameter)
    return norm.eval()


def gradient(norm: nn.Module, x: Tensor, *, in_place: bool) -> tuple[Tensor, Tensor]:
    inputs = x.clone(memory_format=torch.preserve_format).requires_grad_()
    output = norm(inputs)
    result = output.relu_() if in_place else output.sin()
    (found,) = torch.autograd.grad((result**2).sum(), inputs)
    return result.detach(), found


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("case", NORMS)
def test_outputs_are_equal_and_gradients_are_torchs(case: str, in_place: bool) -> None:
    norm, shape = NORMS[case]
    norm, x = prepared(norm), torch.randn(*shape).double()
    expected = gradient(norm, x, in_place=in_place)
    with hooked_modules(norm_hooks(norm)):
        found = gradient(norm, x, in_place=in_place)
    assert torch.equal(found[0], expected[0])
    assert_close(found[1], expected[1], rtol=1e-9, atol=0)
    assert not norm._forward_hooks


def test_images_with_channels_last_have_the_same_gradients() -> None:
    norm, x = prepared(nn.BatchNorm2d(3)), torch.randn(5, 3, 4, 2).double()
    expected = gradient(norm, x, in_place=True)
    with hooked_modules(norm_hooks(norm)):
        found = gradient(norm, x.contiguous(memory_format=torch.channels_last), in_place=True)
    assert found[0].is_contiguous(memory_format=torch.channels_last)
    assert_close(found[0], expected[0], rtol=1e-9, atol=0)
    assert_close(found[1], expected[1], rtol=1e-9, atol=0)


@pytest.mark.parametrize("norm", [nn.BatchNorm1d(3, track_running_stats=False), nn.BatchNorm1d(3).train()])
def test_a_norm_by_the_statistics_of_the_batch_is_left_alone(norm: nn.Module) -> None:
    norm, x = norm.double(), torch.randn(5, 3).double()
    expected = gradient(norm, x, in_place=False)
    with hooked_modules(norm_hooks(norm)):
        found = gradient(norm, x, in_place=False)
    assert torch.equal(found[1], expected[1])
