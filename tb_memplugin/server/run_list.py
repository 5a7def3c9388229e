"""The list of runs with the key figures of each, worker by worker: a run of many is never in memory
as a whole.

One run that is large, or that a stranger made so, does not delay the others."""

import dataclasses
import logging
import operator
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, TypeAlias

import numpy as np

from tb_memplugin.analysis import (
    DeviceFacts,
    LargestLayer,
    StepRange,
    device_facts,
    device_order,
    finding,
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
    Finding,
    Integers,
    Phase,
    RunStatus,
    WorkerSummary,
    clean,
    distinct,
    full_device_name,
    known_values,
    record_of,
)
from tb_memplugin.server.answers import RunInfo
from tb_memplugin.server.lookup import Lookup, workers_with
from tb_memplugin.storage import REQUESTS, TIMELINES, RunTags, WorkerRuns, basic_streams, limited
from tb_memplugin.storage.files import MANY_WORKERS, MAX_RUN_ROWS, MAX_WORKERS

_log = logging.getLogger(__name__)

READING_THREADS = 4  # one run that takes long leaves a thread to the others

_Described: TypeAlias = RunInfo | MemoryPluginError | OSError  # or why it cannot be read now


class RunList:
    """Describes runs and keeps the descriptions of those that did not change. `patience_seconds` is
    the time to wait for further runs after one has been read; None waits for all. Thread-safe."""

    def __init__(self, patience_seconds: float | None = None) -> None:
        self._patience = patience_seconds
        self._lock = threading.Lock()
        self._known: dict[str, RunInfo] = {}
        self._reading: dict[tuple[str, str], Future[_Described]] = {}
        self._threads: ThreadPoolExecutor | None = None

    def facts(self, lookup: Lookup, catalog: Mapping[str, RunTags]) -> list[RunInfo]:
        """The key figures of each run, in order; of one that takes long those known before, or what
        its tags say."""
        with self._lock:
            self._known = {name: info for name, info in self._known.items() if name in catalog}
            known = dict(self._known)
        changed = [
            tags
            for name, tags in catalog.items()
            if name not in known or known[name].version != tags.version
        ]
        if self._patience is None or len(catalog) == 1:
            described = {tags.name: self._facts_of(lookup, tags) for tags in changed}
        else:
            described = self._described(lookup, changed, self._patience, bool(known))
        faults = {name: one for name, one in described.items() if isinstance(one, Exception)}
        if faults and len(faults) == len(catalog):
            raise next(iter(faults.values()))  # the source cannot be read

        read = {name: one for name, one in described.items() if not isinstance(one, Exception)}
        known |= read
        with self._lock:
            self._known.update(read)
        # a run that vanished, or that cannot be read now, is read again for the next answer
        sentences = {name: f"cannot be read now: {fault}" for name, fault in faults.items()}
        return [
            known.get(name) or being_read(tags, sentences.get(name))
            for name, tags in catalog.items()
        ]

    def _facts_of(self, lookup: Lookup, tags: RunTags) -> _Described:
        """The description of a run, or why there is none: a fault in one run must not hide the
        others."""
        try:
            return describe(lookup, tags)
        except (MemoryPluginError, OSError) as error:
            return error
        except Exception as error:
            _log.exception("tb_memplugin: run %s could not be described", clean(tags.name))
            unread = being_read(tags, f"could not be read: {type(error).__name__}")
            return dataclasses.replace(unread, version=tags.version)

    def _described(
        self, lookup: Lookup, changed: list[RunTags], patience: float, delays_others: bool
    ) -> dict[str, _Described]:
        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(READING_THREADS, "tb_memplugin runs")
            for tags in changed:
                if (tags.name, tags.version) not in self._reading:
                    future = self._threads.submit(self._facts_of, lookup, tags)
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


def being_read(tags: RunTags, fault: str | None = None) -> RunInfo:
    """What is known of a run before it has been read, or if a fault keeps it from being read."""
    return dataclasses.replace(
        _entry(tags, [], StepRange(0, None, None), 0, tags.damage),
        version=f"{tags.version} being read",
        sessions=len({(entry[0], entry[2].session) for entry in tags.tags}),
        workers=sorted({entry[0] for entry in tags.tags}),
        status="reading" if fault is None else "unknown",
        ended=False,
        damage=[*([] if fault is None else [f"run {tags.name} {fault}"]), *tags.damage],
    )


# most different steps of a run that are counted, of all workers together
MAX_STEPS = 2 * MAX_RUN_ROWS


