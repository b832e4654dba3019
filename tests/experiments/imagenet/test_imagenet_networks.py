import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from infoform.data import imagenet
from infoform.experiments.imagenet.networks import NETWORKS, Bottleneck, LiteBlock, mobilenet_v1, same_padding

needs_data = pytest.mark.skipif(
    "INFOFORM_DATA" not in os.environ and "CI" not in os.environ, reason="needs the folder INFOFORM_DATA"
)


@needs_data
@pytest.mark.parametrize("name", ["mobilenet", "efficientnet"])
def test_a_network_is_about_as_right_as_published(name: str) -> None:
    about = NETWORKS[name]
    model, images = about.load(), imagenet.load(0, classes=40)
    with torch.no_grad():
        right = sum(
            int((model(about.scaled(part.pixels)).argmax(1) == part.labels).sum())
            for part in (images[start : start + 4] for start in range(0, 40, 4))
        )
    spread = (about.published * (1 - about.published) / 40) ** 0.5
    assert abs(right / 40 - about.published) < 3 * spread


@needs_data
def test_the_file_of_resnet50_has_every_weight_and_no_others() -> None:
    model = NETWORKS["resnet50"].load()
    assert sum(parameter.numel() for parameter in model.parameters()) == 25_557_032
    assert not model.training


def test_mobilenet_has_its_published_number_of_parameters() -> None:
    model = mobilenet_v1()
    assert sum(parameter.numel() for parameter in model.parameters()) == 470_072
    assert isinstance(model[88], nn.Linear)


@pytest.mark.parametrize("kernel", [3, 5])
def test_paddings_are_tensorflows(kernel: int) -> None:
    """TensorFlow's 'same': ceil(n / stride) outputs, the larger half of the padding after the picture."""
    (pad,) = same_padding(kernel, 2)
    x = torch.randn(1, 1, 8, 8)
    total = (4 - 1) * 2 + kernel - 8
    expected = nn.functional.pad(x, (total // 2, total - total // 2) * 2)
    assert torch.equal(pad(x), expected)
    assert same_padding(kernel, 1) == []


@pytest.mark.parametrize(("stride", "inputs", "outputs"), [(1, 4, 4), (1, 4, 6), (2, 4, 4)])
def test_a_block_is_added_to_its_input_where_shapes_agree(stride: int, inputs: int, outputs: int) -> None:
    block = LiteBlock(3, stride, 6, inputs, outputs).eval()
    x = torch.randn(2, inputs, 8, 8)
    with torch.no_grad():
        block.bn2.weight.zero_()
        expected = x if stride == 1 and inputs == outputs else torch.zeros(2, outputs, 8 // stride, 8 // stride)
        assert torch.equal(block(x), expected)


def test_the_stride_of_the_first_resnet_is_on_the_first_convolution() -> None:
    block = Bottleneck(8, 4, 2)
    assert [block.conv1.stride, block.conv2.stride, block.conv3.stride] == [(2, 2), (1, 1), (1, 1)]


@pytest.mark.parametrize("name", NETWORKS)
def test_pixels_are_scaled_as_in_training(name: str) -> None:
    about = NETWORKS[name]
    pixels = torch.randint(0, 256, (2, 3, 4, 4), dtype=torch.uint8)
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (about.mean, about.std))
    torch.testing.assert_close(about.scaled(pixels), (pixels / 255 - mean) / std)


def test_efficientnets_pixels_are_less_127_over_128() -> None:
    pixels = torch.tensor([0, 127, 255], dtype=torch.uint8).view(1, 3, 1, 1)
    scaled = NETWORKS["efficientnet"].scaled(pixels).flatten()
    torch.testing.assert_close(scaled, torch.tensor([-127 / 128, 0.0, 1.0]), atol=1e-6, rtol=0)


def test_a_file_without_a_weight_is_refused(tmp_path: Path) -> None:
    weights = mobilenet_v1().state_dict()
    del weights["88.bias"]
    save_file(weights, tmp_path / NETWORKS["mobilenet"].file)
    with pytest.raises(RuntimeError, match=r"88\.bias"):
        NETWORKS["mobilenet"].load(root=tmp_path)
