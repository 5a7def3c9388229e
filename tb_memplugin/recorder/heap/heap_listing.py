"""Lists Python objects by class without disturbing other threads, and catches them as they grow old."""

import collections
import gc
import logging
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain, compress, repeat, starmap
from operator import is_not
from typing import Any

logger = logging.getLogger("tb_memplugin")

YOUNG = (0, 1)
"""Generations of the garbage collector that hold objects made recently."""
MAX_CAUGHT = 100_000
"""Most objects that are remembered until they are taken; the oldest go first."""


def objects_of(kinds: Collection[type], generation: int | None = None) -> list[Any]:
    """Objects of exactly these classes (no subclasses) that Python's garbage collector tracks; of all generations, or
    one.

    The collector also lists tuples that another thread is filling at this moment. `tuple(generator)` raises SystemError
    if something else refers to its tuple, so no thread may run from the listing until the tuples are dropped. Threads
    switch between the interpreter's own instructions, so neither may run in between: Python code, nor anything that can
    run Python code. That excludes `id`, which calls the audit hooks, the classes' own `__hash__`, `__eq__` and
    `__class__`, and every new object that the collector tracks: it may start a collection, and with it finalizers.

    Therefore one call of C code lists the objects, leaves out the tuples, and drops the list. What follows in the same
    call, choosing the classes, may start a collection before Python 3.12: `object.__hash__` is passed its argument in a
    tuple.

    Raises ValueError if `kinds` contains `tuple`.
    """
    if tuple in kinds:
        raise ValueError("objects_of cannot list tuples: another thread may be filling one. Pass other classes.")
    wanted = frozenset(map(object.__hash__, kinds))
    tracked: list[Any] = []
    others: list[Any] = []
    is_other = map(is_not, map(type, tracked), repeat(tuple))
    found = compress(_filled(tracked, map(gc.get_objects, (generation,))), is_other)
    is_wanted = map(wanted.__contains__, map(object.__hash__, map(type, others)))
    try:
        return list(compress(_filled(others, (found,)), is_wanted))
    finally:  # there was no memory for the result
        tracked.clear()
        others.clear()


def referrers_of(objects: Collection[Any]) -> list[Any]:
    """Objects that refer to any of these, without tuples, as `objects_of`. Takes as long as a look at all objects."""
    tracked: list[Any] = []
    is_other = map(is_not, map(type, tracked), repeat(tuple))
    try:
        return list(compress(_filled(tracked, starmap(gc.get_referrers, (tuple(objects),))), is_other))
    finally:
        tracked.clear()


def _filled(items: list[Any], sources: Iterable[Iterable[Any]]) -> Iterator[Any]:
    """Fill a list from sources, yield its items, and empty it; all in C, and without making an object meanwhile."""
    fill: Iterator[Any] = filter(None, map(items.extend, sources))  # `extend` returns None, which `filter` drops
    empty: Iterator[Any] = iter(items.clear, None)  # ends after one call, which returns None
    return chain(fill, iter(items), empty)


def subclasses(kind: type) -> set[type]:
    return {kind}.union(*map(subclasses, kind.__subclasses__()))


class Promotions:
    """Remembers weakly the objects of some classes that leave the young generations between `start` and `stop`.

    `next_number` returns a number that is one higher at each call, and one more for each object made in between.
    `misses` counts the times at which objects may have grown old uncaught, `start` included.
    """

    def __init__(self, kinds: Callable[[], Collection[type]], next_number: Callable[[], int]) -> None:
        self.misses = 0
        self._kinds = kinds
        self._next_number = next_number
        self._number: int | None = None  # before the list was made
        self._caught: collections.deque[Any] = collections.deque(maxlen=MAX_CAUGHT)  # weak references
        self._callback: Any = None

    def start(self) -> None:
        if self._callback is not None:
            return
        self.misses += 1
        self._callback = _Callback(self._collection)
        gc.callbacks.append(self._callback)

    def stop(self) -> None:
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
                kinds = self._kinds()
                for generation in YOUNG:
                    self._caught.extend(map(weakref.ref, objects_of(kinds, generation)))
                self.misses += len(self._caught) == self._caught.maxlen
            else:
                number, self._number = self._number, None
                self.misses += number is None or self._next_number() != number + 1
        except Exception:
            self._number = None
            logger.debug("objects that grow old could not be noted", exc_info=True)


class _Callback:
    """Calls a method before and after the collections that make objects old, while its object exists."""

    def __init__(self, method: Callable[[str], None]) -> None:
        self._method = weakref.WeakMethod(method)

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        method = self._method()
        if method is None:
            gc.callbacks.remove(self)
        elif info["generation"] >= YOUNG[-1]:
            method(phase)
