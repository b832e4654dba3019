"""The loaders of images: facts of the real files, and the other layouts on small files written here."""

import gzip
import os
import pickle
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.io import savemat  # type: ignore[import-untyped]

from infoform.data import DATA_SETS, cifar10, images, mnist, notmnist, svhn

needs_data = pytest.mark.skipif(
    "INFOFORM_DATA" not in os.environ and "CI" not in os.environ, reason="needs the folder INFOFORM_DATA"
)
Bytes = NDArray[np.uint8]


def some_bytes(*shape: int) -> Bytes:
    return np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)


def write_idx(path: Path, values: Bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = b"\0\0\x08" + bytes([values.ndim]) + np.array(values.shape, dtype=">u4").tobytes() + values.tobytes()
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)


def write_mnist(root: Path, part: str, pixels: Bytes, labels: Bytes, end: str = "") -> None:
    write_idx(root / "MNIST" / "raw" / f"{part}-images-idx3-ubyte{end}", pixels)
    write_idx(root / "MNIST" / "raw" / f"{part}-labels-idx1-ubyte{end}", labels)


@needs_data
def test_mnist_has_its_published_size_mean_and_deviation() -> None:
    train, test = mnist.load("train"), mnist.load("test")
    assert train.pixels.shape == (60_000, 1, 28, 28)
    assert test.pixels.shape == (10_000, 1, 28, 28)
    values = train.pixels.double() / 255
    assert float(values.mean()) == pytest.approx(mnist.MEAN[0], abs=5e-5)
    assert float(values.std()) == pytest.approx(mnist.STD[0], abs=5e-5)
    assert train.labels.unique().tolist() == list(range(10))


@needs_data
def test_notmnist_has_as_many_of_every_letter() -> None:
    letters = notmnist.load()
    assert letters.pixels.shape == (18_724, 1, 28, 28)
    assert set(letters.labels.bincount().tolist()) == {1872, 1873}


@needs_data
def test_svhn_is_of_colour_digits() -> None:
    digits = svhn.load()
    assert digits.pixels.shape == (5000, 3, 32, 32)
    assert digits.labels.unique().tolist() == list(range(10))


def test_every_set_of_images_is_in_the_table() -> None:
    for name in ("mnist", "notmnist", "cifar10", "svhn"):
        assert callable(import_module(DATA_SETS[name]).load)


@pytest.mark.parametrize("end", ["", ".gz"])
def test_mnist_reads_torchvisions_layout(tmp_path: Path, end: str) -> None:
    pixels, labels = some_bytes(3, 28, 28), np.array([4, 0, 9], dtype=np.uint8)
    write_mnist(tmp_path, "t10k", pixels, labels, end)
    found = mnist.load("test", root=tmp_path)
    assert torch.equal(found.pixels[:, 0], torch.tensor(pixels))
    assert found.labels.tolist() == [4, 0, 9]


def test_a_cut_idx_file_is_refused(tmp_path: Path) -> None:
    write_mnist(tmp_path, "train", some_bytes(3, 28, 28), some_bytes(3))
    path = tmp_path / "MNIST" / "raw" / "train-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="whole idx file"):
        mnist.load("train", root=tmp_path)


def test_cifar10_is_the_same_from_npz_and_from_batches(tmp_path: Path) -> None:
    pixels, labels = some_bytes(10, 32, 32, 3), some_bytes(10) % 10
    arrays = {"train_images": pixels, "train_labels": labels, "test_images": pixels[:2], "test_labels": labels[:2]}
    np.savez(tmp_path / "cifar10.npz", **arrays)  # type: ignore[arg-type]
    folder = tmp_path / "torchvision" / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    flat = pixels.transpose(0, 3, 1, 2).reshape(10, -1)
    for number in range(5):
        part = slice(2 * number, 2 * number + 2)
        batch = {b"data": flat[part], b"labels": labels[part].tolist()}
        (folder / f"data_batch_{number + 1}").write_bytes(pickle.dumps(batch, protocol=2))
    one, other = cifar10.load("train", root=tmp_path), cifar10.load("train", root=tmp_path / "torchvision")
    assert torch.equal(one.pixels, other.pixels)
    assert torch.equal(one.labels, other.labels)
    assert torch.equal(one.pixels, torch.tensor(pixels).permute(0, 3, 1, 2))
    assert len(cifar10.load("test", root=tmp_path)) == 2


