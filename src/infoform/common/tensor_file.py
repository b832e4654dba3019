"""A safetensors file, written with the same bytes for the same tensors and metadata.

The library of that name reads these files; written by it, the metadata have another order at every save, and what it
writes aside has a name of its own, which nobody sweeps up after a kill.
"""

import json
import os
from collections.abc import Mapping

import torch
from torch import Tensor

from infoform.common.whole_files import writing

DTYPES = {  # what the format calls them
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.complex64: "C64",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
ALIGNED = 8  # bytes to a multiple of which the header is filled up


def write_tensors(
    path: str | os.PathLike[str], tensors: Mapping[str, Tensor], *, metadata: Mapping[str, str] | None = None
) -> None:
    """Write a file that is there as a whole or not at all.

    Args:
        path: The file.
        tensors: By name; their values are written as they lie in memory, without a copy of all of them.
        metadata: Texts by name.

    Raises:
        TypeError: A tensor has a dtype that the format does not know.
        NotWritten: The file could not be written; an older one is as it was.
    """
    # the largest numbers first, so that each tensor begins at a multiple of the size of its numbers
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header: dict[str, object] = {"__metadata__": dict(sorted(metadata.items()))} if metadata else {}
    end = 0
    for name in names:
        one = tensors[name]
        if one.dtype not in DTYPES:
            raise TypeError(f"'{name}' has the dtype {one.dtype}, which safetensors files cannot hold; cast it.")
        begin, end = end, end + one.numel() * one.element_size()
        header[name] = {"dtype": DTYPES[one.dtype], "shape": list(one.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % ALIGNED)
    with writing(path) as file:
        file.write(len(text).to_bytes(ALIGNED, "little"))
        file.write(text)
        for name in names:
            file.write(tensor_bytes(tensors[name]))


def tensor_bytes(tensor: Tensor) -> memoryview:
    """Return the bytes of a tensor's numbers, row by row; a view of its memory where they lie so."""
    plain = tensor.detach().cpu().contiguous()
    # one number may have any stride, and passes for contiguous with it
    return plain.as_strided((plain.numel(),), (1,)).view(torch.uint8).numpy().data
