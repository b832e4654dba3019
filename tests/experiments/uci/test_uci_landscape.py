from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from torch.distributions import Normal
from torch.testing import assert_close

import infoform
from flat import flat_laplace
from infoform.experiments import Result
from infoform.experiments.networks.shallow import ShallowStack
from infoform.experiments.uci.landscape import (
    EXPERIMENT,
    LandscapeSettings,
    landscape,
    mixture_log_likelihood,
    powers,
    sampled_outputs,
)

SETTINGS = LandscapeSettings(points=3, samples=4, data_powers=(-1.0, 1.0), precision_powers=(0.0, 2.0))


def make() -> tuple[infoform.Laplace, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    model = ShallowStack.drawn(1, 3, 6, generator=generator).network(0)
    x = torch.randn(30, 3, generator=generator, dtype=torch.float64)
    y = x.sum(1, keepdim=True).sin()
    laplace = flat_laplace(model, "regression", statistics="all", fisher="exact")
    return laplace.fit([(x, y)], progress=False), x, y


@pytest.mark.parametrize("structure", ["kfac", "inf", "diag", "full"])
def test_every_point_is_what_its_own_posterior_gives(structure: str) -> None:
    laplace, x, y = make()
    found = landscape(laplace, infoform.get_structure(structure), x, y, SETTINGS)
    assert laplace.num_data is not None
    assert laplace.noise is not None
    for row, data in enumerate(powers(SETTINGS.data_powers, 3)):
        for column, precision in enumerate(powers(SETTINGS.precision_powers, 3)):
            posterior = laplace.posterior(
                structure=structure, prior_precision=10**precision, num_data=10**data * laplace.num_data
            )
            drawn = posterior.sample(4, generator=torch.Generator().manual_seed(0))
            weights = laplace.weights(drawn)
            outputs = torch.stack(
                [
                    torch.func.functional_call(laplace.model, {name: one[index] for name, one in weights.items()}, (x,))
                    for index in range(4)
                ]
            )
            expected = Normal(outputs, laplace.noise).log_prob(y).exp().mean(0).log().mean()
            assert_close(found[row, column], expected.detach(), rtol=1e-6, atol=1e-9)


def test_no_deviation_gives_the_plain_network() -> None:
    laplace, x, y = make()
    nothing = {name: torch.zeros(2, *layer.shape, dtype=torch.float64) for name, layer in laplace.layers.items()}
    outputs = sampled_outputs(laplace, nothing, 1.0, x)
    assert_close(outputs, laplace.model(x).detach().expand(2, -1, -1))
    assert_close(mixture_log_likelihood(outputs, y, 0.5), Normal(outputs[0], 0.5).log_prob(y)[:, 0])


def test_axes_of_different_lengths_are_refused() -> None:
    laplace, x, y = make()
    with pytest.raises(ValueError, match=r"same number of powers of ten, got 2\.0 and 3\.0"):
        landscape(laplace, infoform.Diag(), x, y, replace(SETTINGS, precision_powers=(0.0, 3.0)))


def test_pieces_a_page_and_a_picture(small_uci: Path) -> None:
    settings = replace(SETTINGS, sets=("yacht",), epochs=2)
    result = Result("uci-landscape", asdict(settings), 0, 7)
    for key in EXPERIMENT.pieces(settings):
        piece = EXPERIMENT.run_piece(key, settings, cache=small_uci / "cache")
        result = result.with_piece(key, piece, seconds=1.0, peak_memory_bytes=1)
    assert "| yacht |" in EXPERIMENT.page(result)
    EXPERIMENT.charts(result, small_uci)
    assert (small_uci / "uci-landscape.png").stat().st_size > 1000
