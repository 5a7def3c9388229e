"""The list of runs with the key figures of each, worker by worker: a run of many is never in memory
as a whole.

One run that is large, or that a stranger made so, does not delay the others."""

import dataclasses
import logging
import operator
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, TypeAlias

import numpy as np

from tb_memplugin.analysis import (
    DeviceFacts,
    LargestLayer,
    StepRange,
    device_facts,
    device_order,
    former_findings,
    growth_findings,
    host_findings,
    largest_at_failure,
    most_loaded,
    of_sessions,
    phases,
    range_of,
    recomputation_findings,
    run_status,
    worst,
)
from tb_memplugin.errors import MemoryPluginError
from tb_memplugin.schema import (
    NO_STEPS,
    PHASES,
    Integers,
    RunStatus,
    WorkerSummary,
    as_json,
    clean,
    distinct,
    full_device_name,
)
from tb_memplugin.server.workers import Lookup, workers_with
from tb_memplugin.storage import REQUESTS, TIMELINES, RunTags, WorkerRuns, basic_streams, limited
from tb_memplugin.storage.files import MANY_WORKERS, MAX_RUN_ROWS, MAX_WORKERS, Source

_log = logging.getLogger(__name__)

READING_THREADS = 4  # one run that takes long leaves a thread to the others

Facts: TypeAlias = dict[str, Any]
_Described: TypeAlias = Facts | MemoryPluginError | OSError  # a run, or why it cannot be read now


class RunList:
    """Describes runs and keeps the descriptions of those that did not change. `patience_seconds` is
    the time to wait for further runs after one has been read; None waits for all. Thread-safe."""

    def __init__(
        self, describe: Callable[[Source, RunTags], Facts], patience_seconds: float | None
    ) -> None:
        self._describe = describe
        self._patience = patience_seconds
        self._lock = threading.Lock()
        self._known: dict[str, tuple[str, Facts]] = {}
        self._reading: dict[tuple[str, str], Future[_Described]] = {}
        self._threads: ThreadPoolExecutor | None = None

    def facts(self, source: Source, catalog: Mapping[str, RunTags]) -> list[Facts]:
        """The key figures of each run, in order; of one that takes long those known before, or what
        its tags say."""
        with self._lock:
            self._known = {name: entry for name, entry in self._known.items() if name in catalog}
            known = dict(self._known)
        changed = [
            tags
            for name, tags in catalog.items()
            if name not in known or known[name][0] != tags.version
        ]
        if self._patience is None or len(catalog) == 1:
            described = {tags.name: self._facts_of(source, tags) for tags in changed}
        else:
            described = self._described(source, changed, self._patience, bool(known))
        faults: dict[str, str] = {}
        for name, found in described.items():
            if not isinstance(found, Exception):
                known[name] = catalog[name].version, found
            elif len(described) == len(catalog) and all(
                isinstance(one, Exception) for one in described.values()
            ):
                raise found  # the source cannot be read
            # a run that vanished, or that cannot be read now, is read again for the next answer
            else:
                faults[name] = f"cannot be read now: {found}"
        with self._lock:
            self._known.update({name: known[name] for name in described.keys() - faults.keys()})
        read = {name: facts for name, (_, facts) in known.items()}
        return [
            read.get(name) or being_read(tags, faults.get(name)) for name, tags in catalog.items()
        ]

    def _facts_of(self, source: Source, tags: RunTags) -> _Described:
        """The description of a run, or why there is none: a fault in one run must not hide the
        others."""
        try:
            return self._describe(source, tags)
        except (MemoryPluginError, OSError) as error:
            return error
        except Exception as error:
            _log.exception("tb_memplugin: run %s could not be described", clean(tags.name))
            return {
                **being_read(tags, f"could not be read: {type(error).__name__}"),
                "version": tags.version,
            }

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
            self._reading = {
                key: future
                for key, future in self._reading.items()
                if key in wanted or not future.done()
            }
        return {
            tags.name: future.result() for future, tags in futures.items() if future not in pending
        }


def being_read(tags: RunTags, fault: str | None = None) -> Facts:
    """What is known of a run before it has been read, or if a fault keeps it from being read."""
    return {
        **_entry(tags, [], StepRange(0, None, None), 0),
        "version": f"{tags.version} being read",
        "sessions": len({(entry[0], entry[2].session) for entry in tags.tags}),
        "workers": sorted({entry[0] for entry in tags.tags}),
        "status": "reading" if fault is None else "unknown",
        "ended": False,
        "damage": [*([] if fault is None else [f"run {tags.name} {fault}"]), *tags.damage],
    }


# most different steps of a run that are counted, of all workers together
MAX_STEPS = 2 * MAX_RUN_ROWS


