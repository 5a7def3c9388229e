"""Sessions of a run to the run. Pure.

A resumed training is a second session that repeats some steps; the later session's data replaces the earlier one's.
Processes that record at the same time are workers, and the data of all is kept. Each worker has its own subdirectory;
if two write into the same one, the session identifies them. Devices of workers other than ``""`` are named
``<worker>/<device>``.
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from tb_memplugin.model import HostMemory, Integers, Run, Session, Snapshot, Timeline, full_device_name
from tb_memplugin.reader.attempts import LaterSessions, hidden_by_losses, without_repeated_cells
from tb_memplugin.reader.columns import join_activations, join_samples, take_activations
from tb_memplugin.reader.device_columns import take_rows
from tb_memplugin.reader.host_columns import empty_host, join_host, take_host
from tb_memplugin.reader.worker_samples import samples_of_workers


@dataclasses.dataclass(frozen=True)
class SessionSpan:
    """A session of the merged run; `first_step` is None if the session recorded no step."""

    session: str
    worker: str
    started: float
    first_step: int | None


@dataclasses.dataclass(frozen=True)
class MergedRun:
    """A run, merged and by worker.

    Attributes:
        run: All workers together.
        by_worker: Worker name to the run of that worker, with devices under their own names.
        sessions: Sorted by start time.
    """

    run: Run
    by_worker: Mapping[str, Run]
    sessions: tuple[SessionSpan, ...]


def merge(
    name: str, sessions: Sequence[tuple[str, Session]], damage: Sequence[str] = (), all_attempts: bool = False
) -> MergedRun:
    """Merge (worker, session) pairs into a run.

    With `all_attempts`, repeated steps are kept, in order of the sessions.
    """
    ordered = sorted(sessions, key=lambda pair: (pair[1].info.started, pair[1].info.session))
    lanes = _lanes(ordered)
    by_worker = {
        worker: _merge_sessions(name, worker, of_worker, all_attempts) for worker, of_worker in sorted(lanes.items())
    }
    run = by_worker[""] if set(by_worker) == {""} else _merge_workers(name, by_worker)
    run = dataclasses.replace(
        run, sessions=tuple(session.info.session for _, session in ordered), damage=(*damage, *run.damage)
    )
    spans = [
        SessionSpan(session.info.session, worker, session.info.started, _first_step(session))
        for worker, of_worker in lanes.items()
        for session in of_worker
    ]
    return MergedRun(run, by_worker, tuple(sorted(spans, key=lambda span: (span.started, span.session))))


def _lanes(ordered: Sequence[tuple[str, Session]]) -> dict[str, list[Session]]:
    """Worker to its sessions. A session that starts before the worker's last one ended is a worker of its own."""
    lanes: dict[str, list[Session]] = {}
    ends: dict[str, float] = {}
    for worker, session in ordered:
        times = session.samples.wall_time
        lane = worker
        if len(times):
            if times.min() < ends.get(worker, -np.inf):
                lane = f"{worker}/{session.info.session}" if worker else session.info.session
            ends[lane] = max(float(times.max()), ends.get(lane, -np.inf))
        lanes.setdefault(lane, []).append(session)
    return lanes


