"""A least-recently-used cache with a limit in bytes."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class ByteCache(Generic[Value]):
    """Keeps the most recently used values up to `limit` bytes, and the newest even if it is larger.

    Not thread-safe.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._entries: OrderedDict[Hashable, tuple[Hashable, Value, int]] = OrderedDict()

    def get(self, key: Hashable, mark: Hashable) -> Value | None:
        """The value of `key` if it was put with an equal `mark`, else None."""
        entry = self._entries.get(key)
        if entry is None or entry[0] != mark:
            return None
        self._entries.move_to_end(key)
        return entry[1]

    def put(self, key: Hashable, mark: Hashable, value: Value, size: int) -> None:
        """Store `value` of `size` bytes under `key`; replaces an old value."""
        self.drop(key)
        self._entries[key] = (mark, value, size)
        self._size += size
        while self._size > self._limit and len(self._entries) > 1:
            self._drop_oldest()

    def make_room(self, size: int) -> None:
        """Remove the values that were not used for longest until `size` more bytes stay within the limit, or all."""
        while self._entries and self._size + size > self._limit:
            self._drop_oldest()

    def drop(self, key: Hashable) -> None:
        """Remove `key`, if present."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._size -= entry[2]

    def _drop_oldest(self) -> None:
        _, (_, _, freed) = self._entries.popitem(last=False)
        self._size -= freed

    @property
    def size(self) -> int:
        """Bytes of all values."""
        return self._size
