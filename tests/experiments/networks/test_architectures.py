import pytest
import torch
from torch import nn

from infoform.experiments.networks.architectures import TINY, build, calibrate_norms


def test_an_unknown_architecture_is_named() -> None:
    with pytest.raises(ValueError, match="got 'vgg'"):
        build("vgg")


@pytest.mark.parametrize("name", TINY)
def test_a_network_takes_small_pictures_and_leaves_the_seed_alone(name: str) -> None:
    before = torch.get_rng_state()
    one, other = build(name, seed=1), build(name, seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert not one.training
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
    assert one(torch.randn(2, 3, 32, 32)).shape == (2, 10)


def test_batch_norms_have_the_moments_of_the_pictures() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    x = torch.randn(5, 3, 8, 8) * 3 + 1
    calibrate_norms(model, x)
    norm = model[1]
    assert isinstance(norm, nn.BatchNorm2d)
    assert norm.momentum == 0.1
    assert not model.training
    with torch.no_grad():
        out = model[0](x)
    torch.testing.assert_close(norm.running_mean, out.mean((0, 2, 3)))
    torch.testing.assert_close(norm.running_var, out.var((0, 2, 3)))
