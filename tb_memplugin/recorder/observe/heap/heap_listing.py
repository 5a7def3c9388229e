"""Lists Python objects by class without disturbing other threads, and catches them as they grow old."""

import collections
import gc
import logging
import weakref
from collections.abc import Callable, Collection, Iterator
from itertools import chain, compress
from typing import Any


def objects_of(kinds: Collection[type], generation: int | None = None) -> list[Any]:
    """Objects of exactly these classes (no subclasses) that Python's garbage collector tracks.

    The collector also lists tuples that another thread is filling at this moment. `tuple(generator)` raises SystemError
    if something else refers to its tuple, so the collector's list must be gone before another thread can run. Therefore
    one call of C code gets the list, goes through it and drops it: the interpreter switches threads only between its
    own instructions. A loop or a comprehension would not do.

    Args:
        kinds: Classes, without `tuple`.
        generation: Generation of the collector, None for all.

    Raises:
        ValueError: `kinds` contains `tuple`.
    """
    if tuple in kinds:
        raise ValueError("objects_of cannot list tuples: another thread may be filling one. Pass other classes.")
    wanted = frozenset(map(id, kinds))
    objects: list[Any] = []
    # `extend` and `__delitem__` return None, which `filter` drops: these two iterators yield nothing.
    fill: Iterator[Any] = filter(None, map(objects.extend, map(gc.get_objects, (generation,))))
    empty: Iterator[Any] = filter(None, map(objects.__delitem__, (slice(None),)))
    is_wanted = map(wanted.__contains__, map(id, map(type, objects)))
    return list(compress(chain(fill, objects, empty), is_wanted))


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
