"""Batches that are run together get what each would get alone, bit by bit, from weights that are drawn once."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from flat import flat_laplace
from infoform import Laplace, acquire
from infoform.acquisition import _pool_outputs
from infoform.network.batches import read_batch, read_inputs
from infoform.posteriors.network_posterior import Posterior
from infoform.predicting.resumable_batches import BatchCodec, over_batches
from infoform.predicting.sampled_networks import OFTEN, SampledOutputs
from infoform.prediction import Prediction, join_predictions

pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated"),  # by torch's own jvp, once
    pytest.mark.filterwarnings("ignore:networks with sampled weights"),  # nothing is trained here
]
KINDS = ("mc", "linear-mc")
SIZES = [4, 1, 7, 3, 5]
SAMPLES = 6


def fitted(model: nn.Module, *shape: int) -> tuple[Laplace, Tensor, Tensor]:
    x = torch.randn(sum(SIZES), *shape, generator=torch.Generator().manual_seed(1))
    y = torch.arange(len(x)) % 3
    laplace = Laplace(model, "classification").fit([(x, y)], progress=False)
    laplace.prior_precision = 5.0
    return laplace, x, y


@pytest.fixture(params=["run one by one", "run several at once", "convolutional"])
def trained(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[Laplace, Tensor, Tensor]:
    torch.manual_seed(0)
    if request.param == "convolutional":
        convolution = nn.Conv2d(2, 4, 3, bias=False)
        return fitted(nn.Sequential(convolution, nn.BatchNorm2d(4), nn.Tanh(), nn.Flatten(), nn.Linear(36, 3)), 2, 5, 5)
    if request.param == "run one by one":
        monkeypatch.setattr("infoform.predicting.sampled_networks.VMAP_WEIGHTS", 0)
    return fitted(nn.Sequential(nn.Linear(9, 33), nn.Tanh(), nn.Linear(33, 3)), 9)


def apart(x: Tensor) -> list[Tensor]:
    """Cut data into batches with memory of their own: products depend on how it is aligned, in the last bits."""
    return [part.clone() for part in x.split(SIZES)]


def check_equal(found: Prediction, expected: Prediction) -> None:
    for name, value in vars(expected).items():
        other = getattr(found, name)
        assert torch.equal(other, value) if isinstance(value, Tensor) else other == value, name


def loaders(x: Tensor, y: Tensor) -> dict[str, Iterable[Any]]:
    pairs = list(zip(apart(x), apart(y), strict=True))

    def reusing() -> Iterator[Any]:
        memory, targets = torch.empty_like(x[: max(SIZES)]), torch.empty_like(y[: max(SIZES)])
        for inputs, labels in pairs:
            yield memory[: len(inputs)].copy_(inputs), targets[: len(labels)].copy_(labels)

    return {
        "list": pairs,
        "generator": iter(pairs),
        "reusing its memory": reusing(),
        "dicts": [{"input": inputs, "labels": labels} for inputs, labels in pairs],
        "inputs alone": iter(apart(x)),
    }


def count_samples(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    counts: list[int] = []
    sample = Posterior.sample

    def counted(self: Posterior, count: int, **options: Any) -> dict[str, Tensor]:
        counts.append(count)
        return sample(self, count, **options)

    each = Posterior.sample_each

    def counted_each(self: Posterior, times: int, **options: Any) -> list[dict[str, Tensor]]:
        if times > 1:  # one alone is a call of `sample`
            counts.extend([1] * times)
        return each(self, times, **options)

    monkeypatch.setattr(Posterior, "sample", counted)
    monkeypatch.setattr(Posterior, "sample_each", counted_each)
    return counts


@pytest.mark.parametrize("limit", [0, 3000, 2**20])
@pytest.mark.parametrize("kind", KINDS)
def test_batches_together_get_what_each_gets_alone(
    trained: tuple[Laplace, Tensor, Tensor], kind: str, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    laplace, x, y = trained
    alone = [laplace.predict(part, kind=kind, samples=SAMPLES, seed=3) for part in apart(x)]
    monkeypatch.setattr("infoform.predicting.sampled_networks.GROUP_BYTES", limit)
    for name, loader in loaders(x, y).items():
        found, targets = laplace.predict_loader(loader, kind=kind, samples=SAMPLES, seed=3, progress=False)
        check_equal(found, join_predictions(alone))
        assert (targets is None) == (name == "inputs alone")
        assert targets is None or torch.equal(targets, y)


@pytest.mark.parametrize("kind", KINDS)
def test_a_shuffling_loader_gives_what_its_batches_give_alone(kind: str) -> None:
    torch.manual_seed(0)
    laplace, x, y = fitted(nn.Linear(9, 3), 9)
    loader = DataLoader(TensorDataset(x, y), batch_size=6, shuffle=True, generator=torch.Generator().manual_seed(2))
    state = loader.generator.get_state()
    order = list(loader)
    loader.generator.set_state(state)
    found, targets = laplace.predict_loader(loader, kind=kind, samples=SAMPLES, progress=False)
    check_equal(found, join_predictions([laplace.predict(part, kind=kind, samples=SAMPLES) for part, _ in order]))
    assert targets is not None
    assert torch.equal(targets, torch.cat([labels for _, labels in order]))


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_drawn_once_for_a_group_of_batches(
    trained: tuple[Laplace, Tensor, Tensor], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    laplace, x, y = trained
    counts = count_samples(monkeypatch)
    laplace.predict(x, kind=kind, samples=SAMPLES)
    once = list(counts)
    assert sum(once) == SAMPLES // 2  # each draw serves two networks
    outputs = 3 * SAMPLES * x.element_size()
    for limit, groups in ((2**20, 1), (11 * (x[0].nbytes + outputs), 3), (0, 5)):  # of SIZES: 4 + 1, 7 + 3, 5
        counts.clear()
        monkeypatch.setattr("infoform.predicting.sampled_networks.GROUP_BYTES", limit)
        laplace.predict_loader(loaders(x, y)["list"], kind=kind, samples=SAMPLES, progress=False)
        assert counts == once * groups


@pytest.mark.parametrize("memory", ["fresh", "of earlier draws"])
def test_networks_drawn_side_by_side_are_those_drawn_one_after_the_other(memory: str) -> None:
    torch.manual_seed(0)
    laplace, _, _ = fitted(nn.Sequential(nn.Linear(9, 33), nn.Tanh(), nn.Linear(33, 3)), 9)
    posterior = laplace.posterior()
    generators = [torch.Generator().manual_seed(5) for _ in range(2)]
    expected = [posterior.sample(1, generator=generators[0]) for _ in range(3)]
    out = posterior.sample_each(2) if memory == "of earlier draws" else []
    addresses = [{name: value.data_ptr() for name, value in one.items()} for one in out]
    found = posterior.sample_each(3, generator=generators[1], out=out)
    assert torch.equal(generators[0].get_state(), generators[1].get_state())
    assert len(found) == 3
    for one, other in zip(found, expected, strict=True):
        assert list(one) == list(other)
        for name, value in other.items():
            torch.testing.assert_close(one[name], value)
    for one, before in zip(found, addresses, strict=False):
        assert {name: value.data_ptr() for name, value in one.items()} == before


def test_no_more_batches_are_held_than_a_group_and_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    laplace, x, _ = fitted(nn.Linear(9, 3), 9)
    monkeypatch.setattr(
        "infoform.predicting.sampled_networks.GROUP_BYTES", 2 * (x[:2].nbytes + 2 * 3 * SAMPLES * x.element_size())
    )
    read = 0

    def batches() -> Iterator[Tensor]:
        nonlocal read
        for part in x.split(2):
            read += 1
            yield part

    networks = laplace._predictor().sampled(linear=False)
    compute = partial(networks.over, samples=SAMPLES, seed=0)
    codec = BatchCodec(compute, vars, lambda tensors: SampledOutputs(**tensors))
    for number, _ in enumerate(over_batches(batches(), codec, device=x.device, copy_inputs=True)):
        assert read <= number // 2 * 2 + 3


@pytest.mark.parametrize("limit", [0, 3000, 2**20])
@pytest.mark.parametrize("samples", [2, 11])
@pytest.mark.parametrize("kind", KINDS)
def test_every_batch_has_its_tick(kind: str, samples: int, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infoform.predicting.sampled_networks.GROUP_BYTES", limit)
    monkeypatch.setattr("infoform.predicting.sampled_networks.VMAP_WEIGHTS", 0)
    torch.manual_seed(0)
    laplace, x, _ = fitted(nn.Linear(9, 3), 9)
    ticks: list[int] = []
    networks = laplace._predictor().sampled(linear=kind == "linear-mc")
    batches = (read_batch(part, x.device) for part in x.split(SIZES))
    list(networks.over(batches, samples=samples, seed=0, tick=ticks.append))
    assert ticks == SIZES


def test_an_empty_batch_among_others_is_refused() -> None:
    torch.manual_seed(0)
    laplace, x, _ = fitted(nn.Linear(9, 3), 9)
    with pytest.raises(ValueError, match="at least one example"):
        laplace.predict_loader([x, x[:0]], kind="mc", samples=2, progress=False)


@pytest.mark.parametrize("kind", KINDS)
def test_the_model_is_as_it_was(trained: tuple[Laplace, Tensor, Tensor], kind: str) -> None:
    laplace, x, _ = trained
    laplace.model.train()
    before = {name: value.clone() for name, value in laplace.model.state_dict().items()}
    laplace.predict_loader(x.split(SIZES), kind=kind, samples=SAMPLES, progress=False)
    assert all(module.training for module in laplace.model.modules())
    assert all(torch.equal(value, before[name]) for name, value in laplace.model.state_dict().items())


@pytest.mark.parametrize("kind", KINDS)
def test_a_pool_is_predicted_together(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    laplace, x, _ = fitted(nn.Sequential(nn.Linear(9, 33), nn.Tanh(), nn.Linear(33, 3)), 9)
    alone = [laplace.predict(part, kind=kind, samples=SAMPLES, seed=3) for part in apart(x)]
    counts = count_samples(monkeypatch)
    outputs, plain = _pool_outputs(laplace, apart(x), SAMPLES, kind, 3, progress=False)
    assert counts == [SAMPLES // 2]  # each draw serves two networks
    assert torch.equal(plain, torch.cat([one.plain for one in alone]))
    assert torch.equal(outputs.softmax(2), torch.cat([one.samples for one in alone if one.samples is not None], dim=1))
    chosen = acquire(laplace, iter(apart(x)), 3, kind=kind, samples=SAMPLES, seed=3, progress=False)
    assert torch.equal(chosen, acquire(laplace, apart(x), 3, kind=kind, samples=SAMPLES, seed=3, progress=False))


class Memory:
    """Keeps what is made of batches, by their number in a pass."""

    def __init__(self) -> None:
        self.kept: dict[int, Mapping[str, Tensor]] = {}
        self.reset()

    def reset(self) -> None:
        self.asked, self.added = 0, list[int]()

    def __call__(self, raw: Any) -> "Place":
        self.asked += 1
        return Place(self, self.asked - 1)


class Place:
    def __init__(self, memory: Memory, number: int) -> None:
        self.memory, self.number, self.result = memory, number, memory.kept.get(number)

    def save(self, result: Mapping[str, Tensor]) -> None:
        self.memory.kept[self.number] = result
        self.memory.added.append(self.number)


@pytest.mark.parametrize("lost", [[0], [1, 3], [4], [0, 1, 2, 3, 4], []])
@pytest.mark.parametrize("kind", ["linear", *KINDS])
def test_what_was_kept_is_not_made_again_and_all_comes_in_order(kind: str, lost: list[int]) -> None:
    torch.manual_seed(0)
    laplace, x, y = fitted(nn.Sequential(nn.Linear(9, 33), nn.Tanh(), nn.Linear(33, 3)), 9)
    how: dict[str, Any] = {"kind": kind, "samples": SAMPLES, "seed": 3, "progress": False}
    whole, _ = laplace.predict_loader(loaders(x, y)["list"], **how)
    memory = Memory()
    for missing in (range(len(SIZES)), lost):
        for number in missing:
            memory.kept.pop(number, None)
        memory.reset()
        found, targets = laplace.predict_loader(loaders(x, y)["reusing its memory"], keep=memory, **how)
        check_equal(found, whole)
        assert targets is not None
        assert torch.equal(targets, y)
        assert memory.added == list(missing)


def test_what_is_to_be_kept_comes_a_few_batches_at_a_time() -> None:
    torch.manual_seed(0)
    laplace, x, _ = fitted(nn.Linear(9, 3), 9)
    memory, most = Memory(), 0

    def batches() -> Iterator[Tensor]:
        nonlocal most
        for number, part in enumerate(x.repeat(3, 1).split(1)):
            most = max(most, number - len(memory.added))
            yield part

    laplace.predict_loader(batches(), kind="mc", samples=2, keep=memory, progress=False)
    assert memory.added == list(range(3 * sum(SIZES)))
    assert most == OFTEN - 1


@pytest.mark.parametrize("structure", ["inf", "diag", "kfac"])
def test_draws_in_the_memory_of_earlier_ones_are_the_same(structure: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(200, 300), nn.Tanh(), nn.Linear(300, 3))  # too large to be run several at a time
    x, y = torch.randn(11, 200), torch.arange(11) % 3
    laplace = flat_laplace(model, "classification", structure=structure, rank=4).fit([(x, y)], progress=False)
    posterior = laplace.posterior()
    earlier = posterior.sample(2, generator=torch.Generator().manual_seed(0))
    places = {name: drawn.data_ptr() for name, drawn in earlier.items()}
    fresh = posterior.sample(2, generator=torch.Generator().manual_seed(1))
    again = posterior.sample(2, generator=torch.Generator().manual_seed(1), out=earlier)
    for name, drawn in again.items():
        assert torch.equal(drawn, fresh[name])
        assert structure != "inf" or drawn.data_ptr() == places[name]
    generator = torch.Generator().manual_seed(2)
    deviations = [posterior.sample(1, generator=generator) for _ in range(2)]
    pairs = [(one, {name: -value for name, value in one.items()}) for one in deviations]
    weights = [laplace.weights(one) for pair in pairs for one in pair]
    batch = read_inputs(x, torch.device("cpu"))
    networks = laplace._predictor(posterior).sampled(linear=False)
    (outputs,) = networks.outputs([batch], samples=4, generator=torch.Generator().manual_seed(2))
    for drawn_weights, own in zip(weights, outputs, strict=True):
        state = {name: value[0] for name, value in drawn_weights.items()}
        torch.testing.assert_close(own, torch.func.functional_call(model, state, (x,)))


@pytest.mark.parametrize("kind", KINDS)
def test_opposite_networks_leave_nothing_of_the_first_order(kind: str) -> None:
    """With a small δ the mean over any even number of networks is the trained network's output, up to δ²."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(9, 33), nn.Tanh(), nn.Linear(33, 3)).double()
    x = torch.randn(20, 9, dtype=torch.float64)
    laplace = Laplace(model, "regression").fit([(x, torch.randn(20, 3, dtype=torch.float64))], progress=False)
    for samples in (2, 3, 6):
        found = {}
        for precision in (1e6, 1e8):
            laplace.prior_precision = precision
            prediction = laplace.predict(x, kind=kind, samples=samples, seed=4)
            assert prediction.samples is not None
            assert len(prediction.samples) == samples
            found[precision] = float((prediction.samples - prediction.plain).mean(0).abs().max())
        if samples % 2:
            assert found[1e6] > 3 * found[1e8] > 0  # one of them has no opposite
        elif kind == "linear-mc":
            assert found[1e6] < 1e-14
        else:
            assert found[1e8] < 0.02 * found[1e6]  # as δ², and not as δ


@pytest.mark.parametrize("kind", KINDS)
def test_fewer_networks_are_the_first_of_more(kind: str) -> None:
    torch.manual_seed(0)
    laplace, x, _ = fitted(nn.Sequential(nn.Conv2d(2, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(36, 3)), 2, 5, 5)
    few, more = (laplace.predict(x, kind=kind, samples=count, seed=4).samples for count in (3, 8))
    assert few is not None
    assert more is not None
    torch.testing.assert_close(few, more[:3])
