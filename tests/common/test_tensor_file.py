"""Tensors in a safetensors file: the format's own library reads them back, and the bytes are always the same."""

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from infoform.common.tensor_file import DTYPES, write_tensors


def sample(dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.arange(7 * 11).remainder(2).reshape(7, 11).to(dtype)[: shape[0], : shape[1]]


def test_the_library_of_the_format_reads_every_dtype_back(tmp_path: Path) -> None:
    tensors = {f"{name} {shape}": sample(dtype, shape) for dtype, name in DTYPES.items() for shape in ((7, 11), (3, 1))}
    tensors |= {
        "empty": torch.zeros(0, 3),
        "one": torch.randn(3, 4)[1:2, 1:2],
        "first": torch.randn(5, 3)[2:3, 1],
        "scalar": torch.tensor(2.5),
        "transposed": sample(torch.float32, (7, 5)).T,
    }
    write_tensors(tmp_path / "file", tensors, metadata={"ü": "ß\n", "a": ""})
    found = load_file(tmp_path / "file")
    assert found.keys() == tensors.keys()
    for name, one in tensors.items():
        assert found[name].dtype == one.dtype
        wide = torch.complex128 if one.is_complex() else torch.float64
        assert torch.equal(found[name].to(wide), one.to(wide))
    with safe_open(tmp_path / "file", framework="pt") as file:
        assert file.metadata() == {"ü": "ß\n", "a": ""}


def test_the_same_tensors_in_any_order_give_the_same_bytes(tmp_path: Path) -> None:
    tensors = {name: torch.randn(3) for name in "abc"}
    texts = {str(number): "text" for number in range(9)}
    write_tensors(tmp_path / "one", tensors, metadata=texts)
    write_tensors(tmp_path / "two", dict(reversed(tensors.items())), metadata=dict(reversed(texts.items())))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_tensors_that_share_memory_are_written_each(tmp_path: Path) -> None:
    one = torch.randn(4, 3)
    write_tensors(tmp_path / "file", {"whole": one, "same": one, "part": one[1:3]})
    found = load_file(tmp_path / "file")
    assert torch.equal(found["same"], one)
    assert torch.equal(found["part"], one[1:3])


def test_a_dtype_that_the_format_lacks_is_told(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="'a' has the dtype"):
        write_tensors(tmp_path / "file", {"a": torch.zeros(2, dtype=torch.complex128)})
    assert not list(tmp_path.iterdir())
