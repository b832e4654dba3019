"""Settings of the whole process of which threads need one or another: threads of one mode run side by side."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager


class SharedModes:
    """Has the process in one mode at a time, for as long as threads are in it; others wait, first come, first served.

    Args:
        modes: For each mode what makes its context, which changes global settings and puts them back on leaving. A mode
            that is asked for inside of a later one of these is that later one: it asks for less.
    """

    def __init__(self, modes: Mapping[str, Callable[[], AbstractContextManager[object]]]) -> None:
        self._make = dict(modes)
        self._order = list(modes)
        self._changed = threading.Condition()
        self._mode: str | None = None
        self._users = 0
        self._waiting: list[object] = []  # one object for each thread, in the order in which they came
        self._own = threading.local()  # the mode that this thread has
        self._context: AbstractContextManager[object] | None = None

    @contextmanager
    def held(self, mode: str) -> Iterator[None]:
        """Have the process in a mode for the time of the block, whatever other threads do."""
        before: str | None = getattr(self._own, "mode", None)
        if before is not None and self._order.index(mode) <= self._order.index(before):
            yield
            return
        if before is not None:  # two threads that both kept it would wait for each other
            self._leave()
        self._enter(mode)
        try:
            yield
        finally:
            self._leave()
            if before is not None:
                self._enter(before)

    def _enter(self, mode: str) -> None:
        with self._changed:
            ticket = object()
            self._waiting.append(ticket)
            try:
                self._changed.wait_for(lambda: self._waiting[0] is ticket and (self._users == 0 or self._mode == mode))
                if self._users == 0:
                    self._context = self._make[mode]()
                    self._context.__enter__()
                self._mode, self._users, self._own.mode = mode, self._users + 1, mode
            finally:
                self._waiting.remove(ticket)
                self._changed.notify_all()

    def _leave(self) -> None:
        with self._changed:
            self._users, self._own.mode = self._users - 1, None
            try:
                if self._users == 0 and self._context is not None:
                    self._context.__exit__(None, None, None)
                    self._context = None
            finally:
                self._changed.notify_all()
