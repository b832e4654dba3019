"""Which models have attention, and what torch does within the settings for it."""

import pytest
import torch
from torch import Tensor, nn

from infoform.network.attention_setting import has_attention, own_attention, plain_attention, unfused_encoder


class Mixer(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(x, x, x)


class Wide(Mixer):
    """Inherits what calls the function."""


class SelfAttention(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (nn.Linear(2, 2), False),
        (nn.Conv2d(1, 1, 1), False),
        (nn.LSTM(2, 2), False),
        (nn.MultiheadAttention(4, 2), True),
        (nn.TransformerEncoderLayer(4, 2), True),
        (Mixer(), True),
        (Wide(), True),
        (SelfAttention(), True),
    ],
)
def test_attention_is_found_by_its_name_or_by_what_it_calls(module: nn.Module, expected: bool) -> None:
    assert has_attention(nn.Sequential(nn.ReLU(), nn.Sequential(module))) == expected


def test_settings_last_for_their_block_and_the_inner_one_may_need_another() -> None:
    def kernels() -> list[bool]:
        return [torch.backends.cuda.flash_sdp_enabled(), torch.backends.mha.get_fastpath_enabled()]

    model, before = nn.MultiheadAttention(4, 2), kernels()
    with own_attention(model):
        assert kernels() == before
    with unfused_encoder(model):
        assert kernels() == [before[0], False]
        with plain_attention():
            assert kernels() == [False, False]
            with own_attention(model):
                assert kernels() == [False, False]
        assert kernels() == [before[0], False]
    with own_attention(nn.Linear(2, 2)):
        assert kernels() == before
    assert kernels() == before
