"""Sizes in bytes, read and written."""

from pathlib import Path

import pytest
import torch

from infoform.common.bytes import available_bytes, read_bytes, show_bytes


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        (700, 700),
        ("700", 700),
        ("700B", 700),
        ("700kB", 700_000),
        ("48MB", 48_000_000),
        ("48 mb", 48_000_000),
        ("1.5GB", 1_500_000_000),
        ("48MiB", 48 * 2**20),
        ("2GiB", 2 * 2**30),
        ("1TB", 10**12),
    ],
)
def test_sizes_are_read_as_people_write_them(memory: int | str, expected: int) -> None:
    assert read_bytes(memory) == expected


@pytest.mark.parametrize("memory", ["", "MB", "48 miles", "-1MB", "0", 0, -5, True, 1.5, None, "1e3"])
def test_what_is_no_size_is_an_error_with_an_example(memory: object) -> None:
    with pytest.raises(ValueError, match=r"such as '48MB' or '48MiB', got"):
        read_bytes(memory)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (48_000_000, "48.0 MB"),
        (1_234_567, "1.24 MB"),
        (10**11, "100 GB"),
    ],
)
def test_sizes_are_shown_with_three_digits_and_never_too_small(count: int, expected: str) -> None:
    assert show_bytes(count) == expected


def test_available_memory_is_read_or_unknown(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    cpu = torch.device("cpu")
    assert available_bytes(cpu, meminfo=meminfo) is None
    meminfo.write_text("MemTotal: 9 kB\nMemAvailable:       5 kB\n")
    assert available_bytes(cpu, meminfo=meminfo) == 5 * 1024
    meminfo.write_text("MemTotal: 9 kB\n")
    assert available_bytes(cpu, meminfo=meminfo) is None
    assert available_bytes(torch.device("meta"), meminfo=meminfo) is None
