"""A file is there as a whole or not at all, and what a killed process leaves is swept up."""

import errno
import os
import signal
from pathlib import Path

import pytest

import bounded
from full_disks import full_disk, read_only
from infoform.common.whole_files import NotWritten, sweep, write_bytes, write_text, writing


def killed_while_writing(path: Path) -> None:
    def write_half() -> None:
        with writing(path) as file:
            file.write(b"half")
            file.flush()
            os.kill(os.getpid(), signal.SIGKILL)

    assert bounded.end_of(bounded.fork(write_half)) == -signal.SIGKILL


def test_a_file_is_written_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_text(path, "ä\n")
    write_bytes(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_has_the_permissions_of_any_other(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "file", "")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_text(path, "old")
    with pytest.raises(TypeError, match="bytes-like"), writing(path) as file:
        file.writelines([b"new", "text"])  # type: ignore[list-item]
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("size", [0, 1000, 99_999])
def test_a_full_disk_is_told_with_the_path_and_leaves_the_old_file(tmp_path: Path, size: int) -> None:
    path = tmp_path / "file"
    write_text(path, "old")
    with full_disk(size), pytest.raises(NotWritten, match=f"'{path}' cannot be written: File too large; what was") as e:
        write_bytes(path, bytes(100_000))
    assert e.value.errno == errno.EFBIG
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_read_only_folder_is_told_with_the_path(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with read_only(folder), pytest.raises(NotWritten, match="file' cannot be written: Permission denied"):
        write_text(folder / "file", "new")


def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing' does not exist; create it"):
        write_text(tmp_path / "missing" / "file", "new")


def test_a_folder_in_the_place_of_the_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    with pytest.raises(NotWritten, match="cannot be written: Is a directory"):
        write_text(tmp_path / "file", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_kill_leaves_the_old_file_and_the_next_write_sweeps_up(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_text(path, "old")
    killed_while_writing(path)
    assert path.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 2
    write_text(path, "new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_sweeping_leaves_what_is_being_written_and_what_others_own(tmp_path: Path) -> None:
    others = [tmp_path / name for name in (".file.tmp", ".file.infoform-tmp", "file", "x.0123456789ab.infoform-tmp")]
    for other in others:
        other.write_text("theirs")
    (tmp_path / ".link.0123456789ab.infoform-tmp").symlink_to(tmp_path / "file")
    killed_while_writing(tmp_path / "other")
    with writing(tmp_path / "mine") as file:
        file.write(b"1")
        removed = sweep(tmp_path)
        file.write(b"2")
    assert [path.name.split(".")[1] for path in removed] == ["other"]
    assert (tmp_path / "mine").read_text() == "12"
    assert all(other.read_text() == "theirs" for other in others)


def test_a_file_that_is_swept_before_its_lock_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    lock = fcntl.flock
    swept: list[Path] = []

    def late(file: object, how: int) -> None:
        if not swept:
            swept.append(next(tmp_path.iterdir()))
            swept[0].unlink()
        lock(file, how)  # type: ignore[arg-type]

    monkeypatch.setattr(fcntl, "flock", late)
    write_text(tmp_path / "file", "new")
    assert (tmp_path / "file").read_text() == "new"


def test_a_link_in_the_place_of_the_file_is_replaced_and_its_target_left(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("theirs")
    (tmp_path / "file").symlink_to(tmp_path / "precious")
    write_text(tmp_path / "file", "new")
    assert (tmp_path / "precious").read_text() == "theirs"
    assert (tmp_path / "file").read_text() == "new"


def test_a_device_is_written_to(tmp_path: Path) -> None:
    write_text("/dev/null", "new")
    assert Path("/dev/null").is_char_device()
