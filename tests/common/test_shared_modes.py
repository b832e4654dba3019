"""Threads of one mode run side by side, those of another wait, and the settings are put back at the end."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest

import bounded
from infoform.common.shared_modes import SharedModes


def modes_of(value: list[str]) -> SharedModes:
    @contextmanager
    def changed(name: str) -> Iterator[None]:
        assert value == ["as found"]
        value[0] = name
        yield
        value[0] = "as found"

    return SharedModes({"as found": nullcontext, "some": lambda: changed("some"), "more": lambda: changed("more")})


def test_threads_of_one_mode_are_in_it_at_once() -> None:
    value = ["as found"]
    modes, in_both = modes_of(value), threading.Barrier(2)

    def work() -> None:
        with modes.held("some"):
            in_both.wait(60)
            assert value == ["some"]

    other = threading.Thread(target=work, daemon=True)
    other.start()
    work()
    bounded.join(other)
    assert value == ["as found"]


def test_threads_of_other_modes_wait() -> None:
    value, wrong = ["as found"], list[str]()
    modes, names = modes_of(value), ("as found", "some", "more")

    def work(number: int) -> None:
        for turn in range(60):
            name = names[(number + turn) % 3]
            with modes.held(name):
                for _ in range(3):
                    wrong.extend([] if value[0] == name else [name])
                    time.sleep(1e-5)

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(6)]
    for thread in threads:
        thread.start()
    bounded.join(*threads)
    assert not wrong
    assert value == ["as found"]


def test_inside_of_a_mode_less_is_the_same_and_more_is_had_for_the_time() -> None:
    value = ["as found"]
    modes, both = modes_of(value), threading.Barrier(2)

    def work() -> None:
        with modes.held("some"):
            with modes.held("as found"):
                assert value == ["some"]
            both.wait(60)  # each has one mode when the other wants another
            with modes.held("more"):
                assert value == ["more"]
                with modes.held("some"):
                    assert value == ["more"]
            assert value == ["some"]

    other = threading.Thread(target=work, daemon=True)
    other.start()
    work()
    bounded.join(other)
    assert value == ["as found"]


def test_an_error_puts_the_settings_back() -> None:
    value = ["as found"]
    modes = modes_of(value)
    with pytest.raises(ZeroDivisionError), modes.held("some"):
        _ = 1 / 0
    assert value == ["as found"]
    with modes.held("more"):
        assert value == ["more"]
