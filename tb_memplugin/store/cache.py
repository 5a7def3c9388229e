"""A cache bounded by the bytes of what it holds."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class ByteCache(Generic[Value]):
    """Keeps the most recently used values up to `limit` bytes, and the newest even if it alone is larger.

    Not thread-safe.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._held: OrderedDict[Hashable, tuple[Hashable, Value, int]] = OrderedDict()

    def get(self, key: Hashable, mark: Hashable) -> Value | None:
        """The value under `key` if it was put with an equal `mark`."""
        entry = self._held.get(key)
        if entry is None or entry[0] != mark:
            return None
        self._held.move_to_end(key)
        return entry[1]

    def put(self, key: Hashable, mark: Hashable, value: Value, size: int) -> None:
        """Holds `value` of `size` bytes under `key`, in place of what was there."""
        self.drop(key)
        self._held[key] = (mark, value, size)
        self._size += size
        while self._size > self._limit and len(self._held) > 1:
            _, (_, _, freed) = self._held.popitem(last=False)
            self._size -= freed

    def drop(self, key: Hashable) -> None:
        """Forgets what is under `key`, if anything."""
        entry = self._held.pop(key, None)
        if entry is not None:
            self._size -= entry[2]

    @property
    def size(self) -> int:
        """Bytes held."""
        return self._size
