"""Several threads predict with one object: every answer is that of a single thread, and the model is as it was."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import infoform
from flat import flat_laplace

THREADS, TIMES = 8, 6


@pytest.fixture(autouse=True)
def one_thread_an_operation() -> Iterator[None]:
    """Have sums in one order: with more, BLAS takes as many as are free, and the last digit depends on their number."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def network(kind: str) -> nn.Module:
    torch.manual_seed(0)
    if kind == "convolutions":
        return nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(), nn.Linear(4 * 36, 3)
        )
    if kind == "attention":
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        return nn.Sequential(nn.Flatten(), nn.Unflatten(1, (8, 8)), layer, nn.Flatten(), nn.Linear(64, 3))
    if kind == "own attention":
        return nn.Sequential(nn.Flatten(), nn.Unflatten(1, (8, 8)), OwnAttention(), nn.Flatten(), nn.Linear(64, 3))
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 3))


class OwnAttention(nn.Module):
    """A mixer of positions that calls torch's function, by another name than attention."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(8, 24)

    def forward(self, x: Tensor) -> Tensor:  # (N, S, 8) -> (N, S, 8)
        return nn.functional.scaled_dot_product_attention(*self.mix(x).unsqueeze(1).chunk(3, dim=-1)).squeeze(1)


def global_settings() -> list[bool]:
    """Return what torch has one of for all threads."""
    cuda = torch.backends.cuda
    kernels = [cuda.flash_sdp_enabled(), cuda.mem_efficient_sdp_enabled(), cuda.math_sdp_enabled()]
    return [*kernels, torch.backends.mha.get_fastpath_enabled()]


def batches() -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(size, 1, 8, 8, generator=generator) for size in (1, 3, 17, 40)]


def fitted(kind: str, layers: Any = None) -> infoform.Laplace:
    model, generator = network(kind), torch.Generator().manual_seed(2)
    data = [(torch.randn(20, 1, 8, 8, generator=generator), torch.arange(20) % 3) for _ in range(3)]
    return flat_laplace(model, "classification", rank=5, layers=layers).fit(data, progress=False)


def fingerprint(model: nn.Module) -> list[Any]:
    state = [(name, type(value), id(value), value.clone()) for name, value in model.state_dict(keep_vars=True).items()]
    flags = [(type(one), one.training, len(one._forward_hooks)) for one in model.modules()]
    return [state, flags]


def same(one: list[Any], other: list[Any]) -> bool:
    equal = [a[:3] == b[:3] and torch.equal(a[3], b[3]) for a, b in zip(one[0], other[0], strict=True)]
    return all(equal) and one[1] == other[1]


def bits(prediction: infoform.Prediction) -> list[Tensor]:
    found = [prediction.probs, prediction.variance, prediction.entropy]
    return [one for one in found if one is not None]


@pytest.mark.filterwarnings("ignore:networks with sampled weights are much worse")  # one input, hardly trained
@pytest.mark.parametrize("kind", ["linear", "mc", "linear-mc"])
@pytest.mark.parametrize("layers", [None, "last"])
@pytest.mark.parametrize("model", ["perceptron", "convolutions", "attention"])
def test_answers_from_several_threads_are_those_of_one(model: str, layers: Any, kind: str) -> None:
    laplace, inputs = fitted(model, layers), batches()
    laplace.model.train()
    before = fingerprint(laplace.model)
    fast_path = torch.backends.mha.get_fastpath_enabled()
    expected = [bits(laplace.predict(x, kind=kind, samples=6)) for x in inputs]

    def answer(number: int) -> list[Tensor]:
        return bits(laplace.predict(inputs[number % len(inputs)], kind=kind, samples=6))

    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(answer, range(THREADS * TIMES)))
    for number, one in enumerate(found):
        for got, wanted in zip(one, expected[number % len(inputs)], strict=True):
            assert torch.equal(got, wanted)
    assert same(before, fingerprint(laplace.model))
    assert torch.backends.mha.get_fastpath_enabled() == fast_path


@pytest.mark.parametrize("layers", [None, "last"])
@pytest.mark.parametrize("model", ["convolutions", "attention", "own attention"])
def test_predictions_of_all_kinds_and_a_fit_run_at_the_same_time(model: str, layers: Any) -> None:
    laplace, x = fitted(model, layers), batches()[2]
    settings = global_settings()
    data = [(one, torch.arange(len(one)) % 3) for one in batches()]
    work: dict[str, Any] = {
        kind: lambda kind=kind: laplace.predict(x, kind=kind, samples=4).probs for kind in ("linear", "mc", "linear-mc")
    }
    work["novelty"] = lambda: laplace.novelty(x).novelty
    work["fit"] = lambda: (
        flat_laplace(laplace.model, "classification", rank=5).fit(data, progress=False).predict(x).probs
    )
    expected = {name: run() for name, run in work.items()}
    names = list(work) * TIMES
    with ThreadPoolExecutor(THREADS) as pool:
        for name, got in zip(names, pool.map(lambda name: work[name](), names), strict=True):
            assert torch.equal(got, expected[name]), name
    assert global_settings() == settings
