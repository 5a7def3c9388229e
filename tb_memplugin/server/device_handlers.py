"""Handler of the route with all devices and workers of a run."""

from typing import Any, NamedTuple

import numpy as np

from tb_memplugin.analysis.devices import combine
from tb_memplugin.analysis.worker_summary import WorkerSummary, series_bytes, summarize_worker
from tb_memplugin.model import Integers, Phase
from tb_memplugin.model.suggestions import some
from tb_memplugin.model.units import format_bytes
from tb_memplugin.reader.catalog import RunTags, workers_of
from tb_memplugin.reader.limits import MAX_RUN_BYTES, MAX_WORKERS, Room
from tb_memplugin.reader.run_reader import Reader
from tb_memplugin.reader.source import Source
from tb_memplugin.reader.streams import basic_streams
from tb_memplugin.server.worker_lookup import each_worker

MAX_SERIES_BYTES = MAX_RUN_BYTES
"""Limit of the figures of all workers over steps: those of 64 workers of 8 devices and 10,000 steps take 88 MiB."""


_NO_STEPS: Integers = np.empty(0, np.int64)


class _Summarized(NamedTuple):
    """The workers of one directory, the bytes that their series need, and whether they have them."""

    workers: tuple[WorkerSummary, ...]
    series_bytes: int
    with_steps: bool


class DeviceHandlers:
    """Handler on top of one `Reader`; errors as in `Handlers`. Thread-safe."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def devices(self, source: Source, run: str, phase: Phase) -> dict[str, Any]:
        """``GET devices``: the devices of all workers, cached for runs that did not change."""
        tags = self._reader.tags(source, run)
        key = ("devices", run, phase)
        known: dict[str, Any] | None = self._reader.cache.get(key, tags.version)
        if known is not None:
            return known
        described = {"run": run, **self._combined(source, tags, phase)}
        points = len(described["steps"]["step"])
        size = 2000 * len(described["devices"]) + 200 * points
        self._reader.cache.put(key, tags.version, described, size)
        return described

    def _combined(self, source: Source, tags: RunTags, phase: Phase) -> dict[str, Any]:
        """The answer, without figures over steps if there is no room for those of all workers."""
        room = Room(MAX_SERIES_BYTES, 0)
        workers: list[WorkerSummary] = []
        without: list[str] = []
        for own in each_worker(tags):
            first_steps = workers[0].step if workers else _NO_STEPS
            summaries = self._summarized(source, own, phase, room, first_steps)
            workers.extend(summaries)
            if room.is_full:
                without.extend(summary.worker or tags.name for summary in summaries)
        # Those of only some workers would be no peaks and no sum of the run.
        described, damage = combine(workers, phase, with_steps=not without), []
        if without:
            damage.append(
                f"figures over steps are not shown: they would exceed {format_bytes(MAX_SERIES_BYTES)} with those of "
                f"{some(without)}"
            )
        hidden = workers_of(tags)[MAX_WORKERS:]
        if hidden:
            damage.append(f"{len(hidden)} workers are not shown: only the first {MAX_WORKERS} by name are")
        return {**described, "damage": damage}

    def _summarized(
        self, source: Source, tags: RunTags, phase: Phase, room: Room, first_steps: Integers
    ) -> tuple[WorkerSummary, ...]:
        """The summaries of the workers of one directory; only those that recorded since are read again.

        They are without steps if these do not fit into `room`. `first_steps` are those of the run's first worker.
        """
        key = "summary", tags.name, tags.worker, phase
        known: _Summarized | None = self._reader.cache.get(key, tags.version)
        fits = known is not None and room.take(known.series_bytes, 0)
        if known is not None and fits == known.with_steps:
            return known.workers
        loaded = self._reader.load(source, tags, basic_streams(tags.worker))
        size = sum(series_bytes(run, first_steps) for run in loaded.by_worker.values())
        fits = room.take(size, 0) if known is None else fits
        workers = tuple(summarize_worker(worker, run, phase, fits) for worker, run in loaded.by_worker.items())
        others = sum(2000 * (1 + len(device.traced)) for worker in workers for device in worker.devices) + 1000
        summarized = _Summarized(workers, size, fits)
        self._reader.cache.put(key, tags.version, summarized, others + (size if fits else 0))
        return workers
