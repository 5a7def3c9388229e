"""The key figures of every run, without letting one run that is large, or that a stranger made so, delay the others."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, TypeAlias

from tb_memplugin.errors import MemoryPluginError
from tb_memplugin.model.text import clean
from tb_memplugin.reader.catalog import RunTags
from tb_memplugin.reader.files.source import Source

_log = logging.getLogger(__name__)

READING_THREADS = 4
"""Runs that are read at the same time: one that takes long leaves a thread to the others."""

Facts: TypeAlias = dict[str, Any]
_Described: TypeAlias = Facts | MemoryPluginError | OSError
"""The description of a run, or why it cannot be read now."""


class RunList:
    """Describes runs and keeps the descriptions of those that did not change. Thread-safe.

    Args:
        describe: Describes one run of a source; may raise what reading raises.
        patience_seconds: Time to wait for further runs after one has been read; None waits for all.
    """

    def __init__(self, describe: Callable[[Source, RunTags], Facts], patience_seconds: float | None) -> None:
        self._describe = describe
        self._patience = patience_seconds
        self._lock = threading.Lock()
        self._known: dict[str, tuple[str, Facts]] = {}
        self._reading: dict[tuple[str, str], Future[_Described]] = {}
        self._threads: ThreadPoolExecutor | None = None

    def facts(self, source: Source, catalog: Mapping[str, RunTags]) -> list[Facts]:
        """The key figures of each run, in order; of one that takes long those known before, or what its tags say."""
        with self._lock:
            self._known = {name: entry for name, entry in self._known.items() if name in catalog}
            known = dict(self._known)
        changed = [tags for name, tags in catalog.items() if name not in known or known[name][0] != tags.version]
        if self._patience is None or len(catalog) == 1:
            described = {tags.name: self._facts_of(source, tags) for tags in changed}
        else:
            described = self._described(source, changed, self._patience, bool(known))
        unread = {name: found for name, found in described.items() if isinstance(found, Exception)}
        if unread and len(unread) == len(catalog):
            raise next(iter(unread.values()))  # the source cannot be read
        read = {
            name: (catalog[name].version, found)
            for name, found in described.items()
            if not isinstance(found, Exception)
        }
        with self._lock:
            self._known.update(read)
        known.update(read)
        # A run that vanished, or that cannot be read now, is read again for the next answer.
        unknown = {name: being_read(catalog[name], f"cannot be read now: {error}") for name, error in unread.items()}
        return [
            known[name][1] if name in known else unknown.get(name) or being_read(tags) for name, tags in catalog.items()
        ]

    def _facts_of(self, source: Source, tags: RunTags) -> _Described:
        """The description of a run, or why there is none: a fault in one run must not hide the others."""
        try:
            return self._describe(source, tags)
        except (MemoryPluginError, OSError) as error:
            return error
        except Exception as error:
            _log.exception("tb_memplugin: run %s could not be described", clean(tags.name))
            return {**being_read(tags, f"could not be read: {type(error).__name__}"), "version": tags.version}

    def _described(
        self, source: Source, changed: list[RunTags], patience: float, delays_others: bool
    ) -> dict[str, _Described]:
        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(READING_THREADS, "tb_memplugin runs")
            for tags in changed:
                if (tags.name, tags.version) not in self._reading:
                    future = self._threads.submit(self._facts_of, source, tags)
                    self._reading[tags.name, tags.version] = future
            futures = {self._reading[tags.name, tags.version]: tags for tags in changed}
        pending: set[Future[_Described]] = set(futures)
        last = time.monotonic()
        while pending:
            left = max(0.0, last + patience - time.monotonic()) if delays_others else None
            done, pending = wait(pending, left, FIRST_COMPLETED)
            if not done:
                break
            last, delays_others = time.monotonic(), True
        with self._lock:
            # Drop finished futures: their result was used or is outdated.
            wanted = {(futures[future].name, futures[future].version) for future in pending}
            self._reading = {key: future for key, future in self._reading.items() if key in wanted or not future.done()}
        return {tags.name: future.result() for future, tags in futures.items() if future not in pending}


def being_read(tags: RunTags, fault: str | None = None) -> Facts:
    """What is known of a run before it has been read, or if a fault keeps it from being read."""
    return {
        "run": tags.name,
        "version": f"{tags.version} being read",
        "sessions": len({(entry[0], entry[2].session) for entry in tags.tags}),
        "workers": sorted({entry[0] for entry in tags.tags}),
        "steps": 0,
        "first_step": None,
        "last_step": None,
        "started": None,
        "status": "reading" if fault is None else "unknown",
        "ended": False,
        "recorded_until": None,
        "phases": [],
        "devices": [],
        "most_loaded": None,
        "activation_layers": 0,
        "ooms": 0,
        "findings": [],
        "notes": [],
        "damage": [*([] if fault is None else [f"run {tags.name} {fault}"]), *tags.damage],
    }
