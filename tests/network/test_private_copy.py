"""A private copy computes what the model does, and nothing that is done to it is seen in the model."""

import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import bounded
from infoform.network.private_copy import PrivateCopies


class Nested(nn.Module):
    """Reaches its layers through a list, a dictionary, a bound method and a partial function."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 2)
        self.steps = [self.first]
        self.by_name = {"second": (self.second, "tanh")}
        self.last: Callable[[Tensor], Tensor] = self._last
        self.act = functools.partial(_apply, self.second)

    def _last(self, x: Tensor) -> Tensor:
        out: Tensor = self.third(x)
        return out

    def forward(self, x: Tensor) -> Tensor:
        for step in self.steps:
            x = step(x)
        return self.last(self.act(self.by_name["second"][0](x).tanh()))


class Closed(nn.Module):
    """Reaches its layer through a closure, which cannot be copied."""

    def __init__(self) -> None:
        super().__init__()
        layer = self.layer = nn.Linear(3, 2)
        self.run: Callable[[Tensor], Tensor] = lambda x: _apply(layer, x)

    def forward(self, x: Tensor) -> Tensor:
        return self.run(x)


def _apply(layer: nn.Module, x: Tensor) -> Tensor:
    out: Tensor = layer(x)
    return out


def normed() -> nn.Module:
    head = parametrizations.weight_norm(nn.Linear(4, 2))
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), head)


def tied() -> nn.Module:
    layer = nn.Linear(3, 3)
    return nn.Sequential(layer, nn.Tanh(), layer)


MODELS = {"nested": Nested, "normed": normed, "tied": tied}


@pytest.mark.parametrize("name", MODELS)
def test_a_copy_computes_what_the_model_does(name: str) -> None:
    model, x = MODELS[name]().double(), torch.randn(5, 3, dtype=torch.float64)
    with PrivateCopies(model).private() as copy:
        assert copy.model is not model
        assert torch.equal(copy.model(x), model.eval()(x))
        assert [module.training for module in copy.model.modules()] == [False] * len(list(model.modules()))


@pytest.mark.parametrize("name", MODELS)
def test_every_module_that_runs_is_one_of_the_copy(name: str) -> None:
    model, seen = MODELS[name](), []
    for module in model.modules():
        module.register_forward_hook(lambda module, args, output: seen.append(module))
    with PrivateCopies(model.eval()).private() as copy:
        copy.model(torch.randn(5, 3))
    assert seen
    assert not set(seen) & set(model.modules())
    assert set(seen) <= set(copy.modules.values())


@pytest.mark.parametrize("name", MODELS)
def test_tensors_are_shared_and_nothing_else_is(name: str) -> None:
    model = MODELS[name]()
    model.train()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with PrivateCopies(model).private() as copy:
        for (key, one), (other_key, other) in zip(model.named_parameters(), copy.model.named_parameters(), strict=True):
            assert key == other_key
            assert one is other
        for module in list(copy.model.modules()):
            module.register_forward_hook(lambda *_: 1 / 0)
            module.register_buffer("another", torch.zeros(1))
        next(copy.model.children()).register_parameter("more", nn.Parameter(torch.zeros(1)))
    assert model.state_dict().keys() == before.keys()
    assert all(module.training for module in model.modules())
    assert model(torch.randn(5, 3)).isfinite().all()


def test_what_the_user_changes_is_in_the_next_copy() -> None:
    first = nn.Linear(3, 3)
    model = nn.Sequential(first, nn.Tanh(), nn.Linear(3, 2))
    copies, x = PrivateCopies(model), torch.randn(4, 3)
    for change in (
        lambda: first.weight.data.mul_(2),
        lambda: setattr(first, "bias", nn.Parameter(torch.ones(3))),
        lambda: model.append(nn.Linear(2, 2)),
        lambda: model.__setitem__(1, nn.ReLU()),
    ):
        with copies.private() as copy:
            assert torch.equal(copy.model(x), model(x))
        change()
        with copies.private() as copy:
            assert torch.equal(copy.model(x), model(x))


def test_a_model_that_cannot_be_copied_is_used_by_one_thread_at_a_time() -> None:
    model, inside, most = Closed(), [0], [0]
    copies = PrivateCopies(model)
    assert not copies.possible
    lock = threading.Lock()

    def use() -> None:
        with copies.private() as copy:
            assert copy.model is model
            with lock:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
            threading.Event().wait(0.01)
            with lock:
                inside[0] -= 1

    threads = [threading.Thread(target=use, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    bounded.join(*threads)
    assert most == [1]


def test_hooks_of_the_user_run_in_the_copy() -> None:
    model, seen = nn.Sequential(nn.Linear(3, 2)), []
    model[0].register_forward_pre_hook(lambda module, args: (2 * args[0],))
    model[0].register_forward_hook(lambda module, args, output: seen.append(args[0]))
    x = torch.randn(4, 3)
    with PrivateCopies(model).private() as copy:
        copy.model(x)
    assert torch.equal(seen[0], 2 * x)


class Proxied(nn.Module):
    """Reaches itself through a weak proxy, as Lightning's modules do by their trainer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.own = [weakref.proxy(self)]


@pytest.mark.parametrize("make", [Closed, Proxied, lambda: nn.Sequential(Closed(), nn.Linear(2, 2))])
def test_what_leads_to_a_module_in_another_way_is_not_copied(make: Callable[[], Any]) -> None:
    assert not PrivateCopies(make()).possible
