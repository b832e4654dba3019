"""The first thread sets a shared setting, the last puts it back."""

import threading
import time
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


def test_threads_that_need_it_as_found_wait_for_those_that_set_it() -> None:
    value = ["as found"]

    @contextmanager
    def changed() -> Iterator[None]:
        value[0] = "set"
        yield
        value[0] = "as found"

    setting, wrong = SharedSetting(changed), list[str]()

    def work(number: int) -> None:
        for turn in range(60):
            with setting.held() if (number + turn) % 2 else setting.unset():
                wanted = "set" if (number + turn) % 2 else "as found"
                for _ in range(3):
                    wrong.extend([] if value[0] == wanted else [wanted])
                    time.sleep(1e-5)

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(6)]
    for thread in threads:
        thread.start()
    bounded.join(*threads)
    assert not wrong
    assert value == ["as found"]


def test_a_thread_may_set_it_inside_of_a_block_that_needs_it_as_found() -> None:
    value = ["as found"]

    @contextmanager
    def changed() -> Iterator[None]:
        value[0] = "set"
        yield
        value[0] = "as found"

    setting, both = SharedSetting(changed), threading.Barrier(2)

    def work() -> None:
        with setting.unset():
            assert value == ["as found"]
            both.wait(60)  # each has it as found when the other wants to set it
            with setting.held():
                assert value == ["set"]
                with setting.unset():  # what is inside of a block that sets it takes it so
                    assert value == ["set"]
            assert value == ["as found"]

    other = threading.Thread(target=work, daemon=True)
    other.start()
    work()
    bounded.join(other)
    assert value == ["as found"]