@dataclasses.dataclass(frozen=True)
class WorkerFacts:
    """Key figures of the workers of one directory; devices by the names of the whole run,
    a status for each worker, and the largest layer at the newest failure, with its wall
    time. Steps are distinct; thinned means that there are more samples than were read."""

    workers: tuple[str, ...]
    sessions: int
    started: float | None
    training_steps: Integers
    steps: Integers
    phases: frozenset[Phase]
    devices: tuple[DeviceFacts, ...]
    ooms: int
    findings: tuple[Finding, ...]
    statuses: tuple[RunStatus, ...]
    ended: bool
    recorded_until: float | None
    notes: tuple[str, ...] = ()
    damage: tuple[str, ...] = ()
    is_thinned: bool = False
    largest_at_failure: tuple[float, LargestLayer] | None = None
    frozen: bool | None = None


def describe(lookup: Lookup, tags: RunTags) -> RunInfo:
    """The run's entry in ``GET runs``; the figures of workers that did not change are cached."""
    reader, source, _ = lookup
    runs = reader.workers(source, tags.name)
    read: Iterable[WorkerFacts] = (_worker(lookup, own) for own in workers_with(tags))
    if len(runs.of_worker) > MANY_WORKERS:
        key = "facts of many", runs.name
        read = reader.cache.computed(key, runs.version, lambda: _of_many(lookup, runs))
    workers: list[WorkerFacts] = []
    training = every = NO_STEPS
    for worker in read:
        same = training is every and worker.training_steps is worker.steps
        every = _with_steps(every, worker.steps)
        training = every if same else _with_steps(training, worker.training_steps)
        # Without its steps, which would be most of what all workers take.
        workers.append(dataclasses.replace(worker, training_steps=NO_STEPS, steps=NO_STEPS))
    layers, damage = reader.survey_activations(source, tags)
    is_thinned = any(worker.is_thinned for worker in workers)
    steps = range_of((training if len(training) else every)[:MAX_STEPS], is_thinned)
    if not steps.steps and layers:
        # The run has only activations.
        steps = range_of(reader.activation_rows(source, tags).step)
    sentences = [*tags.damage, *(sentence for worker in workers for sentence in worker.damage)]
    if len(every) > MAX_STEPS:
        last = int(every[MAX_STEPS - 1])
        sentences.append(f"steps after step {last} are not counted: only {MAX_STEPS} are")
    sentences = sentences if len(workers) == 1 else limited(sentences)
    return _entry(tags, workers, steps, layers, dict.fromkeys([*sentences, *damage]))


def _with_steps(known: Integers, own: Integers) -> Integers:
    """The distinct steps of some workers and of one more, one more than are counted at most."""
    if np.array_equal(known, own) or not len(own):
        return known
    return distinct(known, own)[: MAX_STEPS + 1]


def _of_many(lookup: Lookup, runs: WorkerRuns) -> tuple[list[WorkerFacts], int]:
    """The figures of many workers, from their roll-ups, which have no notes and say nothing of
    host memory, or of up to `MAX_WORKERS` without one from their histories."""
    reader, source, _ = lookup
    found: list[WorkerFacts] = []
    histories = 0
    for worker, of in sorted(reader.rollups(source, runs).items()):
        if of.missing is None:
            found.append(_facts_of(worker, of.sessions, found[-1].steps if found else NO_STEPS))
        elif histories < MAX_WORKERS:
            histories += 1
            found.append(_worker(lookup, reader.worker_tags(source, runs, worker)))
    steps = {id(one.steps): len(one.steps) for one in found}
    return found, 16 * sum(steps.values()) + 1000 * sum(1 + len(one.devices) for one in found)


def _worker(lookup: Lookup, tags: RunTags) -> WorkerFacts:
    return lookup.reader.cache.computed(
        ("facts", tags.name, tags.worker), tags.version, lambda: _read(lookup, tags)
    )


