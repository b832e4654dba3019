"""All passes of a fit see the same data in the same order, or the fit says that they did not."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, get_worker_info

from infoform import Laplace
from infoform.common.randomness import isolated

X, Y = torch.randn(24, 3, generator=torch.Generator().manual_seed(1)), torch.arange(24) % 2


def _model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def _fitted(loader: object) -> Tensor:
    laplace = Laplace(_model(), "classification", structure="inf", seed=3).fit(loader, progress=False)  # type: ignore[arg-type]
    return laplace.posterior().layers["0"].dense()


class Restless(Dataset[tuple[Tensor, Tensor]]):
    """Adds noise of a generator of its own, as a transform may; the first examples are always the same."""

    def __init__(self, still: int) -> None:
        self.still, self.generator = still, torch.Generator().manual_seed(5)

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        noise = torch.randn(3, generator=self.generator) if index >= self.still else torch.zeros(3)
        return X[index] + noise, Y[index]


class Stream(IterableDataset[tuple[Tensor, Tensor]]):
    """Gives the examples one after the other, and does not know how many they are."""

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(zip(X, Y, strict=True))


@pytest.mark.parametrize("own_generator", [False, True])
def test_persistent_workers_shuffle_in_the_same_order_in_every_pass(own_generator: bool) -> None:
    def loader(persistent: bool) -> DataLoader[tuple[Tensor, ...]]:
        generator = torch.Generator().manual_seed(7) if own_generator else None
        return DataLoader(
            TensorDataset(X, Y),
            5,
            shuffle=True,
            num_workers=1,
            timeout=60,
            persistent_workers=persistent,
            generator=generator,
        )

    def order(one: DataLoader[tuple[Tensor, ...]]) -> Tensor:
        with isolated(3, loader=one):
            return torch.cat([batch[0] for batch in one])

    started = loader(persistent=True)
    first = order(started)
    assert torch.equal(first, order(started))
    assert torch.equal(first, order(loader(persistent=False)))
    assert not torch.equal(first, X)


def test_a_fit_with_persistent_workers_is_that_without_them() -> None:
    data = TensorDataset(X, Y)
    persistent = DataLoader(data, 5, shuffle=True, num_workers=1, timeout=60, persistent_workers=True)
    expected = _fitted(DataLoader(data, 5, shuffle=True))
    assert torch.equal(_fitted(persistent), expected)
    assert torch.equal(_fitted(persistent), expected)  # whose workers are there already


@pytest.mark.parametrize(
    ("still", "said"), [(0, "in pass 2 the first batch is another"), (5, "the first 2 batches are others")]
)
def test_a_loader_with_randomness_of_its_own_is_an_error(still: int, said: str) -> None:
    with pytest.raises(ValueError, match=f"the same data in the same order in every pass.*{said}"):
        _fitted(DataLoader(Restless(still), 5))


def test_a_difference_in_the_last_batch_alone_is_an_error() -> None:
    with pytest.raises(ValueError, match="in pass 2 some of the 5 batches are others"):
        _fitted(DataLoader(Restless(20), 5))


def test_one_pass_takes_any_data() -> None:
    laplace = Laplace(_model(), "classification", structure="diag")
    laplace.fit(DataLoader(Restless(0), 5), progress=False)
    assert laplace.num_data == len(X)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_stream_of_unknown_length_is_fitted_and_predicted_as_the_same_data_in_a_list(workers: int) -> None:
    stream = DataLoader(Stream(), 5, num_workers=workers, timeout=60 * workers)
    listed = [(X[start : start + 5], Y[start : start + 5]) for start in range(0, 24, 5)]
    assert torch.equal(_fitted(stream), _fitted(listed))
    laplace = Laplace(_model(), "classification").fit(stream, progress=True)
    predicted, targets = laplace.predict_loader(stream, progress=True)
    expected, _ = laplace.predict_loader(listed, progress=False)
    assert torch.equal(predicted.value, expected.value)
    assert torch.equal(targets, Y)  # type: ignore[arg-type]
    laplace.tune(stream, progress=True)
    laplace.calibrate_novelty(stream, progress=True)


class SharedStream(Stream):
    """Gives every worker examples of its own."""

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        info = get_worker_info()
        assert info is not None
        yield from list(zip(X, Y, strict=True))[info.id :: info.num_workers]


class ConstantStream(IterableDataset[tuple[Tensor, Tensor]]):
    """Gives another number of equal examples to every worker."""

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        info = get_worker_info()
        assert info is not None
        for _ in range(4 + 3 * info.id):
            yield X[0], Y[0]


@pytest.mark.parametrize("size", [2, 5, 24, 100])
def test_workers_that_all_give_the_same_examples_are_refused(size: int) -> None:
    loader = DataLoader(Stream(), size, num_workers=2, timeout=60)
    with pytest.raises(ValueError, match="each of the loader's 2 workers must give examples of its own"):
        _fitted(loader)


def test_workers_that_share_a_stream_out_count_every_example_once() -> None:
    loader = DataLoader(SharedStream(), 4, num_workers=2, timeout=60)
    laplace = Laplace(_model(), "classification", structure="inf", seed=3).fit(loader, progress=False)
    assert laplace.num_data == len(X)
    assert torch.equal(laplace.posterior().layers["0"].dense(), _fitted(list(loader)))


def test_workers_with_equal_examples_and_unequal_numbers_of_them_are_not_refused() -> None:
    loader = DataLoader(ConstantStream(), 2, num_workers=2, timeout=60)
    assert Laplace(_model(), "classification", seed=3).fit(loader, progress=False).num_data == 11
