"""The public CIFAR-10 ResNets: sizes, shortcuts, and the published accuracy where weights and pictures are at hand."""

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from infoform.data import cifar10, svhn
from infoform.experiments.networks.cifar_resnets import BLOCKS, BasicBlock, CifarResNet, load, scaled

needs_data = pytest.mark.skipif(
    "INFOFORM_DATA" not in os.environ and "CI" not in os.environ, reason="needs the folder INFOFORM_DATA"
)
PUBLISHED = {20: 0.926, 56: 0.944}  # accuracy on the 10,000 test images
WEIGHTS = {20: 272_474, 56: 855_770}  # with the 1×1 convolutions of the shortcuts


@pytest.mark.parametrize("depth", BLOCKS)
def test_a_network_has_its_published_number_of_weights(depth: int) -> None:
    model = CifarResNet(BLOCKS[depth])
    assert sum(parameter.numel() for parameter in model.parameters()) == WEIGHTS[depth]
    convolutions = [name for name, module in model.named_modules() if isinstance(module, torch.nn.Conv2d)]
    assert len([name for name in convolutions if "downsample" not in name]) + 1 == depth  # and the linear layer


@pytest.mark.parametrize(("inputs", "outputs", "stride"), [(4, 4, 1), (4, 8, 2)])
def test_a_block_without_its_convolutions_is_its_shortcut(inputs: int, outputs: int, stride: int) -> None:
    block = BasicBlock(inputs, outputs, stride).eval()
    x = torch.randn(2, inputs, 8, 8)
    with torch.no_grad():
        block.bn2.weight.zero_()
        expected = (x if inputs == outputs else block.downsample(x)).relu()
        assert torch.equal(block(x), expected)
        assert block(x).shape == (2, outputs, 8 // stride, 8 // stride)


def test_pixels_are_scaled_channel_by_channel() -> None:
    pixels = torch.tensor([0, 128, 255], dtype=torch.uint8).view(1, 3, 1, 1)
    expected = [-0.4914 / 0.2023, (128 / 255 - 0.4822) / 0.1994, (1 - 0.4465) / 0.2010]
    torch.testing.assert_close(scaled(pixels).flatten(), torch.tensor(expected))


def test_a_depth_without_weights_is_refused() -> None:
    with pytest.raises(ValueError, match="depth must be one of 20, 56, got 18"):
        load(18)


def test_a_missing_file_says_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"ResNet-20 must be in .*cifar10_resnet20.safetensors"):
        load(20, root=tmp_path)


def test_a_file_without_a_weight_is_refused(tmp_path: Path) -> None:
    weights = CifarResNet(BLOCKS[20]).state_dict()
    save_file({name: value for name, value in weights.items() if name != "fc.bias"},
              tmp_path / "cifar10_resnet20.safetensors")  # fmt: skip
    with pytest.raises(RuntimeError, match=r"fc\.bias"):
        load(20, root=tmp_path)


@needs_data
@pytest.mark.parametrize("depth", BLOCKS)
def test_the_file_has_every_weight_and_strange_pictures_are_less_sure(depth: int) -> None:
    model, pixels = load(depth), svhn.load().pixels[:100]
    file = load_file(Path(os.environ["INFOFORM_DATA"]) / "weights" / f"cifar10_resnet{depth}.safetensors")
    assert not model.training
    torch.testing.assert_close(model.fc.weight.detach(), file["fc.weight"].float(), rtol=0, atol=0)
    with torch.no_grad():
        confidence = model(scaled(pixels)).softmax(1).amax(1).mean()
    assert 0.3 < float(confidence) < 0.95  # street numbers; of its own test pictures it is sure to .96


def have_pictures() -> bool:
    try:
        cifar10.load("test")
    except FileNotFoundError:
        return False
    return True


@pytest.mark.skipif(not have_pictures(), reason="needs cifar10.npz in the folder INFOFORM_DATA")
@pytest.mark.parametrize("depth", BLOCKS)
def test_a_network_is_about_as_right_as_published(depth: int) -> None:
    images = cifar10.load("test")[:300]
    with torch.no_grad():
        right = float((load(depth)(scaled(images.pixels)).argmax(1) == images.labels).double().mean())
    spread = (PUBLISHED[depth] * (1 - PUBLISHED[depth]) / len(images)) ** 0.5
    assert abs(right - PUBLISHED[depth]) < 3 * spread
