"""Bases are found from the examples that matter, all else from every example; batches and processes change nothing."""

import gc
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dense import assert_close
from flat import flat_laplace
from infoform import Laplace
from infoform.common.randomness import UniformStream
from infoform.fitting import example_selection
from infoform.fitting.example_selection import WHOLE, ExampleSelector, Selection
from infoform.network.batches import Batch, select_rows
from infoform.network.capture import Capture

EXAMPLES = WHOLE + 150
SIZES = (1, 37, 128, EXAMPLES)


def sure_model() -> nn.Sequential:
    """Return a network that is sure of most examples."""
    torch.manual_seed(0)
    last = nn.Linear(4, 3)
    with torch.no_grad():
        last.weight.mul_(12)
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), last).double()


def sure_convolutions() -> nn.Sequential:
    """Return a network with a shared weight that is sure of most examples."""
    torch.manual_seed(0)
    last = nn.Linear(6, 3)
    with torch.no_grad():
        last.weight.mul_(12)
    return nn.Sequential(nn.Unflatten(1, (1, 5)), nn.Conv1d(1, 2, 3), nn.Tanh(), nn.Flatten(), last).double()


MODELS = {"linear": sure_model, "convolutions": sure_convolutions}


def examples() -> tuple[Tensor, Tensor]:
    x = torch.randn(EXAMPLES, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return x, torch.arange(EXAMPLES) % 3


def batches(size: int) -> list[tuple[Tensor, Tensor]]:
    x, y = examples()
    return list(zip(x.split(size), y.split(size), strict=True))


def fit(model: nn.Module, data: Sequence[Any], *, check: bool = True, **options: Any) -> Laplace:
    given: dict[str, Any] = {"rank": 12, "prior": "activation", "seed": 2, "statistics": "needed"} | options
    return flat_laplace(model, "classification", **given).fit(data, check=check, progress=False)


def check_same(one: Laplace, other: Laplace) -> None:
    left, right = (laplace.posterior(prior_precision=1.0).layers for laplace in (one, other))
    for name, layer in left.items():
        assert_close(layer.dense(), right[name].dense())
    assert one._fit is not None
    assert other._fit is not None
    assert one._fit.summary.num_examples == other._fit.summary.num_examples
    assert one._fit.summary.log_likelihood == pytest.approx(other._fit.summary.log_likelihood, rel=1e-12)


def chosen_by_a_fit(model: nn.Module) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the Fisher vectors of all examples, which the two passes keep by the definition, and the inputs."""
    laplace = Laplace(model, "classification", seed=2)
    x, _ = examples()
    outputs = model(x).detach()
    uniforms = UniformStream(2, (1, laplace.likelihood.noise_width(3))).take(len(x))
    (vectors,) = laplace.likelihood.fisher_vectors(outputs, "mc", targets=None, uniforms=uniforms)
    energy = vectors.square().sum(1)
    found = (energy >= 0.1 * energy[:WHOLE].mean()) | (torch.arange(len(x)) < WHOLE)
    return vectors, found, found | (energy >= 0.1 * energy.mean()), x


def test_bases_are_those_of_the_examples_that_matter_and_the_diagonal_is_that_of_all() -> None:
    model = sure_model()
    vectors, kept, measured, x = chosen_by_a_fit(model)
    assert 0 < int(kept[WHOLE:].sum()) < 0.5 * len(kept[WHOLE:])
    a = torch.cat([model[:2](x).detach(), torch.ones(len(x), 1, dtype=torch.float64)], 1)  # inputs of the last layer
    gradients = torch.einsum("ng,na->nga", vectors, a)
    found = fit(model, batches(100)).curvature["2"]
    basis = found.bases["gradient"]
    moment = torch.einsum("nga,ngb->ab", gradients[kept], gradients[kept])
    turned = basis.input_vectors.T @ moment @ basis.input_vectors
    assert_close(turned, torch.diag(turned.diagonal()))  # eigenvectors of the chosen examples' moment
    assert found.diagonal is not None
    assert_close(found.diagonal, gradients.square().mean(0))
    inner = basis.gradient_vectors.T @ gradients[measured] @ basis.input_vectors
    assert_close(basis.eigenvalues, inner.square().sum(0) / len(gradients))
    assert basis.core is not None
    assert basis.core_pairs is not None
    entries = inner[:, basis.core_pairs[0], basis.core_pairs[1]]
    assert_close(basis.core, entries.T @ entries / len(gradients))


def test_a_part_of_the_data_finds_bases_and_all_that_matter_are_measured() -> None:
    model, read = sure_model(), torch.arange(EXAMPLES) // 50 % 2 == 0  # every second batch of 50
    vectors, _, _, x = chosen_by_a_fit(model)
    energy, first = vectors.square().sum(1), torch.arange(EXAMPLES) < WHOLE
    kept = read & (first | (energy >= 0.1 * energy[read & first].mean()))
    measured = first | (energy >= 0.1 * energy[read].mean())
    assert 0 < int(measured[WHOLE:].sum()) < 0.5 * len(measured[WHOLE:])
    assert 0 < int(kept[WHOLE:].sum()) < 0.5 * int(read[WHOLE:].sum())
    a = torch.cat([model[:2](x).detach(), torch.ones(len(x), 1, dtype=torch.float64)], 1)  # inputs of the last layer
    gradients = torch.einsum("ng,na->nga", vectors, a)
    found = fit(model, batches(50), basis_data=0.5).curvature["2"]
    basis = found.bases["gradient"]
    moment = torch.einsum("nga,ngb->ab", gradients[kept], gradients[kept])
    turned = basis.input_vectors.T @ moment @ basis.input_vectors
    assert_close(turned, torch.diag(turned.diagonal()))
    assert_close(found.diagonal, gradients.square().mean(0))
    assert_close(found.input_factor, a.T @ a / len(a))
    inner = basis.gradient_vectors.T @ gradients[measured] @ basis.input_vectors
    assert_close(basis.eigenvalues, inner.square().sum(0) / len(gradients))


@pytest.mark.parametrize("size", SIZES[:-1])
@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_the_batch_size_does_not_change_which_examples_are_chosen(make: Callable[[], nn.Module], size: int) -> None:
    check_same(fit(make(), batches(size)), fit(make(), batches(SIZES[-1])))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_every_example_is_in_the_diagonal_once(make: Callable[[], nn.Module], size: int) -> None:
    model = make()
    vectors, _, _, x = chosen_by_a_fit(model)
    weights = dict(model.named_parameters())
    squares = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    for one, vector in zip(x, vectors, strict=True):
        gradients = torch.autograd.grad(model(one[None]), list(weights.values()), vector[None])
        for name, gradient in zip(weights, gradients, strict=True):
            squares[name] += gradient.square() / len(x)
    for name, one in fit(model, batches(size)).curvature.items():
        expected = torch.cat([squares[f"{name}.weight"].flatten(1), squares[f"{name}.bias"].unsqueeze(1)], 1)
        assert_close(one.diagonal, expected)


def test_an_exact_diagonal_and_a_floor_of_zero_do_not_leave_anything_out() -> None:
    model = sure_model()
    sieved, whole = fit(model, batches(64)), fit(model, batches(64), basis_floor=0.0)
    for name in ("0", "2"):
        one, other = sieved.curvature[name].diagonal, whole.curvature[name].diagonal
        assert one is not None
        assert other is not None
        assert_close(one, other)
        bases = [fitted.curvature[name].bases["gradient"].input_vectors.abs() for fitted in (sieved, whole)]
        assert float((bases[0] - bases[1]).abs().max()) > 1e-6  # other bases, but near ones
        blocks = [fitted.posterior(prior_precision=1.0).layers[name].dense() for fitted in (sieved, whole)]
        assert float((blocks[0] - blocks[1]).norm()) < 0.1 * float(blocks[1].norm())


def test_the_second_pass_reads_the_chosen_examples_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    forward, sizes = Capture.forward, []

    def look(self: Capture, batch: Batch) -> Tensor:
        sizes.append(len(batch.args[0]))
        return forward(self, batch)

    monkeypatch.setattr(Capture, "forward", look)
    model = sure_model()
    fit(model, batches(64), check=False)  # which runs the network, too
    _, _, kept, _ = chosen_by_a_fit(model)
    chosen = [int(part.sum()) for part in kept.split(64)]
    assert sizes == [len(part) for part in kept.split(64)] + [count for count in chosen if count]


def test_arguments_that_cannot_be_cut_are_sent_back_whole() -> None:
    class Listed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = sure_model()

        def forward(self, parts: list[Tensor]) -> Tensor:
            outputs: Tensor = self.inner(torch.cat(parts))
            return outputs

    listed = fit(Listed(), [([x], y) for x, y in batches(50)])
    plain = fit(sure_model(), batches(50))
    for name, layer in plain.posterior(prior_precision=1.0).layers.items():
        assert_close(listed.posterior(prior_precision=1.0).layers[f"inner.{name}"].dense(), layer.dense())


@pytest.mark.parametrize(
    ("value", "cut"), [(torch.zeros(4, 2), True), (None, True), (3, True), (torch.zeros(3), False), ([1], False)]
)
def test_rows_are_chosen_where_every_argument_has_them_or_is_plain(value: Any, cut: bool) -> None:
    x = torch.arange(8.0).reshape(4, 2)
    chosen = select_rows(Batch((x,), {"other": value}, torch.arange(4)), torch.tensor([0, 3]))
    assert (chosen is not None) == cut
    if chosen is not None:
        assert torch.equal(chosen.args[0], x[[0, 3]])
        assert chosen.targets is not None
        assert chosen.targets.tolist() == [0, 3]


class Routed(nn.Module):
    """Sends the examples after the first ones, whose last input is large, through a layer of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.often, self.seldom, self.head = nn.Linear(5, 4), nn.Linear(5, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        late = x[:, -1:] > 50
        hidden = self.often(x)
        if bool(late.any()):
            hidden = torch.where(late, self.seldom(x / 100), hidden)
        outputs: Tensor = self.head(hidden.tanh())
        return outputs


def test_a_layer_that_only_later_examples_reach_gets_a_basis() -> None:
    torch.manual_seed(3)
    model = Routed().double()
    with torch.no_grad():
        model.head.weight.mul_(100)  # sure of all
    x, y = examples()
    x[300:320, -1] = 100.0
    laplace = fit(model, list(zip(x.split(20), y.split(20), strict=True)))
    assert "seldom" in laplace.curvature
    basis = laplace.curvature["seldom"].bases["gradient"]
    assert float(basis.eigenvalues.sum()) > 0


@pytest.mark.parametrize(
    "options",
    [{"fisher": "exact"}, {"fisher_samples": 2}, {"statistics": "all"}, {"structure": "efb"}],
    ids=str,
)
def test_fits_with_nothing_that_makes_up_for_examples_left_out_take_every_one(options: dict[str, Any]) -> None:
    model = sure_model()
    check_same(fit(model, batches(90), **options), fit(model, batches(90), basis_floor=0.0, **options))


@pytest.mark.parametrize("block", [10, 64, 2**16])
@pytest.mark.parametrize("size", [7, 64, 150])
def test_a_selector_takes_the_first_examples_and_those_above_a_share_of_the_mean(
    size: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(example_selection, "BLOCK", block)
    vectors = torch.randn(400, 3, generator=torch.Generator().manual_seed(0)).pow(5)
    energy, first = vectors.double().square().sum(1), torch.arange(400) < WHOLE
    selector, selected = ExampleSelector(0.3), []
    for numbers in torch.arange(400).split(size):
        selected.append(selector.select(vectors[numbers], numbers))
        other = ExampleSelector(0.3)  # as after a break
        other.restore(*selector.state())
        selector = other
    assert torch.equal(torch.cat(selected), first | (energy >= 0.3 * energy[:WHOLE].mean()))
    selection = Selection.restored(*selector.finish_first_pass().state())
    expected = torch.cat(selected) | (energy >= 0.3 * energy.mean())
    assert torch.equal(selection.selected, expected)
    whole = torch.cat([torch.full_like(one, bool(one.all())) for one in selected])
    assert torch.equal(selection.deferred, whole)
    assert torch.equal(selection.select(vectors, torch.arange(400)), first | (energy >= 0.3 * energy.mean()))


@pytest.mark.parametrize(("dtype", "each"), [(torch.float32, 6), (torch.bfloat16, 6), (torch.float64, 10)])
def test_an_example_takes_a_few_bytes_in_blocks(dtype: torch.dtype, each: int) -> None:
    selector, numbers = ExampleSelector(0.1), torch.arange(3 * example_selection.BLOCK)
    before = {id(one) for one in gc.get_objects() if type(one) is Tensor}
    for part in numbers.split(1000):
        selector.select(torch.ones(len(part), 2, dtype=dtype), part)
    del part
    held = [one for one in gc.get_objects() if type(one) is Tensor and id(one) not in before]
    assert len(held) == 9  # three blocks each of energies and of what was selected and deferred
    assert sum(one.nbytes for one in held) == each * len(numbers)


def test_energies_that_float32_does_not_hold_do_not_hide_others() -> None:
    vectors = torch.full((300, 1), 1e19)
    vectors[::2] = 1e30
    selector = ExampleSelector(0.1)
    selector.select(vectors, torch.arange(300))
    selection = selector.finish_first_pass()
    assert math.isfinite(selection.mean)
    assert bool(selection.selected[::2].all())


def test_first_examples_that_are_unlike_the_others_do_not_hide_their_information() -> None:
    vectors = torch.randn(400, 3, generator=torch.Generator().manual_seed(0))
    vectors[WHOLE:] *= 0.01  # so that none of them has a tenth of the first ones' mean energy
    vectors = torch.cat([vectors, vectors[WHOLE:].repeat(2000, 1)])  # but together they have most of it
    selector = ExampleSelector(0.1)
    assert not bool(selector.select(vectors, torch.arange(len(vectors)))[WHOLE:].any())
    energy, selected = vectors.double().square().sum(1), selector.finish_first_pass().selected
    assert float(energy[~selected].sum()) < 0.1 * float(energy.sum())


def test_processes_agree_on_the_mean_of_all_of_their_first_examples() -> None:
    vectors, numbers = torch.randn(400, 3, generator=torch.Generator().manual_seed(0)).pow(5), torch.arange(400)
    alone = ExampleSelector(0.3).select(vectors, numbers)
    energy = vectors.double().square().sum(1)
    of_all = [(float(energy[rank:WHOLE:2].sum()), WHOLE // 2) for rank in range(2)]
    for rank in range(2):
        asked: list[tuple[float, int]] = []

        def gather(own: tuple[float, int], asked: list[tuple[float, int]] = asked) -> list[tuple[float, int]]:
            asked.append(own)
            return of_all

        selected = ExampleSelector(0.3, gather).select(vectors[rank::2], numbers[rank::2])
        assert torch.equal(selected, alone[rank::2])
        assert list(asked[0]) == pytest.approx(list(of_all[rank]))


@pytest.mark.parametrize("floor", [-0.1, 1.0, float("nan")])
def test_a_floor_that_is_no_share_is_an_error(floor: float) -> None:
    with pytest.raises(ValueError, match="basis_floor must be a share"):
        flat_laplace(sure_model(), "classification", basis_floor=floor)


@pytest.mark.parametrize("before", [2, 4, 5, 6, 8])
@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_a_fit_that_was_stopped_goes_on_with_the_same_choice(
    make: Callable[[], nn.Module], before: int, tmp_path: Path
) -> None:
    data = batches(90)
    whole = fit(make(), data)
    laplace = flat_laplace(make(), "classification", rank=12, prior="activation", seed=2)
    count = 0

    class Stopping(list[Any]):
        def __iter__(self) -> Any:
            nonlocal count
            for batch in data:
                if count == before:
                    count += 1
                    raise OSError("the disk is gone")
                count += 1
                yield batch

    with pytest.raises(OSError, match="disk"):
        laplace.fit(Stopping(data), checkpoint=tmp_path / "c", checkpoint_every=0, progress=False)
    again = flat_laplace(make(), "classification", rank=12, prior="activation", seed=2)
    again.fit(data, checkpoint=tmp_path / "c", checkpoint_every=0, progress=False)
    for name, layer in again.posterior(prior_precision=1.0).layers.items():
        assert torch.equal(layer.dense(), whole.posterior(prior_precision=1.0).layers[name].dense())
