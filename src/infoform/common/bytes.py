"""Bytes: read from strings such as "48MB", written for people, and counted on this machine."""

import re
from pathlib import Path

import torch

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?\s*", re.IGNORECASE)


def read_bytes(memory: int | str) -> int:
    """Return a number of bytes, given as such or as a string: "48MB" (decimal), "1.5GB", "48MiB" (binary)."""
    if isinstance(memory, str):
        match = _SIZE.fullmatch(memory)
        value = 0 if match is None else int(float(match[1]) * _UNITS[(match[2] or "").lower()])
    else:
        value = memory if isinstance(memory, int) and not isinstance(memory, bool) else 0
    if value < 1:
        raise ValueError(
            f"memory must be a positive number of bytes, or a string such as '48MB' or '48MiB', got {memory!r}."
        )
    return value


def show_bytes(count: int) -> str:
    """Return a decimal size of about three digits, never less than it is."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            digits = 2 if count < 10 * size else 1 if count < 100 * size else 0
            tenth = size // 10**digits
            return f"{-(-count // tenth) / 10**digits:.{digits}f} {unit}"
    return f"{count} B"


def available_bytes(device: torch.device, *, meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Return the memory that is free for use on the device; None where it cannot be known."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type != "cpu":
        return None
    try:
        found = re.search(r"^MemAvailable:\s*(\d+) kB", meminfo.read_text(), re.MULTILINE)
    except OSError:
        return None
    return None if found is None else 1024 * int(found[1])
