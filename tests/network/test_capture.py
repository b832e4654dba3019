"""The user's model and the process are as found, to the bit, after whatever is done with them, exceptions included."""

import gc
import random
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import infoform
from flat import flat_laplace
from infoform.posteriors import PRESETS, STRUCTURES

X = torch.randn(10, 2, 4, generator=torch.Generator().manual_seed(0)).double()
Y = torch.arange(10) % 3


class Network(nn.Module):
    """A bit of everything that a fit might disturb."""

    counter: Tensor
    latest: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(2, 3, 3, padding=1)
        self.norm = nn.BatchNorm1d(3)
        self.encoder = nn.TransformerEncoderLayer(4, 2, dim_feedforward=5, batch_first=True)
        self.twin = nn.Conv1d(2, 3, 3, padding=1)
        self.twin.weight, self.twin.bias = self.conv.weight, self.conv.bias
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(12, 3)
        self.register_buffer("counter", torch.zeros(()))
        self.register_buffer("latest", torch.zeros(2), persistent=False)
        self.fail_at: int | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.counter += 1
        self.latest = x.mean((0, 2))
        if self.fail_at is not None and self.counter >= self.fail_at:
            raise FloatingPointError("the layer is out of order")
        hidden = self.norm(self.conv(x) + self.twin(x)).relu_()
        hidden = self.encoder(hidden) + torch.rand(())  # draws from the global generator, in evaluation mode too
        return self.head(self.dropout(hidden).flatten(1))  # type: ignore[no-any-return]


def make_model() -> Network:
    """Return a model in an unusual state: half of it frozen, some gradients set, hooked, in mixed modes."""
    torch.manual_seed(0)
    model = Network().double()
    model.head.weight.grad = torch.randn_like(model.head.weight)
    model.encoder.linear1.bias.grad = torch.zeros_like(model.encoder.linear1.bias)
    model.conv.requires_grad_(False)
    model.norm.eval()
    model.head.eval()
    model.encoder.linear1.eval()
    model.conv.register_forward_hook(lambda module, args, output: 2 * output)
    model.head.register_forward_pre_hook(lambda module, args: None)
    model.head.register_full_backward_hook(lambda module, *gradients: None)
    model.head.weight.register_hook(lambda gradient: gradient)
    model.register_forward_hook(lambda module, args, kwargs, output: output, with_kwargs=True)
    random.seed(11)
    np.random.seed(12)  # noqa: NPY002
    torch.manual_seed(13)
    return model


def snapshot(model: nn.Module) -> list[Any]:
    """Return all there is to see of a model and of the process's global state, as plain comparable values."""
    state: list[Any] = []
    for name, tensor in [*model.named_parameters(remove_duplicate=False), *model.named_buffers()]:
        state.append((name, id(tensor), tensor._version, tensor.tolist(), tensor.dtype, tensor.requires_grad))
        state.append((name, id(tensor.grad), None if tensor.grad is None else tensor.grad.tolist()))
        state.append((name, sorted(tensor._backward_hooks or {})))
    for name, module in model.named_modules():
        hooks = {key: list(value.items()) for key, value in vars(module).items() if "hooks" in key and value}
        state.append(
            (name, module.training, hooks, list(vars(module)), list(module._buffers), list(module._parameters))
        )
    numeric = np.random.get_state(legacy=False)  # noqa: NPY002
    state.append((random.getstate(), repr(numeric), torch.get_rng_state().tolist(), torch.initial_seed()))
    state.append((torch.backends.mha.get_fastpath_enabled(), torch.is_grad_enabled(), torch.get_default_dtype()))
    return state


def loader(**options: Any) -> DataLoader[tuple[Tensor, ...]]:
    return DataLoader(TensorDataset(X, Y), batch_size=4, **options)


@pytest.mark.parametrize("structure", [*STRUCTURES, *PRESETS])
def test_the_model_is_as_found_after_a_fit_and_all_that_follows(structure: str, tmp_path: Path) -> None:
    model = make_model()
    before = snapshot(model)
    laplace = infoform.Laplace(model, "classification", structure=structure)
    assert snapshot(model) == before
    laplace.fit(loader(shuffle=True), progress=False)
    assert snapshot(model) == before
    laplace.posterior(prior_precision=2.0)
    assert snapshot(model) == before
    laplace.sample(2)
    laplace.sample(2, seed=5)
    assert snapshot(model) == before
    str(laplace.coverage())
    laplace.save(tmp_path / "posterior.safetensors", curvature=True)
    assert snapshot(model) == before
    infoform.load(tmp_path / "posterior.safetensors", model).sample(2)
    assert snapshot(model) == before


@pytest.mark.parametrize("fisher", ["exact", "empirical"])
def test_the_model_is_as_found_after_a_fit_with_another_fisher_matrix(fisher: str) -> None:
    model = make_model()
    before = snapshot(model)
    flat_laplace(model, "classification", fisher=fisher, statistics="all").fit(loader(), progress=False)
    assert snapshot(model) == before


def test_a_fit_leaves_a_disabled_fast_path_disabled() -> None:
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        infoform.Laplace(make_model(), "classification").fit(loader(), progress=False)
        assert not torch.backends.mha.get_fastpath_enabled()
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


