"""The records that an answer needs, from only their workers; and all devices and workers of a run
side by side."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from tb_memplugin.analysis import combine, of_sessions, series_bytes, summarize_worker
from tb_memplugin.errors import NotFoundError
from tb_memplugin.schema import (
    NO_STEPS,
    Integers,
    MemoryMap,
    Phase,
    Run,
    Snapshot,
    Timeline,
    WorkerSummary,
    counted,
    format_bytes,
    full_device_name,
    some,
)
from tb_memplugin.server.messages import LargeAnswer
from tb_memplugin.storage import (
    LoadedRun,
    Reader,
    RunTags,
    WorkerRuns,
    basic_streams,
    of_session,
    of_worker,
    workers_of,
)
from tb_memplugin.storage.files import MANY_WORKERS, MAX_RUN_BYTES, MAX_WORKERS, ByteBudget, Source


class FoundDevice(NamedTuple):
    """A run with the data of all workers or only of some, that of a device's worker, and the
    device's name there."""

    loaded: LoadedRun
    run: Run
    own_name: str


class Lookup:
    """Finds the records that an answer needs, and reads only their workers: those of a large run
    one by one. Raises NotFoundError for an unknown run, session, device or record, SourceError if
    the source cannot be read now."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def find_device(
        self, source: Source, name: str, device: str, session: str | None = None
    ) -> FoundDevice:
        """Read the worker with `device` of the run called `name`, or only one session."""
        tags = self.tags_with(source, name, device)
        if session is not None:
            of_session(tags, session)
        names = []
        for own in workers_with(tags, device):
            if session is not None and session not in {entry[2].session for entry in own.tags}:
                continue
            loaded = self._reader.load(source, own, session=session)
            for worker, run in loaded.by_worker.items():
                for own_name in dict.fromkeys(
                    [*run.samples.devices, *(snapshot.device for snapshot in run.snapshots)]
                ):
                    if full_device_name(worker, own_name) == device:
                        return FoundDevice(loaded, run, own_name)
                    names.append(full_device_name(worker, own_name))
        raise NotFoundError(f"run {name} has no device {device!r:.200}; available: {some(names)}")

    def tags_with(self, source: Source, name: str, device: str | None) -> RunTags:
        """The tags of the run called `name`, or of one with many workers those of the worker in the
        device's name."""
        if device is not None and "/" in device:
            workers = self._reader.workers(source, name)
            named = [
                worker for worker in workers.of_worker if worker and device.startswith(f"{worker}/")
            ]
            if named and len(workers.of_worker) > MANY_WORKERS:
                return self._reader.worker_tags(source, workers, max(named, key=len))
        return self._reader.tags(source, name)

    def with_all_ooms(self, source: Source, found: LoadedRun, name: str) -> Run:
        """The run of some workers with the failed allocations of all, so that their indices are
        those of the whole run; those of a worker beyond the limit of workers come last."""
        if not found.run.ooms:
            return found.run
        # Identifiers are those of a session.
        own = {(oom.identifier, oom.wall_time): oom for oom in found.run.ooms}
        everything = self._reader.ooms(source, self._reader.tags(source, name))
        ooms = [own.pop((oom.identifier, oom.wall_time), oom) for oom in everything]
        return dataclasses.replace(found.run, ooms=(*ooms, *own.values()))


def workers_with(tags: RunTags, device: str | None = None) -> Iterator[RunTags]:
    """The tags of each worker that is shown, first those of workers that the device's name says."""
    workers = workers_of(tags)[:MAX_WORKERS]
    if workers == ("",) or not workers:
        yield tags
        return
    named = [
        worker
        for worker in workers
        if worker and device is not None and device.startswith(f"{worker}/")
    ]
    for worker in (
        *sorted(named, key=len, reverse=True),
        *(worker for worker in workers if worker not in named),
    ):
        yield of_worker(tags, worker)


_Record = TypeVar("_Record", Snapshot, MemoryMap, Timeline)


def at_step(
    records: Iterable[_Record], device: str | None, step: int | None, phase: Phase, missing: str
) -> list[_Record]:
    """The records of a device in a phase at a step; at least one, else an error with `missing` and
    the steps."""
    candidates = [record for record in records if record.device == device and record.phase == phase]
    matches = [record for record in candidates if record.step == step]
    if not matches:
        raise NotFoundError(
            f"{missing}; available steps: {some([record.step for record in candidates])}"
        )
    return matches


MAX_SERIES_BYTES = MAX_RUN_BYTES
"""Limit of the figures of all workers over steps: those of 64 workers of 8 devices and 10,000 steps
take 88 MiB."""


