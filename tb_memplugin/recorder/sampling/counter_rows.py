"""Rows of counters: a row is kept where a value changed, within a limit per counter."""

import threading
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from tb_memplugin.model import CounterKind, Counters

Value: TypeAlias = tuple[CounterKind, str | None, int, int, str | None]
"""Kind, name, count, bytes and detail, as in `Counters`."""

DENSE_ROWS = 256
"""Rows of a counter that are kept at every change; after them, one row for each `take`."""


class CounterRows:
    """Takes values on the training's thread and returns the rows that changed on another. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[tuple[str, str | None], Value] = {}
        self._rows: list[tuple[int, Value]] = []
        self._kept: dict[tuple[str, str | None], int] = {}
        self._pending: dict[tuple[str, str | None], tuple[int, Value]] = {}

    def add(self, step: int, values: Sequence[Any]) -> None:
        """Keep the values that changed since the last call. A counter that is missing in `values` became zero."""
        with self._lock:
            now: dict[tuple[str, str | None], Value] = {(value[0], value[1]): tuple(value) for value in values}
            for key, last in self._last.items():
                if key not in now:
                    now[key] = (last[0], last[1], 0, min(0, last[3]), None)
            for key, value in now.items():
                if self._last.get(key, (None,) * 5)[2:4] == value[2:4]:
                    continue
                self._kept[key] = self._kept.get(key, 0) + 1
                if self._kept[key] <= DENSE_ROWS:
                    self._rows.append((step, value))
                else:
                    self._pending[key] = (step, value)
            self._last = now

    def take(self) -> Counters | None:
        with self._lock:
            rows = [*self._rows, *self._pending.values()]
            self._rows, self._pending = [], {}
        if not rows:
            return None
        return Counters(
            step=np.asarray([step for step, _ in rows], np.int64),
            kind=tuple(value[0] for _, value in rows),
            name=tuple(value[1] for _, value in rows),
            count=np.asarray([value[2] for _, value in rows], np.int64),
            bytes=np.asarray([value[3] for _, value in rows], np.int64),
            detail=tuple(value[4] for _, value in rows),
        )
