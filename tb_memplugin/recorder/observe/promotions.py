"""Catches Python objects just before the garbage collector moves them to its oldest generation.

A search of the young generations takes under a millisecond, one of all objects a hundred. What `Promotions` catches
need not be searched for again.

The objects are listed when a collection is about to start. Another thread may run between the list and the collection,
and an object that it makes then grows old uncaught. TensorFlow numbers its tensors in the order in which they are made,
so equal numbers before and after show that none was made.
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

    Attributes:
        misses: Times at which objects may have grown old uncaught, `start` included.

    Args:
        kinds: Returns the classes of the objects to catch.
        next_number: Returns a number that is one higher at each call, and one more for each object made in between.
    """

    def __init__(self, kinds: Callable[[], Collection[type]], next_number: Callable[[], int]) -> None:
        self.misses = 0
        self._kinds = kinds
        self._next_number = next_number
        self._number: int | None = None  # before the list was made
        self._caught: collections.deque[Any] = collections.deque(maxlen=MAX_CAUGHT)  # weak references
        self._callback: Any = None

    def start(self) -> None:
        """Start to catch objects. Calling it again does nothing."""
        if self._callback is not None:
            return
        self.misses += 1
        reference = weakref.WeakMethod(self._collection)

        def callback(phase: str, info: dict[str, int]) -> None:
            method = reference()
            if method is None:
                gc.callbacks.remove(callback)
            elif info["generation"] >= YOUNG[-1]:
                method(phase)

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

    def _collection(self, phase: str) -> None:
        """Catch the young objects before a collection. Runs on the thread that caused it; never raises."""
        try:
            if phase == "start":
                self._number = self._next_number()
                self._catch()
            else:
                number, self._number = self._number, None
                self.misses += number is None or self._next_number() != number + 1
        except Exception:
            self._number = None
            logger.debug("objects that grow old could not be noted", exc_info=True)

    def _catch(self) -> None:
        kinds = self._kinds()
        for generation in YOUNG:
            self._caught.extend(map(weakref.ref, objects_of(kinds, generation)))
        self.misses += len(self._caught) == self._caught.maxlen
