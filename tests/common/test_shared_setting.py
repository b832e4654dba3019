"""The first thread sets a shared setting, the last puts it back."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import bounded
from infoform.common.shared_setting import SharedSetting


def test_a_setting_lasts_until_the_last_thread_leaves() -> None:
    value: list[str] = ["as found"]

    @contextmanager
    def changed() -> Iterator[None]:
        value.append("set")
        yield
        value.append("put back")

    setting, in_both, first_left = SharedSetting(changed), threading.Barrier(2), threading.Event()

    def second() -> None:
        with setting.held():
            in_both.wait(60)
            assert first_left.wait(60)
            assert value[-1] == "set"

    thread = threading.Thread(target=second, daemon=True)
    thread.start()
    with setting.held():
        in_both.wait(60)
    assert value == ["as found", "set"]
    first_left.set()
    bounded.join(thread)
    assert value == ["as found", "set", "put back"]
    with pytest.raises(ZeroDivisionError), setting.held():
        _ = 1 / 0
    assert value[-2:] == ["set", "put back"]