@dataclasses.dataclass(frozen=True)
class WorkerFacts:
    """Key figures of the workers of one directory; devices by the names of the whole run, phases by
    index, a status for each worker, and the largest layer at the newest failure, with its wall
    time. Steps are distinct; thinned means that there are more samples than were read."""

    workers: tuple[str, ...]
    sessions: int
    started: float | None
    training_steps: Integers
    steps: Integers
    phases: frozenset[int]
    devices: tuple[DeviceFacts, ...]
    ooms: int
    findings: tuple[str, ...]
    statuses: tuple[RunStatus, ...]
    ended: bool
    recorded_until: float | None
    host_findings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    damage: tuple[str, ...] = ()
    is_thinned: bool = False
    largest_at_failure: tuple[float, LargestLayer] | None = None


class RunFacts(Lookup):
    """Describes runs on top of one `Reader`; the figures of workers that did not change are cached.
    Thread-safe."""

    def describe(self, source: Source, tags: RunTags) -> dict[str, Any]:
        """The run's entry in ``GET runs``."""
        workers: list[WorkerFacts] = []
        training = every = NO_STEPS
        runs = self._reader.workers(source, tags.name)
        read: Iterable[WorkerFacts] = (self._worker(source, own) for own in workers_with(tags))
        if len(runs.of_worker) > MANY_WORKERS:
            key = "facts of many", runs.name
            read = self._reader.cache.computed(
                key, runs.version, lambda: self._of_many(source, runs)
            )
        for worker in read:
            same = training is every and worker.training_steps is worker.steps
            every, training = (
                known
                if np.array_equal(known, own) or not len(own)
                else distinct(known, own)[: MAX_STEPS + 1]
                for known, own in ((every, worker.steps), (training, worker.training_steps))
            )
            training = every if same else training
            # Without its steps, which would be most of what all workers take.
            workers.append(dataclasses.replace(worker, training_steps=NO_STEPS, steps=NO_STEPS))
        layers, damage = self._reader.survey_activations(source, tags)
        is_thinned = any(worker.is_thinned for worker in workers)
        steps = range_of((training if len(training) else every)[:MAX_STEPS], is_thinned)
        if not steps.steps and layers:
            # The run has only activations.
            steps = range_of(self._reader.activation_rows(source, tags).step)
        sentences = [*tags.damage, *(sentence for worker in workers for sentence in worker.damage)]
        if len(every) > MAX_STEPS:
            sentences.append(
                f"steps after step {int(every[MAX_STEPS - 1])} are not counted: only {MAX_STEPS} "
                "are"
            )
        damage = tuple(
            dict.fromkeys([*(sentences if len(workers) == 1 else limited(sentences)), *damage])
        )
        return {**_entry(tags, workers, steps, layers), "damage": list(damage)}

    def _of_many(self, source: Source, runs: WorkerRuns) -> tuple[list[WorkerFacts], int]:
        """The figures of many workers, from their roll-ups, which have no notes and say nothing of
        host memory, or of up to `MAX_WORKERS` without one from their histories."""
        found: list[WorkerFacts] = []
        histories = 0
        for worker, of in sorted(self._reader.rollups(source, runs).items()):
            if of.missing is None:
                found.append(_facts_of(worker, of.sessions, found[-1].steps if found else NO_STEPS))
            elif histories < MAX_WORKERS:
                histories += 1
                found.append(self._worker(source, self._reader.worker_tags(source, runs, worker)))
        steps = {id(one.steps): len(one.steps) for one in found}
        return found, 16 * sum(steps.values()) + 1000 * sum(1 + len(one.devices) for one in found)

    def _worker(self, source: Source, tags: RunTags) -> WorkerFacts:
        return self._reader.cache.computed(
            ("facts", tags.name, tags.worker), tags.version, lambda: self._read(source, tags)
        )

    def _read(self, source: Source, tags: RunTags) -> tuple[WorkerFacts, int]:
        loaded = self._reader.load(source, tags, basic_streams(tags.worker))
        runs = list(loaded.by_worker.items())
        traced = np.asarray([snapshot.step for snapshot in loaded.run.snapshots], np.int64)
        samples, train = [run.samples for _, run in runs], PHASES.index("train")
        training = distinct(NO_STEPS, *(one.step[one.phase == train] for one in samples))
        steps = distinct(traced, *(one.step for one in samples))
        found, on_host, statuses = [], [], []
        for worker, run in runs:
            growths, of_host = growth_findings(worker, run), host_findings(run)
            found += [*growths, *former_findings(run, worker)]
            on_host += of_host
            statuses.append(run_status(run, bool(growths or of_host)))
        tables = [run.layer_tables[-1] for _, run in runs if run.layer_tables]
        if any(layer.recomputed is not None for table in tables for layer in table.layers):
            # Findings on recomputed layers need the requests and timelines of traced steps.
            more = self._reader.load(
                source, tags, basic_streams(tags.worker) | {REQUESTS, TIMELINES}
            )
            found += [
                line
                for worker, run in more.by_worker.items()
                for line in recomputation_findings(run, worker)
            ]
        ends = [float(one.wall_time.max()) for one in samples if len(one)]
        read = WorkerFacts(
            workers=loaded.run.workers,
            sessions=len(loaded.run.sessions),
            started=loaded.sessions[0].started if loaded.sessions else None,
            training_steps=steps if np.array_equal(training, steps) else training,
            steps=steps,
            phases=frozenset(PHASES.index(phase) for _, run in runs for phase in phases(run)),
            devices=tuple(
                dataclasses.replace(device, device=full_device_name(worker, device.device))
                for worker, run in runs
                for device in device_facts(run)
            ),
            ooms=len(loaded.run.ooms),
            findings=tuple(found),
            host_findings=tuple(on_host),
            notes=loaded.run.notes,
            damage=loaded.run.damage,
            statuses=tuple(statuses),
            ended=loaded.run.ended is not False,
            recorded_until=max(ends, default=None),
            is_thinned=loaded.run.thinning > 1,
            largest_at_failure=largest_at_failure(loaded.run),
        )
        return read, 16 * len(steps) + 1000 * (1 + len(read.devices))


