import torch
from torch.testing import assert_close

from infoform.experiments.toy.network import ToySettings, exact_fit, toy_data, toy_network, untrained

SETTINGS = ToySettings(steps=300, restarts=3, learning_rate=0.02)


def test_data_are_a_cube_with_noise_within_four() -> None:
    x, y = toy_data(ToySettings(examples=5000), 0)
    assert x.abs().max() <= 4
    assert_close((y - x**3).std(), torch.tensor(3.0).double(), rtol=0.05, atol=0)
    assert_close(x.std(), torch.tensor(8 / 12**0.5).double(), rtol=0.05, atol=0)
    assert torch.equal(toy_data(SETTINGS, 1)[0], toy_data(SETTINGS, 1)[0])


def test_the_best_of_the_restarts_is_kept() -> None:
    x, y = toy_data(SETTINGS, 0)

    def error(settings: ToySettings) -> float:
        with torch.no_grad():
            return float((toy_network(settings, 0)(x) - y).square().mean())

    assert error(SETTINGS) < float(y.square().mean()) / 4
    assert [tuple(p.shape) for p in untrained(SETTINGS).parameters()] == [(7, 1), (7,), (1, 7), (1,)]


def test_the_exact_block_is_the_mean_of_outer_products_of_gradients() -> None:
    (x, y), model = toy_data(SETTINGS, 0), untrained(SETTINGS)
    block = exact_fit(model, x, y, noise=1.0).curvature["0"].block
    assert block is not None
    rows = []
    for one in x:
        model.zero_grad()
        model(one).backward()
        weight, bias = (model.get_parameter(name).grad for name in ("0.weight", "0.bias"))
        assert weight is not None
        assert bias is not None
        rows.append(torch.cat([weight, bias.unsqueeze(1)], dim=1).flatten())
    gradients = torch.stack(rows)
    assert_close(block, gradients.T @ gradients / len(x))
