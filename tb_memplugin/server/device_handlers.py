"""Handler of the route with all devices and workers of a run."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from tb_memplugin.analysis import combine, of_sessions, series_bytes, summarize_worker
from tb_memplugin.schema import NO_STEPS, Integers, Phase, WorkerSummary, counted, format_bytes, some
from tb_memplugin.server.responses import LargeAnswer
from tb_memplugin.server.worker_lookup import workers_with
from tb_memplugin.storage import Reader, RollupReader, RunTags, WorkerRuns
from tb_memplugin.storage.files import MANY_WORKERS, MAX_RUN_BYTES, MAX_WORKERS, Room, Source
from tb_memplugin.storage.read import basic_streams

MAX_SERIES_BYTES = MAX_RUN_BYTES
"""Limit of the figures of all workers over steps: those of 64 workers of 8 devices and 10,000 steps take 88 MiB."""


class _Summarized(NamedTuple):
    """The workers of one directory, the bytes that their series need, and whether they have them."""

    workers: tuple[WorkerSummary, ...]
    series_bytes: int
    with_steps: bool


class DeviceHandlers:
    """A handler like those of `Handlers`."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._rollups = RollupReader(reader)

    def devices(self, source: Source, run: str, phase: Phase) -> dict[str, Any]:
        key, cache = ("devices", run, phase), self._reader.cache
        workers = self._rollups.workers(source, run)
        if len(workers.of_worker) > MANY_WORKERS:
            return cache.computed(key, workers.version, lambda: self._of_rollups(source, workers, phase))
        tags = self._reader.tags(source, run)
        return cache.computed(key, tags.version, lambda: self._of_histories(source, tags, phase))

    def _of_rollups(self, source: Source, workers: WorkerRuns, phase: Phase) -> tuple[dict[str, Any], int]:
        """The answer for many workers: from their roll-ups, and from the histories of only those that need it."""
        summaries: dict[str, WorkerSummary] = {}
        reasons: dict[str, str] = {}
        for worker, of in self._rollups.read(source, workers).items():
            if of.missing is not None:
                reasons[worker] = of.missing
            else:
                summaries[worker] = of_sessions(worker, of.sessions)
        described = [
            summary
            for worker in sorted(reasons)[:MAX_WORKERS]
            for summary in self._history(source, workers, worker, phase)
        ]
        combined = combine([*summaries.values(), *described], phase, with_steps=False)
        # A roll-up lags behind: where a worker stopped, only its history says.
        stopped = [one["worker"] for one in combined["workers"] if one["stopped_early"] and one["worker"] in summaries]
        for worker in stopped[:MAX_WORKERS]:
            described += self._history(source, workers, worker, phase)
            del summaries[worker]
        if stopped:
            combined = combine([*summaries.values(), *described], phase, with_steps=False)
        answer = LargeAnswer({"run": workers.name, "rolled_up": True, **combined, "damage": _damage(reasons)})
        return answer, 5000 * len(answer["devices"])

    def _history(self, source: Source, workers: WorkerRuns, worker: str, phase: Phase) -> list[WorkerSummary]:
        """The summaries of one worker's directory from all that it recorded, without steps."""
        tags = self._rollups.tags(source, workers, worker)
        loaded = self._reader.load(source, tags, basic_streams(worker))
        return [summarize_worker(name, run, [phase], with_steps=False) for name, run in loaded.by_worker.items()]

    def _of_histories(self, source: Source, tags: RunTags, phase: Phase) -> tuple[dict[str, Any], int]:
        """The answer, without figures over steps if there is no room for those of all workers."""
        room = Room(MAX_SERIES_BYTES, 0)
        workers: list[WorkerSummary] = []
        without: list[str] = []
        for own in workers_with(tags):
            first_steps = workers[0].step if workers else NO_STEPS
            summaries = self._summarized(source, own, phase, room, first_steps)
            workers.extend(summaries)
            if room.is_full:
                without.extend(summary.worker or tags.name for summary in summaries)
        # Those of only some workers would be no peaks and no sum of the run.
        combined, damage = combine(workers, phase, with_steps=not without), []
        if without:
            damage.append(
                f"figures over steps are not shown: they would exceed {format_bytes(MAX_SERIES_BYTES)} with those of "
                f"{some(without)}"
            )
        described = {"run": tags.name, "rolled_up": False, **combined, "damage": damage}
        return described, 2000 * len(described["devices"]) + 200 * len(described["steps"]["step"])

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
        workers = tuple(summarize_worker(worker, run, [phase], fits) for worker, run in loaded.by_worker.items())
        others = sum(2000 * (1 + len(device.traced)) for worker in workers for device in worker.devices) + 1000
        summarized = _Summarized(workers, size, fits)
        self._reader.cache.put(key, tags.version, summarized, others + (size if fits else 0))
        return workers


def _damage(reasons: Mapping[str, str]) -> list[str]:
    """A sentence on each reason why histories were read, and on those that were not."""
    shown = sorted(reasons)[:MAX_WORKERS]
    sentences = []
    for reason in sorted(set(reasons.values())):
        of_reason = [worker for worker in shown if reasons[worker] == reason]
        if of_reason:
            sentences.append(
                f"the history of {counted(len(of_reason), 'worker')} was read instead of a roll-up ({reason}): "
                f"{some(of_reason)}"
            )
    hidden = len(reasons) - len(shown)
    if hidden:
        sentences.append(f"{hidden} workers without a roll-up are not shown: only {MAX_WORKERS} histories are read")
    return sentences