def _read(lookup: Lookup, tags: RunTags) -> tuple[WorkerFacts, int]:
    reader, source, _ = lookup
    loaded = reader.load(source, tags, basic_streams(tags.worker))
    runs = list(loaded.by_worker.items())
    traced = np.asarray([snapshot.step for snapshot in loaded.run.snapshots], np.int64)
    samples = [run.samples for _, run in runs]
    training = distinct(NO_STEPS, *(one.step[one.is_of("train")] for one in samples))
    steps = distinct(traced, *(one.step for one in samples))
    found, statuses = list[Finding](), []
    for worker, run in runs:
        growths = growth_findings(worker, run) + host_findings(run)
        found += [*growths, *former_findings(run, worker)]
        statuses.append(run_status(run, bool(growths)))
    tables = [run.layer_tables[-1] for _, run in runs if run.layer_tables]
    if any(layer.recomputed is not None for table in tables for layer in table.layers):
        # Findings on recomputed layers need the requests and timelines of traced steps.
        more = reader.load(source, tags, basic_streams(tags.worker) | {REQUESTS, TIMELINES})
        found += [
            one
            for worker, run in more.by_worker.items()
            for one in recomputation_findings(run, worker)
        ]
    ends = [float(one.wall_time.max()) for one in samples if len(one)]
    read = WorkerFacts(
        workers=loaded.run.workers,
        sessions=len(loaded.run.sessions),
        started=loaded.sessions[0].started if loaded.sessions else None,
        training_steps=steps if np.array_equal(training, steps) else training,
        steps=steps,
        phases=frozenset(phase for _, run in runs for phase in phases(run)),
        devices=tuple(
            dataclasses.replace(device, device=full_device_name(worker, device.device))
            for worker, run in runs
            for device in device_facts(run)
        ),
        ooms=len(loaded.run.ooms),
        findings=tuple(found),
        notes=loaded.run.notes,
        damage=loaded.run.damage,
        statuses=tuple(statuses),
        ended=loaded.run.ended is not False,
        recorded_until=max(ends, default=None),
        is_thinned=loaded.run.thinning > 1,
        largest_at_failure=largest_at_failure(loaded.run),
        frozen=any(
            layer.weight_bytes and not layer.trainable
            for _, run in runs
            for table in run.layer_tables
            for layer in table.layers
        ),
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
    text = f"{worker}: memory grows; open one of its devices for the finding."
    grows = finding("growth", text, worker)
    devices = [device for device in summary.devices if device.phase == "train"]
    recorded = (one for one in summary.devices if one.last_in_use_bytes is not None or one.traced)
    return WorkerFacts(
        workers=(worker,),
        sessions=summary.sessions,
        started=min(known_values(sessions, "started"), default=None),
        training_steps=steps,
        steps=steps,
        phases=frozenset(device.phase for device in recorded),
        devices=tuple(
            record_of(DeviceFacts, one, device=full_device_name(worker, one.name))
            for one in devices
        ),
        ooms=sum(device.ooms for device in devices),
        findings=(grows,) if summary.status == "growing" else (),
        statuses=(summary.status,),
        ended=summary.ended is not False,
        recorded_until=summary.last_wall_time,
    )


def _entry(
    tags: RunTags,
    workers: Sequence[WorkerFacts],
    steps: StepRange,
    layers: int,
    damage: Iterable[str],
) -> RunInfo:
    every = [device for worker in workers for device in worker.devices]
    devices = sorted(every, key=lambda one: device_order(one.device))
    failures = known_values(workers, "largest_at_failure")
    frozen = [worker.frozen for worker in workers]
    recorded, damage = _joined(workers, "phases"), list(damage)
    return record_of(
        RunInfo,
        steps,
        run=tags.name,
        version=tags.version,
        sessions=sum(worker.sessions for worker in workers),
        workers=_joined(workers, "workers"),
        started=min(known_values(workers, "started"), default=None),
        status=worst(_joined(workers, "statuses"), bool(damage)),
        ended=all(worker.ended for worker in workers),
        recorded_until=max(known_values(workers, "recorded_until"), default=None),
        rank=0,
        phases=[phase for phase in PHASES if phase in recorded],
        devices=devices,
        most_loaded=most_loaded(
            {one.device: (one.peak_bytes, one.capacity_bytes) for one in devices}
        ),
        ooms=sum(worker.ooms for worker in workers),
        activation_layers=layers,
        frozen=None if None in frozen else any(frozen),
        # Those on host memory last.
        findings=sorted(_joined(workers, "findings"), key=lambda one: one.kind == "host_growth"),
        notes=list(dict.fromkeys(_joined(workers, "notes"))),
        damage=damage,
        largest_at_failure=max(failures, key=operator.itemgetter(0))[1] if failures else None,
    )


def _joined(workers: Sequence[WorkerFacts], name: str) -> list[Any]:
    """The items of all workers in a field."""
    return [item for worker in workers for item in getattr(worker, name)]
