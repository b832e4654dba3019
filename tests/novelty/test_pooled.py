"""Pooled inputs are means and root mean squares over positions, whatever the layer, and the model stays as found."""

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import infoform
from infoform.layers.attention import InProjection
from infoform.layers.base import pool_positions
from infoform.network.batches import Batch, token_mask
from infoform.network.coverage import find_layers
from infoform.novelty.pooled import pooling
from models import MODELS, Recurrent


def expected_rows(module: nn.Module, x: Tensor) -> Tensor:
    """Return the definition, example by example and channel by channel."""
    linear = isinstance(module, nn.Linear | InProjection)
    if linear and x.dim() == 2:
        return x
    channels = x.reshape(len(x), -1, x.shape[-1]).mT if linear else x.flatten(2)  # (N, A, S)
    means = [[float(row.sum()) / len(row) for row in one] for one in channels]
    roots = [[(float((row * row).sum()) / len(row)) ** 0.5 for row in one] for one in channels]
    return torch.cat([torch.tensor(means), torch.tensor(roots)], dim=1).to(x)


@pytest.mark.parametrize("case", MODELS)
def test_rows_are_pooled_over_positions(case: str) -> None:
    model, inputs = MODELS[case].model().eval(), MODELS[case].inputs()
    layers, _ = find_layers(model)
    seen: dict[str, list[Tensor]] = {}
    handles = [
        module.register_forward_hook(
            lambda module, args, output, name=name: seen.setdefault(name, []).append(
                expected_rows(module, args[0].detach())
            )
        )
        for name, layer in layers.items()
        for module in layer.modules
    ]
    with pooling(layers) as pooled:
        pooled.begin(Batch((inputs,), {}, None))
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            model(inputs)
        finally:
            torch.backends.mha.set_fastpath_enabled(True)
    for handle in handles:
        handle.remove()
    rows = pooled.rows(len(inputs))
    assert rows.keys() == seen.keys()
    for name, row in rows.items():
        assert_close(row, torch.stack(seen[name]).mean(0), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("at_once", [1, 200, 2**18])
def test_rows_do_not_depend_on_the_layout_in_memory(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infoform.layers.base.POOLED_AT_ONCE", at_once)
    for module, shape in (
        (nn.Conv2d(3, 2, 1), (5, 3, 4, 6)),
        (nn.Conv1d(3, 2, 1), (5, 3, 7)),
        (nn.Conv2d(1, 2, 1), (5, 1, 4, 4)),
    ):
        x = torch.randn(shape, dtype=torch.float64)
        rule = find_layers(nn.Sequential(module))[0]["0"].rule
        expected = torch.cat([x.flatten(2).mean(2), x.flatten(2).square().mean(2).sqrt()], 1)
        last = x.movedim(1, -1).contiguous().movedim(-1, 1)
        for inputs in (x, last, x[:0], x.repeat(2, 1, *(1,) * (len(shape) - 2))[::2]):
            rows = rule.pooled(module, inputs)
            assert_close(rows, expected if inputs is x or inputs is last else rule.pooled(module, inputs.clone()))
    tokens = torch.randn(5, 4, 3, dtype=torch.float64)
    assert_close(pool_positions(tokens), torch.cat([tokens.mean(1), tokens.square().mean(1).sqrt()], 1))


def test_tokens_that_are_padding_do_not_count() -> None:
    x = torch.randn(2, 5, 3, dtype=torch.float64)
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    rows = pool_positions(x, mask=mask != 0)
    assert_close(rows[:1], pool_positions(x[:1, :3]))
    assert_close(rows[1:], pool_positions(x[1:]))
    for argument in ({"attention_mask": mask}, {"src_key_padding_mask": mask == 0}):
        assert_close(token_mask(Batch((), dict(argument), None)), mask != 0)


def test_padding_changes_no_row() -> None:
    layer = nn.Sequential(nn.Linear(3, 4))
    layers, _ = find_layers(layer)
    short = torch.randn(2, 4, 3)
    long = torch.cat([short, 100 * torch.ones(2, 2, 3)], dim=1)
    found = []
    for x in (short, long):
        mask = torch.zeros(2, x.shape[1])
        mask[:, :4] = 1
        with pooling(layers) as pooled:
            pooled.begin(Batch((), {"attention_mask": mask}, None))
            layer(x)
        found.append(pooled.rows(2)["0"])
    assert_close(found[0], found[1])


def test_the_layer_that_the_outputs_come_from_is_found() -> None:
    model = Recurrent().eval()
    layers, _ = find_layers(model)
    with pooling(layers, observe=True) as pooled, torch.no_grad():
        outputs = model(torch.randn(5, 4))
        assert pooled.last_layer(outputs) == "head"
        assert pooled.last_layer(outputs.log_softmax(1)) == "head"


def test_hooks_are_removed_also_after_an_error() -> None:
    model = nn.Sequential(nn.Linear(3, 4))
    layers, _ = find_layers(model)
    with pytest.raises(RuntimeError), pooling(layers):
        model(torch.randn(2, 7))
    assert not model[0]._forward_hooks


def test_rows_that_are_no_examples_are_left_out() -> None:
    model = nn.Sequential(nn.Linear(3, 4))
    layers, _ = find_layers(model)
    with pooling(layers) as pooled:
        model(torch.randn(6, 3))  # three windows of each of two examples, say
    assert pooled.rows(2) == {}


@pytest.mark.parametrize("positions", [1, 49, 197, 784])
def test_long_sums_lose_no_digit_that_tells_the_mean_from_the_root_mean_square(positions: int) -> None:
    x = 1 + 0.1 * torch.randn(6, positions, 3, generator=torch.Generator().manual_seed(0))
    wide = x.double()
    expected = torch.cat([wide.mean(1), wide.square().mean(1).sqrt()], 1)
    for same in (x, x.mT.contiguous().mT):  # positions apart, and side by side
        assert_close(pool_positions(same), expected, rtol=2e-7, atol=0)


class ByExample(nn.Module):
    """Calls its first layer for one example after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.stack([self.first(one) for one in x]).tanh())  # type: ignore[no-any-return]


def test_a_layer_that_sees_single_examples_without_an_axis_is_left_out() -> None:
    torch.manual_seed(0)
    laplace = infoform.Laplace(ByExample(), "classification", layers="last")
    laplace.fit([(torch.randn(20, 4), torch.arange(20) % 3)], progress=False)
    laplace.calibrate_novelty([(torch.randn(30, 4), torch.arange(30) % 3)], progress=False)
    found = laplace.predict(torch.randn(5, 4)).novelty
    assert found is not None
    assert found.shape == (5,)
    assert bool(((found >= 0) & (found <= 1)).all())
