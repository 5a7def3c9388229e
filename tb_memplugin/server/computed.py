"""Answers that take seconds to compute."""

import threading
from collections.abc import Callable, Hashable
from typing import Any

from tb_memplugin.reader.cache import ByteCache


class Computed:
    """Answers that are computed one at a time, each only once. Thread-safe.

    One at a time does not slow down the other routes more than one does. A cached answer does not wait for it.

    Args:
        cache: Keeps the answers.
    """

    _computing = threading.Lock()

    def __init__(self, cache: ByteCache) -> None:
        self._cache = cache

    def get(self, key: Hashable, version: Hashable, compute: Callable[[], tuple[Any, int]]) -> Any:
        """The answer at a version of its run.

        Args:
            key, version: Of the answer.
            compute: Returns the answer and its estimated bytes in memory.
        """
        known = self._cache.get(key, version)
        if known is not None:
            return known
        with self._computing:
            known = self._cache.get(key, version)  # another thread may have computed it meanwhile
            if known is None:
                known, size = compute()
                self._cache.put(key, version, known, size)
        return known