def _facts_of(worker: str, sessions: Sequence[WorkerSummary], known_steps: Integers) -> WorkerFacts:
    """The figures of a worker from the summaries of its sessions, whose steps count as recorded
    without a gap. One with the steps of another worker, `known_steps`, shares their array."""
    summary = of_sessions(worker, sessions)
    first, last = summary.first_step, summary.last_step
    steps = (
        NO_STEPS
        if first is None or last is None
        else np.arange(first, min(last, first + MAX_STEPS) + 1)
    )
    steps = known_steps if np.array_equal(known_steps, steps) else steps
    grows = f"{worker}: memory grows; open one of its devices for the finding."
    devices = [device for device in summary.devices if device.phase == "train"]
    figures = operator.attrgetter("capacity_bytes", "peak_bytes", "peak_step", "snapshots")
    recorded = (one for one in summary.devices if one.last_in_use_bytes is not None or one.traced)
    return WorkerFacts(
        workers=(worker,),
        sessions=summary.sessions,
        started=min((one.started for one in sessions if one.started is not None), default=None),
        training_steps=steps,
        steps=steps,
        phases=frozenset(PHASES.index(device.phase) for device in recorded),
        devices=tuple(
            DeviceFacts(full_device_name(worker, one.name), *figures(one)) for one in devices
        ),
        ooms=sum(device.ooms for device in devices),
        findings=(grows,) if summary.status == "growing" else (),
        statuses=(summary.status,),
        ended=summary.ended is not False,
        recorded_until=summary.last_wall_time,
    )


def _entry(tags: RunTags, workers: Sequence[WorkerFacts], steps: StepRange, layers: int) -> Facts:
    """The entry of a run but for its damage."""
    every = [device for worker in workers for device in worker.devices]
    devices = sorted(every, key=lambda one: device_order(one.device))
    found = [sentence for worker in workers for sentence in worker.findings]
    failures = [
        worker.largest_at_failure for worker in workers if worker.largest_at_failure is not None
    ]
    ends = [worker.recorded_until for worker in workers if worker.recorded_until is not None]
    starts = [worker.started for worker in workers if worker.started is not None]
    return {
        "run": tags.name,
        "version": tags.version,
        "sessions": sum(worker.sessions for worker in workers),
        "workers": [name for worker in workers for name in worker.workers],
        **as_json(steps),
        "started": min(starts, default=None),
        "status": worst([status for worker in workers for status in worker.statuses]),
        "ended": all(worker.ended for worker in workers),
        "recorded_until": max(ends, default=None),
        "phases": [
            PHASES[at] for at in sorted(frozenset().union(*(worker.phases for worker in workers)))
        ],
        "devices": as_json(devices),
        "most_loaded": most_loaded(
            {one.device: (one.peak_bytes, one.capacity_bytes) for one in devices}
        ),
        "activation_layers": layers,
        "ooms": sum(worker.ooms for worker in workers),
        "largest_at_failure": as_json(max(failures, key=operator.itemgetter(0))[1])
        if failures
        else None,
        "findings": found + [sentence for worker in workers for sentence in worker.host_findings],
        "notes": list(dict.fromkeys(note for worker in workers for note in worker.notes)),
    }
