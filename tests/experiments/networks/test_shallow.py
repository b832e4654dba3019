import pytest
import torch
from torch import nn
from torch.testing import assert_close

from infoform.experiments.networks.shallow import ShallowStack, StackedAdam, Training, train_stack


@pytest.fixture
def stack() -> ShallowStack:
    return ShallowStack.drawn(3, 4, 5, generator=torch.Generator().manual_seed(0))


def data(count: int = 3, size: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(count, size, 4, generator=generator, dtype=torch.float64)
    return x, torch.randn(count, size, 1, generator=generator, dtype=torch.float64)


def test_a_stack_answers_as_its_networks_do(stack: ShallowStack) -> None:
    x, _ = data()
    assert_close(stack(x), torch.stack([stack.network(index)(x[index]) for index in range(3)]))


def test_the_gradient_is_that_of_autograd(stack: ShallowStack) -> None:
    x, y = data()
    found = stack.gradient(x, y)
    for index in range(3):
        model = stack.network(index)
        nn.functional.mse_loss(model(x[index]), y[index]).backward()
        hidden, output = model[0], model[2]
        assert isinstance(hidden, nn.Linear)
        assert isinstance(output, nn.Linear)
        for gradient, parameter in (
            (found.hidden[index].T, hidden.weight),
            (found.hidden_bias[index, 0], hidden.bias),
            (found.output[index].T, output.weight),
            (found.output_bias[index, 0], output.bias),
        ):
            assert parameter.grad is not None
            assert_close(gradient, parameter.grad, rtol=1e-9, atol=1e-12)


def test_steps_are_those_of_torch_adam_with_a_decay_for_each(stack: ShallowStack) -> None:
    x, y = data()
    decays = torch.tensor([0.0, 0.1, 1.0], dtype=torch.float64)
    models = [stack.network(index) for index in range(3)]
    optimizer = StackedAdam(stack, 0.01, decays)
    for _ in range(5):
        optimizer.step(x, y)
    for index, model in enumerate(models):
        peer = torch.optim.Adam(model.parameters(), 0.01, weight_decay=float(decays[index]))
        for _ in range(5):
            peer.zero_grad()
            nn.functional.mse_loss(model(x[index]), y[index]).backward()
            peer.step()
        assert_close(stack(x)[index], model(x[index]).detach(), rtol=1e-9, atol=1e-12)


def test_an_epoch_takes_every_example_once(stack: ShallowStack, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = data()
    optimizer = StackedAdam(stack, 0.01)
    seen: list[torch.Tensor] = []
    monkeypatch.setattr(optimizer, "step", lambda part, _: seen.append(part))
    optimizer.epoch(x, y, 5, generator=torch.Generator().manual_seed(0))
    assert [part.shape[1] for part in seen] == [5, 5, 2]
    everything = torch.cat(seen, 1)
    assert_close(everything.sort(1).values, x.sort(1).values)
    assert not torch.equal(everything, x)


def test_training_fits_a_line_and_keeps_the_epochs_asked_for() -> None:
    x, _ = data(size=40)
    y = x.sum(2, keepdim=True)
    found = train_stack(x, y, width=8, training=Training(120, 10, 0.01), kept=(20,))
    assert sorted(found) == [20, 120]
    early, late = ((found[epoch](x) - y).square().mean() for epoch in (20, 120))
    assert late < 0.1 * early
    again = train_stack(x, y, width=8, training=Training(20, 10, 0.01))
    assert_close(again[20].flat, found[20].flat)


def test_a_large_decay_takes_all_weights_to_zero() -> None:
    x, y = data(2)
    decays = torch.tensor([0.0, 100.0], dtype=torch.float64)
    trained = train_stack(x, y, width=5, training=Training(200, 12, 0.01), decay=decays)[200]
    assert trained.flat[0].norm() > 1
    assert trained.flat[1].norm() < 0.1


def test_training_in_float32_is_the_same_but_for_rounding() -> None:
    x, y = data()
    double, single = (
        train_stack(x, y, width=5, training=Training(20, 4, dtype=dtype))[20].flat for dtype in ("float64", "float32")
    )
    assert single.dtype == torch.float64
    assert not torch.equal(double, single)
    assert_close(double, single, rtol=1e-3, atol=1e-4)