class Breaking:
    """A loader that raises in the given pass, after its first batch."""

    def __init__(self, error: BaseException, in_pass: int) -> None:
        self.error, self.passes_left = error, in_pass

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        self.passes_left -= 1
        yield X[:5], Y[:5]
        if self.passes_left == 0:
            torch.rand(3)
            raise self.error
        yield X[5:], Y[5:]


@pytest.mark.parametrize("error", [OSError("the disk is gone"), KeyboardInterrupt()])
@pytest.mark.parametrize("in_pass", [1, 2])
def test_the_model_is_as_found_after_the_loader_raises(in_pass: int, error: BaseException) -> None:
    model = make_model()
    before = snapshot(model)
    laplace = infoform.Laplace(model, "classification")
    with pytest.raises(type(error)):
        laplace.fit(Breaking(error, in_pass), progress=False)
    assert snapshot(model) == before
    with pytest.raises(RuntimeError, match="no posterior yet"):
        laplace.posterior()


@pytest.mark.parametrize("batch", [1, 2, 4])
def test_the_model_is_as_found_after_a_layer_raises(batch: int) -> None:
    model = make_model()
    model.fail_at = batch  # 3 batches a pass
    before = snapshot(model)
    with pytest.raises(FloatingPointError, match="out of order"):
        infoform.Laplace(model, "classification").fit(loader(), progress=False)
    assert snapshot(model) == before


def test_the_model_is_as_found_after_a_backward_hook_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model()
    before = snapshot(model)

    def fail(*args: Any, **kwargs: Any) -> None:
        raise MemoryError

    monkeypatch.setattr("infoform.fitting.accumulate.GradientAccumulator.add", fail)
    with pytest.raises(MemoryError):
        infoform.Laplace(model, "classification").fit(loader(), progress=False)
    assert snapshot(model) == before


@pytest.mark.parametrize(
    "batch",
    [(X, Y + 1), (X * torch.nan, Y), (X, Y[:3]), (X.float(), Y), "text"],
    ids=["label", "nan", "few", "dtype", "str"],
)
def test_the_model_is_as_found_after_bad_data(batch: Any) -> None:
    model = make_model()
    before = snapshot(model)
    with pytest.raises((ValueError, TypeError, RuntimeError)):
        infoform.Laplace(model, "classification").fit([(X, Y), batch], progress=False)
    assert snapshot(model) == before


def test_a_failed_fit_keeps_the_one_before_it() -> None:
    laplace = infoform.Laplace(make_model(), "classification").fit(loader(), progress=False)
    before = laplace.sample(2)
    with pytest.raises(OSError, match="gone"):
        laplace.fit(Breaking(OSError("gone"), 2), progress=False)
    check_equal(laplace.sample(2), before)
    assert laplace.num_data == 10


def test_the_data_is_not_changed() -> None:
    x, y = X.clone(), Y.clone()
    model = nn.Sequential(nn.Flatten(), nn.Linear(8, 3), nn.ReLU(inplace=True)).double()
    infoform.Laplace(model, "classification").fit([(x, y)], progress=False)
    assert torch.equal(x, X)
    assert x._version == y._version == 0
    assert not x.requires_grad


def test_the_same_seed_gives_the_same_posterior_and_samples() -> None:
    def draw(global_seed: int, **options: Any) -> dict[str, Tensor]:
        model = make_model()
        torch.manual_seed(global_seed)
        return flat_laplace(model, "classification", **options).fit(loader(shuffle=True), progress=False).sample(2)

    first = draw(1, seed=3)
    check_equal(draw(2, seed=3), first)
    other = draw(1, seed=4)
    assert all(not torch.equal(other[name], first[name]) for name in first)


def test_another_seed_draws_other_labels_and_matters_to_sampled_labels_alone() -> None:
    def diagonal(fisher: str, seed: int) -> Tensor:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(8, 3)).double()
        laplace = flat_laplace(model, "classification", structure="diag", fisher=fisher, seed=seed)
        values = laplace.fit(loader(), progress=False).curvature["1"].diagonal
        assert values is not None
        return values

    assert torch.equal(diagonal("mc", 0), diagonal("mc", 0))
    assert not torch.equal(diagonal("mc", 0), diagonal("mc", 1))
    assert torch.equal(diagonal("exact", 0), diagonal("exact", 1))
    assert torch.equal(diagonal("empirical", 0), diagonal("empirical", 1))


def test_samples_depend_on_their_own_seed_alone() -> None:
    laplace = infoform.Laplace(make_model(), "classification").fit(loader(), progress=False)
    first = laplace.sample(2, seed=1)
    torch.manual_seed(99)
    laplace.sample(5, seed=2)
    check_equal(laplace.sample(2, seed=1), first)
    assert not torch.equal(laplace.sample(2, seed=2)["head.weight"], first["head.weight"])


def test_samples_share_no_memory_with_the_model() -> None:
    model = make_model()
    before = snapshot(model)
    for sample in infoform.Laplace(model, "classification").fit(loader(), progress=False).sample(1).values():
        sample.zero_()
    assert snapshot(model) == before


def test_memory_is_not_held_after_a_fit() -> None:

    x = X.clone()
    gone = weakref.ref(x)
    model = make_model()
    laplace = infoform.Laplace(model, "classification").fit([(x, Y)], progress=False)
    del x
    gc.collect()
    assert gone() is None
    assert laplace.num_data == 10


def check_equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
