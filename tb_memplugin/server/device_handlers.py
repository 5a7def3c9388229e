"""Handler of the route with all devices and workers of a run."""

import threading
from typing import Any

from tb_memplugin.analysis.devices import combine
from tb_memplugin.analysis.worker_summary import WorkerSummary, summarize_worker
from tb_memplugin.model import Phase
from tb_memplugin.reader.cache import ByteCache
from tb_memplugin.reader.catalog import RunTags
from tb_memplugin.reader.run_reader import Reader
from tb_memplugin.reader.source import Source
from tb_memplugin.server.worker_lookup import each_worker

CACHE_BYTES = 512 << 20
"""Limit of the cached summaries of workers: those of 64 workers with 8 devices and 10,000 steps each take 134 MB."""
RESPONSE_BYTES = 16 << 20
"""Limit of the cached responses."""


class DeviceHandlers:
    """Handler on top of one `Reader`; errors as in `Handlers`. Thread-safe."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._lock = threading.Lock()
        self._summaries: ByteCache[tuple[WorkerSummary, ...]] = ByteCache(CACHE_BYTES)
        self._responses: ByteCache[dict[str, Any]] = ByteCache(RESPONSE_BYTES)

    def devices(self, source: Source, run: str, phase: Phase) -> dict[str, Any]:
        """``GET devices``: the devices of all workers, cached for runs that did not change."""
        tags = self._reader.tags(source, run)
        with self._lock:
            known = self._responses.get((run, phase), tags.version)
        if known is not None:
            return known
        workers = [summary for own in each_worker(tags) for summary in self._summarized(source, own, phase)]
        described = {"run": run, **combine(workers, phase)}
        points = len(described["steps"]["step"])
        with self._lock:
            self._responses.put((run, phase), tags.version, described, 2000 * len(described["devices"]) + 200 * points)
        return described

    def _summarized(self, source: Source, tags: RunTags, phase: Phase) -> tuple[WorkerSummary, ...]:
        """The summaries of the workers of one directory; only those that recorded since are read again."""
        key = tags.name, tags.worker, phase
        with self._lock:
            known = self._summaries.get(key, tags.version)
        if known is not None:
            return known
        loaded = self._reader.figures(source, tags)
        summaries = tuple(summarize_worker(worker, run, phase) for worker, run in loaded.by_worker.items())
        with self._lock:
            self._summaries.put(key, tags.version, summaries, sum(map(_summary_bytes, summaries)))
        return summaries


def _summary_bytes(summary: WorkerSummary) -> int:
    """Estimated bytes in memory."""
    rows = len(summary.step) * 2 + sum(3 * len(device.step) for device in summary.devices)
    return 8 * rows + sum(2000 * (1 + len(device.traced)) for device in summary.devices) + 1000
