"""Catches Python objects just before the garbage collector moves them to its oldest generation.

A search of the young generations takes under a millisecond, one of all objects a hundred. What `Promotions` catches
need not be searched for again.
"""

import collections
import gc
import logging
import weakref
from collections.abc import Callable, Collection
from typing import Any

from tb_memplugin.recorder.observe.heap import objects_of

logger = logging.getLogger("tb_memplugin")

YOUNG = (0, 1)
"""Generations of the garbage collector that hold objects made recently."""
MAX_CAUGHT = 100_000
"""Most objects that are remembered until they are taken; the oldest go first."""


class Promotions:
    """Remembers weakly the objects that leave the young generations between `start` and `stop`.

    Args:
        kinds: Returns the classes of the objects to catch.
    """

    def __init__(self, kinds: Callable[[], Collection[type]]) -> None:
        self._kinds = kinds
        self._caught: collections.deque[Any] = collections.deque(maxlen=MAX_CAUGHT)  # weak references
        self._callback: Any = None

    def start(self) -> None:
        """Start to catch objects. Calling it again does nothing."""
        if self._callback is not None:
            return
        reference = weakref.WeakMethod(self._before_collection)

        def callback(phase: str, info: dict[str, int]) -> None:
            method = reference()
            if method is None:
                gc.callbacks.remove(callback)
            elif phase == "start" and info["generation"] >= YOUNG[-1]:
                method()

        self._callback = callback
        gc.callbacks.append(callback)

    def stop(self) -> None:
        """Stop to catch objects. Calling it again does nothing."""
        callback, self._callback = self._callback, None
        if callback in gc.callbacks:
            gc.callbacks.remove(callback)

    def take(self) -> list[Any]:
        """The objects caught since the last call that are alive."""
        caught = [self._caught.popleft()() for _ in range(len(self._caught))]
        return [item for item in caught if item is not None]

    def _before_collection(self) -> None:
        """Catch the young objects. Runs on the thread that caused the collection; never raises."""
        try:
            kinds = self._kinds()
            for generation in YOUNG:
                self._caught.extend(map(weakref.ref, objects_of(kinds, generation)))
        except Exception:
            logger.debug("objects that grow old could not be noted", exc_info=True)
