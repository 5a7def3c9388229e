"""What a reader and the handlers on top of it keep: one budget of bytes."""

import ctypes
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

_Value = TypeVar("_Value")
_LONG_SECONDS = 0.05
"""Work that takes less frees little."""


def give_back() -> None:
    """Have the C library give back what was freed. Only glibc can.

    It keeps what a thread freed for that thread, and each request has another one: without this,
    crafted directories take up to twice the memory that ``docs/development/reading_limits.md``
    states (548 MB instead of 257 MB)."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError, TypeError):  # another C library, or another system
        return


@contextmanager
def given_back() -> Iterator[None]:
    """Give back what was freed if the work inside takes long."""
    began = time.monotonic()
    try:
        yield
    finally:
        if time.monotonic() - began > _LONG_SECONDS:
            give_back()


class ByteCache:
    """Keeps the most recently used values up to `limit` bytes together; a larger one is not kept.
    Thread-safe."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._entries: OrderedDict[Hashable, tuple[Hashable, Any, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, mark: Hashable) -> Any:
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or entry[0] != mark:
                return None
            self._entries.move_to_end(key)
            return entry[1]

    def put(self, key: Hashable, mark: Hashable, value: Any, size: int) -> None:
        with self._lock:
            _, _, old = self._entries.pop(key, (None, None, 0))
            self._size -= old
            if size > self._limit:
                return
            while self._entries and self._size + size > self._limit:
                _, (_, _, freed) = self._entries.popitem(last=False)
                self._size -= freed
            self._entries[key] = (mark, value, size)
            self._size += size

    def computed(
        self, key: Hashable, mark: Hashable, compute: Callable[[], tuple[_Value, int]]
    ) -> _Value:
        """The value of `key` at `mark`; if it is not there, `compute` returns it and its bytes in
        memory."""
        known: _Value | None = self.get(key, mark)
        if known is None:
            known, size = compute()
            self.put(key, mark, known, size)
        return known

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self._size = 0
        give_back()

    @property
    def size(self) -> int:
        return self._size