def _merge_sessions(name: str, worker: str, sessions: Sequence[Session], all_attempts: bool) -> Run:
    samples = [session.samples for session in sessions]
    activations = [session.activations for session in sessions]
    tables = [session.layer_tables for session in sessions]
    snapshots = [session.snapshots for session in sessions]
    maps = [session.maps for session in sessions]
    timelines = [session.timelines for session in sessions]
    requests = [session.requests for session in sessions]
    host = [empty_host() if session.host is None else session.host for session in sessions]
    hidden: list[str] = []
    if not all_attempts:
        later = LaterSessions()
        # From the last session backward, so that the steps of later sessions are known.
        for at in range(len(sessions) - 1, -1, -1):
            samples[at] = later.without_repeated_samples(samples[at])
            host[at] = later.without_repeated_parts(host[at])
            tables[at] = tuple(table for table in tables[at] if not later.repeats(table.step))
            maps[at] = tuple(
                memory_map for memory_map in maps[at] if memory_map.step is None or not later.repeats(memory_map.step)
            )
            snapshots[at] = tuple(snapshot for snapshot in snapshots[at] if not later.replaces(snapshot))
            timelines[at] = tuple(timeline for timeline in timelines[at] if not later.replaces(timeline))
            requests[at] = tuple(one for one in requests[at] if not later.replaces(one))
            for of_later, trained in later.activations:
                activations[at] = without_repeated_cells(activations[at], of_later, trained)
            hidden[:0] = hidden_by_losses(sessions[at], sessions[:at])
            later.add(sessions[at])
    joined, _ = join_samples(samples)
    table, _ = join_activations(activations)
    parts = join_host(host)
    if not all_attempts:
        joined = take_rows(joined, np.argsort(joined.step, kind="stable")) if _unsorted(joined.step) else joined
        table = take_activations(table, np.argsort(table.step, kind="stable")) if _unsorted(table.step) else table
        parts = take_host(parts, np.argsort(parts.step, kind="stable")) if _unsorted(parts.step) else parts
    return Run(
        name=name,
        sessions=tuple(session.info.session for session in sessions),
        workers=(worker,),
        layer_tables=tuple(sorted(itertools.chain(*tables), key=lambda table: table.step)),
        samples=joined,
        activations=table,
        snapshots=tuple(sorted(itertools.chain(*snapshots), key=_step_and_bytes)),
        notes=tuple(dict.fromkeys(note for session in sessions for note in session.info.notes)),
        damage=tuple(hidden),
        maps=tuple(sorted(itertools.chain(*maps), key=lambda memory_map: memory_map.step or 0)),
        # Failures stay even if a later session repeats their step: they are why it was started.
        ooms=tuple(sorted((oom for session in sessions for oom in session.ooms), key=lambda oom: oom.wall_time)),
        session_starts=tuple(session.info.started for session in sessions),
        timelines=tuple(sorted(itertools.chain(*timelines), key=_step_and_bytes)),
        requests=tuple(sorted(itertools.chain(*requests), key=lambda one: (one.step, one.wall_time))),
        counters=tuple(session.counters for session in sessions if session.counters is not None),
        ended=_ended(sessions),
        host={worker: HostMemory(joined, parts)},
    )


def _ended(sessions: Sequence[Session]) -> bool | None:
    """Whether the last session said that it ended; only a recorder's does."""
    last = sessions[-1].info if sessions else None
    return None if last is None or last.producer != "recorder" else last.ended is not None


def _merge_workers(name: str, by_worker: Mapping[str, Run]) -> Run:
    samples, sentence = samples_of_workers({worker: run.samples for worker, run in by_worker.items()})
    activations, _ = join_activations([run.activations for run in by_worker.values()])
    snapshots = [
        dataclasses.replace(snapshot, device=full_device_name(worker, snapshot.device))
        for worker, run in by_worker.items()
        for snapshot in run.snapshots
    ]
    tables = next((run.layer_tables for run in by_worker.values() if run.layer_tables), ())
    notes = (f"{worker}: {note}" if worker else note for worker, run in by_worker.items() for note in run.notes)
    return Run(
        name=name,
        sessions=(),
        workers=tuple(by_worker),
        layer_tables=tables,
        samples=samples,
        activations=take_activations(activations, np.argsort(activations.step, kind="stable")),
        snapshots=tuple(sorted(snapshots, key=_step_and_bytes)),
        notes=tuple(dict.fromkeys(notes)),
        damage=(*itertools.chain(*(run.damage for run in by_worker.values())), *((sentence,) if sentence else ())),
        maps=tuple(
            dataclasses.replace(memory_map, device=full_device_name(worker, memory_map.device))
            for worker, run in by_worker.items()
            for memory_map in run.maps
        ),
        ooms=tuple(
            sorted(
                (
                    dataclasses.replace(oom, device=full_device_name(worker, oom.device))
                    for worker, run in by_worker.items()
                    for oom in run.ooms
                ),
                key=lambda oom: oom.wall_time,
            )
        ),
        session_starts=tuple(sorted(start for run in by_worker.values() for start in run.session_starts)),
        timelines=tuple(
            dataclasses.replace(timeline, device=full_device_name(worker, timeline.device))
            for worker, run in by_worker.items()
            for timeline in run.timelines
        ),
        requests=tuple(
            dataclasses.replace(one, device=full_device_name(worker, one.device))
            for worker, run in by_worker.items()
            for one in run.requests
        ),
        counters=tuple(
            dataclasses.replace(one, worker=worker) for worker, run in by_worker.items() for one in run.counters
        ),
        host={worker: memory for run in by_worker.values() for worker, memory in run.host.items()},
    )


def _step_and_bytes(record: Snapshot | Timeline) -> tuple[int, int]:
    return record.step, record.in_use_bytes


def _unsorted(steps: Integers) -> bool:
    return bool((np.diff(steps) < 0).any())


def _first_step(session: Session) -> int | None:
    steps = [int(part.step.min()) for part in (session.samples, session.activations) if len(part)]
    steps += [table.step for table in session.layer_tables] + [snapshot.step for snapshot in session.snapshots]
    steps += [oom.step for oom in session.ooms if oom.step is not None]
    return min(steps, default=None)
