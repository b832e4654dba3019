"""A setting of the whole process that several threads need: the first one sets it, the last one puts it back."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager


class SharedSetting:
    """Holds one context open for as long as any thread is in it.

    Args:
        make: Makes the context, which changes a global setting and puts it back on leaving.
    """

    def __init__(self, make: Callable[[], AbstractContextManager[object]]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._users = 0
        self._context: AbstractContextManager[object] | None = None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Have the setting for the time of the block, whatever other threads do."""
        with self._lock:
            if self._users == 0:
                self._context = self._make()
                self._context.__enter__()
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0 and self._context is not None:
                    self._context.__exit__(None, None, None)
                    self._context = None
