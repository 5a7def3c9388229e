"""What keeps the recorder from disturbing the process: forked children, and Python's garbage collector.

What the recorders of a parent opened and registered belongs to the parent: a forked child lets go of it.

CPython collects young objects whenever their number grew by `gc.get_threshold()[0]`. What is alive then becomes old: if
it is dropped soon afterwards, such as the models of a search, it stays in memory until a full collection. The objects
of the recorder would move these moments forward. While an `uncounted` function runs, the threshold is higher, and at
its end the count is what it was at its beginning: for the objects that the function left behind, as many of a stock are
freed. The collector itself is never called, switched off or on.
"""

import functools
import gc
import os
import weakref
from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar


class Abandonable(Protocol):
    def _abandon(self) -> None:
        """Let go of it in the child. Takes no lock: a thread that does not exist in the child may hold it."""


_inherited: "weakref.WeakSet[Abandonable]" = weakref.WeakSet()


def abandon_in_child(item: Abandonable) -> None:
    """Call the item's `_abandon` in every child that is forked while it exists."""
    _inherited.add(item)


def _abandon_all() -> None:
    for item in list(_inherited):
        item._abandon()
    _inherited.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)


STOCK = 20_000
"""Objects to free, 40 bytes each: the facts of a traced step are hundreds of objects, with many graphs thousands."""
MARGIN = 100_003
"""By how much the threshold is higher: other threads of the program may leave this many objects in reference cycles."""

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


class _Object:
    """Something that the collector counts. Lists, tuples and the like do not count while Python keeps spare ones."""

    __slots__ = ("_nothing",)


class _Collector:
    """What is done to the collector, for all threads. It takes no lock, as a finalizer may run anywhere in it and call
    a function of the recorder: threads that disturb each other leave the count wrong by some objects, and the last one
    to leave restores the threshold."""

    def __init__(self) -> None:
        self._running: list[None] = []  # an item for each function that runs; its changes are atomic
        self._stock: list[_Object] = []
        self._collections = 0
        self._theirs = self._ours = 0  # the program's threshold, and what replaces it

    def enter(self) -> tuple[int, int]:
        """Raise the threshold; returns the number of collections so far, and of objects since the last one."""
        self._running.append(None)
        if self._on_collection not in gc.callbacks:
            gc.callbacks.append(self._on_collection)
        threshold = gc.get_threshold()[0]
        if threshold not in (0, self._ours):  # 0 means that the program switched the collector off
            self._theirs, self._ours = threshold, threshold + MARGIN
            gc.set_threshold(self._ours)
        return self._collections, gc.get_count()[0]

    def leave(self, collections: int, count: int) -> None:
        """Restore the count, unless a collection did so, and the threshold, unless the program set its own."""
        more = gc.get_count()[0] - count
        if collections == self._collections:
            if more > 0:
                del self._stock[-more:]
            else:
                self._stock += [_Object() for _ in range(min(-more, STOCK))]
        del self._running[-1:]
        self._restore()

    def _restore(self) -> None:
        if not self._running and gc.get_threshold()[0] == self._ours:
            gc.set_threshold(self._theirs)

    def _abandon(self) -> None:
        """Restore the threshold in a forked child, which has no other threads."""
        self._running.clear()
        self._restore()

    def _on_collection(self, phase: str, info: Any) -> None:
        """Renew the stock: what is made or freed as a collection starts does not count."""
        if phase == "start":
            self._collections += 1
            more = STOCK - len(self._stock)
            if more < 0:
                del self._stock[more:]
            else:
                self._stock += [_Object() for _ in range(more)]


_collector = _Collector()
abandon_in_child(_collector)


def uncounted(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Wrap a function of the recorder that leaves or frees objects; calls may be nested, and run on several threads.
    Not for a function that waits or calls the program's code: it needs the collector."""

    @functools.wraps(function)
    def run(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        before = _collector.enter()
        try:
            return function(*args, **kwargs)
        finally:
            _collector.leave(*before)

    return run