def test_a_batch_that_would_run_code_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    (folder / "test_batch").write_bytes(pickle.dumps({b"data": os.getcwd}, protocol=2))
    with pytest.raises(pickle.UnpicklingError, match="arrays only"):
        cifar10.load("test", root=tmp_path)


def test_svhn_reads_the_mat_file_and_calls_ten_zero(tmp_path: Path) -> None:
    pixels = some_bytes(32, 32, 3, 4)
    savemat(tmp_path / "test_32x32.mat", {"X": pixels, "y": np.array([[10], [1], [9], [10]])})
    found = svhn.load(root=tmp_path)
    assert found.labels.tolist() == [0, 1, 9, 0]
    assert torch.equal(found.pixels, torch.tensor(pixels).permute(3, 2, 0, 1))


def test_notmnist_reads_its_authors_mat_file(tmp_path: Path) -> None:
    pixels = some_bytes(28, 28, 4)
    savemat(tmp_path / "notMNIST_small.mat", {"images": pixels.astype(float), "labels": np.arange(4.0)})
    found = notmnist.load(root=tmp_path)
    assert torch.equal(found.pixels[:, 0], torch.tensor(pixels).permute(2, 0, 1))
    assert found.labels.tolist() == [0, 1, 2, 3]


def test_the_folder_of_the_environment_is_looked_in_before_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, name in enumerate(("data", "cache")):
        write_mnist(tmp_path / name, "train", some_bytes(1, 28, 28), np.array([number], dtype=np.uint8))
    monkeypatch.setattr(images, "CACHE", tmp_path / "cache")
    monkeypatch.setenv("INFOFORM_DATA", str(tmp_path / "data"))
    assert mnist.load("train").labels.tolist() == [0]
    monkeypatch.delenv("INFOFORM_DATA")
    assert mnist.load("train").labels.tolist() == [1]


def test_missing_data_are_reported_with_the_places_and_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"cifar10\.npz.*fetch-cifar10"):
        cifar10.load("train", root=tmp_path)
    with pytest.raises(FileNotFoundError, match="INFOFORM_DATA"):
        mnist.load("train", root=tmp_path)
    with pytest.raises(FileNotFoundError, match="INFOFORM_DATA"):
        svhn.load(root=tmp_path)


def test_another_part_than_train_and_test_is_refused() -> None:
    with pytest.raises(ValueError, match="'train' or 'test', got 'val'"):
        mnist.load("val")


def test_download_asks_torchvision_and_reads_what_it_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download_mnist(root: str, *, train: bool, download: bool) -> None:
        assert download
        write_mnist(Path(root), "train" if train else "t10k", some_bytes(2, 28, 28), some_bytes(2) % 10)

    fake = ModuleType("torchvision")
    monkeypatch.setitem(sys.modules, "torchvision", fake)
    monkeypatch.setitem(sys.modules, "torchvision.datasets", SimpleNamespace(MNIST=download_mnist))
    assert len(mnist.load("test", root=tmp_path, download=True)) == 2


def test_download_without_torchvision_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(ImportError, match="pip install torchvision"):
        mnist.load("test", root=tmp_path, download=True)


def test_scaled_pixels_are_standardised_by_channel() -> None:
    pixels = torch.tensor(some_bytes(5, 3, 4, 4))
    mean, std = (0.1, 0.2, 0.3), (0.5, 1.0, 2.0)
    scaled = images.Images(pixels, torch.zeros(5, dtype=torch.long)).scaled(mean, std)
    for channel in range(3):
        expected = (pixels[:, channel] / 255 - mean[channel]) / std[channel]
        torch.testing.assert_close(scaled[:, channel], expected)
