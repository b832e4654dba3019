"""A setting of the whole process that several threads need: the first one sets it, the last one puts it back."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

SET, UNSET = True, False


class SharedSetting:
    """Holds one context open for as long as any thread is in it.

    Threads that need the setting run side by side, and so do threads that need it as it was; each group waits for the
    other. Those that do not care ask for nothing.

    Args:
        make: Makes the context, which changes a global setting and puts it back on leaving.
    """

    def __init__(self, make: Callable[[], AbstractContextManager[object]]) -> None:
        self._make = make
        self._changed = threading.Condition()
        self._users = {SET: 0, UNSET: 0}
        self._waiting = {SET: 0, UNSET: 0}
        self._next = SET  # whose turn it is, if both groups wait
        self._own = threading.local()  # what this thread has
        self._context: AbstractContextManager[object] | None = None

    def held(self) -> AbstractContextManager[None]:
        """Have the setting for the time of the block, whatever other threads do."""
        return self._having(SET)

    def unset(self) -> AbstractContextManager[None]:
        """Have no other thread change the setting for the time of the block; in a block that holds it, nothing."""
        return self._having(UNSET)

    @contextmanager
    def _having(self, which: bool) -> Iterator[None]:
        before: bool | None = getattr(self._own, "which", None)
        if before in (which, SET):
            yield
            return
        if before is not None:  # what this thread needs now, no thread can have while it keeps the other
            self._leave(before)
        self._enter(which)
        self._own.which = which
        try:
            yield
        finally:
            self._leave(which)
            if before is not None:
                self._enter(before)
            self._own.which = before

    def _enter(self, which: bool) -> None:
        other = not which
        with self._changed:
            self._waiting[which] += 1
            try:
                self._changed.wait_for(
                    lambda: not self._users[other] and (self._next == which or not self._waiting[other])
                )
                if which == SET and not self._users[SET]:
                    self._context = self._make()
                    self._context.__enter__()
                self._users[which] += 1
                self._next = other
            finally:
                self._waiting[which] -= 1
                self._changed.notify_all()

    def _leave(self, which: bool) -> None:
        with self._changed:
            self._users[which] -= 1
            try:
                if which == SET and not self._users[SET] and self._context is not None:
                    self._context.__exit__(None, None, None)
                    self._context = None
            finally:
                self._changed.notify_all()