class Devices(Lookup):
    """The handler of the route with all devices and workers of a run."""

    def devices(self, source: Source, run: str, phase: Phase) -> dict[str, Any]:
        key, cache = ("devices", run, phase), self._reader.cache
        workers = self._reader.workers(source, run)
        if len(workers.of_worker) > MANY_WORKERS:
            return cache.computed(
                key, workers.version, lambda: self._of_rollups(source, workers, phase)
            )
        tags = self._reader.tags(source, run)
        return cache.computed(key, tags.version, lambda: self._of_histories(source, tags, phase))

    def _of_rollups(
        self, source: Source, workers: WorkerRuns, phase: Phase
    ) -> tuple[dict[str, Any], int]:
        """The answer for many workers: from their roll-ups, and from the histories of only those
        that need it."""
        rollups = self._reader.rollups(source, workers)
        reasons = {worker: of.missing for worker, of in rollups.items() if of.missing is not None}
        summaries = {
            worker: of_sessions(worker, of.sessions)
            for worker, of in rollups.items()
            if of.missing is None
        }
        described: list[WorkerSummary] = []
        for worker in sorted(reasons)[:MAX_WORKERS]:
            described += self._history(source, workers, worker, phase)
        combined = combine([*summaries.values(), *described], phase, with_steps=False)
        # A roll-up lags behind: where a worker stopped, only its history says.
        stopped = [
            one["worker"]
            for one in combined["workers"]
            if one["stopped_early"] and one["worker"] in summaries
        ]
        for worker in stopped[:MAX_WORKERS]:
            described += self._history(source, workers, worker, phase)
            del summaries[worker]
        if stopped:
            combined = combine([*summaries.values(), *described], phase, with_steps=False)
        answer = LargeAnswer(
            {"run": workers.name, "rolled_up": True, **combined, "damage": _damage(reasons)}
        )
        return answer, 5000 * len(answer["devices"])

    def _history(
        self, source: Source, workers: WorkerRuns, worker: str, phase: Phase
    ) -> list[WorkerSummary]:
        """The summaries of one worker's directory from all that it recorded, without steps."""
        tags = self._reader.worker_tags(source, workers, worker)
        loaded = self._reader.load(source, tags, basic_streams(worker))
        return [
            summarize_worker(name, run, [phase], with_steps=False)
            for name, run in loaded.by_worker.items()
        ]

    def _of_histories(
        self, source: Source, tags: RunTags, phase: Phase
    ) -> tuple[dict[str, Any], int]:
        """The answer, without figures over steps if there is no room for those of all workers."""
        room = ByteBudget(MAX_SERIES_BYTES, 0)
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
            exceeded = (
                f"they would exceed {format_bytes(MAX_SERIES_BYTES)} with those of {some(without)}"
            )
            damage.append(f"figures over steps are not shown: {exceeded}")
        described = {"run": tags.name, "rolled_up": False, **combined, "damage": damage}
        return described, 2000 * len(described["devices"]) + 200 * len(described["steps"]["step"])

    def _summarized(
        self, source: Source, tags: RunTags, phase: Phase, room: ByteBudget, first_steps: Integers
    ) -> tuple[WorkerSummary, ...]:
        """The summaries of the workers of one directory; only those that recorded since are read
        again. They are without steps if these do not fit into `room`. `first_steps` are those of
        the run's first worker."""
        key = "summary", tags.name, tags.worker, phase
        # The workers of one directory, the bytes that their series need, and whether they have
        # them.
        known: tuple[tuple[WorkerSummary, ...], int, bool] | None = self._reader.cache.get(
            key, tags.version
        )
        fits = known is not None and room.reserve(known[1], 0)
        if known is not None and fits == known[2]:
            return known[0]
        loaded = self._reader.load(source, tags, basic_streams(tags.worker))
        size = sum(series_bytes(run, first_steps) for run in loaded.by_worker.values())
        fits = room.reserve(size, 0) if known is None else fits
        workers = tuple(
            summarize_worker(worker, run, [phase], fits) for worker, run in loaded.by_worker.items()
        )
        others = (
            sum(2000 * (1 + len(device.traced)) for worker in workers for device in worker.devices)
            + 1000
        )
        self._reader.cache.put(
            key, tags.version, (workers, size, fits), others + (size if fits else 0)
        )
        return workers


def _damage(reasons: Mapping[str, str]) -> list[str]:
    """A sentence on each reason why histories were read, and on those that were not."""
    shown = sorted(reasons)[:MAX_WORKERS]
    sentences = []
    for reason in sorted(set(reasons.values())):
        of_reason = [worker for worker in shown if reasons[worker] == reason]
        if of_reason:
            read = (
                f"the history of {counted(len(of_reason), 'worker')} was read instead of a roll-up"
            )
            sentences.append(f"{read} ({reason}): {some(of_reason)}")
    hidden = len(reasons) - len(shown)
    if hidden:
        sentences.append(
            f"{hidden} workers without a roll-up are not shown: only {MAX_WORKERS} histories are "
            "read"
        )
    return sentences
