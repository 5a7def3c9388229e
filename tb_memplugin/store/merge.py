"""From the sessions of a run to the run: which session's word counts for which step, and which process it was. Pure.

A training that is killed and resumed is a second session that repeats some steps: the later one counts for them. Two
processes that record at the same time are workers, and both count: a worker has a sub-directory of its own, or, where
two write into one directory by accident, is told from the other by its session. The devices of any worker but ``""``
are named ``<worker>/<device>``.
"""

import bisect
import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from tb_memplugin.codec import MISSING
from tb_memplugin.model import (
    PHASES,
    AllocatorMap,
    Integers,
    LayerActivations,
    LayerTable,
    Oom,
    Run,
    Samples,
    Session,
    SessionInfo,
    Snapshot,
    Timeline,
)
from tb_memplugin.store.columns import (
    join_activations,
    join_samples,
    rows_not_in,
    take_activations,
    take_samples,
)

_TRAIN = PHASES.index("train")


@dataclasses.dataclass(frozen=True)
class SessionSpan:
    """A session's place in the merged run; `first_step` is None if it holds nothing but facts about itself."""

    session: str
    worker: str
    started: float
    first_step: int | None


@dataclasses.dataclass(frozen=True)
class MergedRun:
    """A run, whole and by worker.

    Attributes:
        run: All workers together.
        by_worker: Worker name to the run as that worker saw it, devices without the worker's name.
        sessions: In order of their start.
    """

    run: Run
    by_worker: Mapping[str, Run]
    sessions: tuple[SessionSpan, ...]


def make_session(
    identifier: str,
    meta: Sequence[SessionInfo | LayerTable],
    samples: Sequence[Samples],
    peaks: Sequence[Samples],
    activations: Sequence[LayerActivations],
    snapshots: Sequence[Snapshot],
    maps: Sequence[AllocatorMap] = (),
    ooms: Sequence[Oom] = (),
    timelines: Sequence[Timeline] = (),
) -> tuple[Session, list[str]]:
    """A session from what its frames said, in order, with sentences on what was left out for its size.

    Of the facts, the last ones count; a session without facts still shows its figures. A peak whose sample was lost
    stands in for it.
    """
    sentences = []
    joined, sentence = join_samples(samples)
    sentences.append(sentence)
    highest, _ = join_samples(peaks)
    only_peaks = rows_not_in(highest, joined)
    if only_peaks.any():
        joined, sentence = join_samples([joined, take_samples(highest, only_peaks)])
        sentences.append(sentence)
        joined = take_samples(joined, np.argsort(joined.wall_time, kind="stable"))
    table, sentence = join_activations(activations)
    sentences.append(sentence)
    facts = [value for value in meta if isinstance(value, SessionInfo)]
    session = Session(
        info=facts[-1] if facts else _unknown_session(identifier, joined, table),
        layer_tables=tuple(value for value in meta if isinstance(value, LayerTable)),
        samples=joined,
        activations=table,
        snapshots=tuple(snapshots),
        maps=tuple(maps),
        ooms=_last_words(ooms),
        timelines=tuple(timelines),
    )
    return session, [text for text in sentences if text]


def _last_words(ooms: Sequence[Oom]) -> tuple[Oom, ...]:
    """Of each failure the last record, without those that were taken back."""
    last = {oom.identifier: oom for oom in ooms}
    return tuple(oom for oom in last.values() if oom.status != "tolerated")


def merge(
    name: str, sessions: Sequence[tuple[str, Session]], damage: Sequence[str] = (), all_attempts: bool = False
) -> MergedRun:
    """The run that the (worker, session) pairs make up.

    With `all_attempts`, sessions replace nothing: rows and snapshots of every one are kept, in order of the sessions.
    """
    ordered = sorted(sessions, key=lambda pair: (pair[1].info.started, pair[1].info.session))
    lanes = _lanes(ordered)
    by_worker = {
        worker: _merge_sessions(name, worker, of_worker, all_attempts) for worker, of_worker in sorted(lanes.items())
    }
    run = by_worker[""] if set(by_worker) == {""} else _merge_workers(name, by_worker)
    run = dataclasses.replace(run, sessions=tuple(session.info.session for _, session in ordered), damage=tuple(damage))
    spans = [
        SessionSpan(session.info.session, worker, session.info.started, _first_step(session))
        for worker, of_worker in lanes.items()
        for session in of_worker
    ]
    return MergedRun(run, by_worker, tuple(sorted(spans, key=lambda span: (span.started, span.session))))


def _lanes(ordered: Sequence[tuple[str, Session]]) -> dict[str, list[Session]]:
    """Worker -> its sessions. One that begins before the worker's last one ended is another process: its own worker."""
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
    if not all_attempts:
        later = _Later()
        # From the last session back: what the ones after it repeat is known by then.
        for at in range(len(sessions) - 1, -1, -1):
            samples[at] = later.without_repeated_samples(samples[at])
            tables[at] = tuple(table for table in tables[at] if not later.repeats(table.step))
            maps[at] = tuple(taken for taken in maps[at] if taken.step is None or not later.repeats(taken.step))
            snapshots[at] = tuple(taken for taken in snapshots[at] if not later.replaces(taken))
            timelines[at] = tuple(taken for taken in timelines[at] if not later.replaces(taken))
            for of_later in later.activations:
                activations[at] = _without_cells(activations[at], of_later)
            later.add(sessions[at])
    joined, _ = join_samples(samples)
    table, _ = join_activations(activations)
    if not all_attempts:
        joined = take_samples(joined, np.argsort(joined.step, kind="stable")) if _unsorted(joined.step) else joined
        table = take_activations(table, np.argsort(table.step, kind="stable")) if _unsorted(table.step) else table
    return Run(
        name=name,
        sessions=tuple(session.info.session for session in sessions),
        workers=(worker,),
        layer_tables=tuple(sorted((table for of_one in tables for table in of_one), key=lambda table: table.step)),
        samples=joined,
        activations=table,
        snapshots=tuple(
            sorted(
                (taken for of_one in snapshots for taken in of_one), key=lambda taken: (taken.step, taken.in_use_bytes)
            )
        ),
        notes=tuple(dict.fromkeys(note for session in sessions for note in session.info.notes)),
        damage=(),
        maps=tuple(sorted((taken for of_one in maps for taken in of_one), key=lambda taken: taken.step or 0)),
        # Also those of steps that a later session repeats: that it died there is why there is a later session.
        ooms=tuple(sorted((oom for session in sessions for oom in session.ooms), key=lambda oom: oom.wall_time)),
        session_starts=tuple(session.info.started for session in sessions),
        timelines=tuple(
            sorted(
                (taken for of_one in timelines for taken in of_one), key=lambda taken: (taken.step, taken.in_use_bytes)
            )
        ),
    )


def _merge_workers(name: str, by_worker: Mapping[str, Run]) -> Run:
    samples, _ = join_samples([_with_named_devices(run.samples, worker) for worker, run in by_worker.items()])
    activations, _ = join_activations([run.activations for run in by_worker.values()])
    snapshots = [
        dataclasses.replace(taken, device=device_name(worker, taken.device))
        for worker, run in by_worker.items()
        for taken in run.snapshots
    ]
    tables = next((run.layer_tables for run in by_worker.values() if run.layer_tables), ())
    notes = (f"{worker}: {note}" if worker else note for worker, run in by_worker.items() for note in run.notes)
    return Run(
        name=name,
        sessions=(),
        workers=tuple(by_worker),
        layer_tables=tables,
        samples=take_samples(samples, np.argsort(samples.step, kind="stable")),
        activations=take_activations(activations, np.argsort(activations.step, kind="stable")),
        snapshots=tuple(sorted(snapshots, key=lambda taken: (taken.step, taken.in_use_bytes))),
        notes=tuple(dict.fromkeys(notes)),
        damage=(),
        maps=tuple(
            dataclasses.replace(taken, device=device_name(worker, taken.device))
            for worker, run in by_worker.items()
            for taken in run.maps
        ),
        ooms=tuple(
            sorted(
                (
                    dataclasses.replace(oom, device=device_name(worker, oom.device))
                    for worker, run in by_worker.items()
                    for oom in run.ooms
                ),
                key=lambda oom: oom.wall_time,
            )
        ),
        session_starts=tuple(sorted(start for run in by_worker.values() for start in run.session_starts)),
        timelines=tuple(
            dataclasses.replace(taken, device=device_name(worker, taken.device))
            for worker, run in by_worker.items()
            for taken in run.timelines
        ),
    )


def device_name(worker: str, device: str) -> str:
    """The name of a worker's device in the merged run."""
    return f"{worker}/{device}" if worker else device


def _with_named_devices(samples: Samples, worker: str) -> Samples:
    return dataclasses.replace(
        samples, devices={device_name(worker, device): figures for device, figures in samples.devices.items()}
    )


class _Later:
    """What the sessions after one repeat: the steps they trained, the snapshots and the activations they took."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._snapshots: set[tuple[int, str, str]] = set()
        self.activations: list[LayerActivations] = []

    def add(self, session: Session) -> None:
        """Takes in a session."""
        trained = session.samples.step[session.samples.phase == _TRAIN]
        if len(trained):
            self._add_steps(int(trained.min()), int(trained.max()))
        self._snapshots.update((taken.step, taken.phase, taken.device) for taken in session.snapshots)
        if len(session.activations):
            self.activations.append(session.activations)

    def repeats(self, step: int) -> bool:
        """Whether `step` was trained again."""
        at = bisect.bisect_right(self._firsts, step) - 1
        return at >= 0 and step <= self._lasts[at]

    def replaces(self, taken: Snapshot | Timeline) -> bool:
        """Whether the snapshot's or the timeline's step was trained or traced again."""
        return self.repeats(taken.step) or (taken.step, taken.phase, taken.device) in self._snapshots

    def without_repeated_samples(self, samples: Samples) -> Samples:
        """`samples` of the steps that were not trained again."""
        if not self._firsts or not len(samples):
            return samples
        at = np.searchsorted(self._firsts, samples.step, side="right") - 1
        keep = (at < 0) | (samples.step > np.asarray(self._lasts)[at])
        return samples if keep.all() else take_samples(samples, keep)

    def _add_steps(self, first: int, last: int) -> None:
        # The stretches are kept apart and in order: those that touch the new one become part of it.
        begin = bisect.bisect_left(self._lasts, first)
        end = bisect.bisect_right(self._firsts, last)
        if begin < end:
            first, last = min(first, self._firsts[begin]), max(last, self._lasts[end - 1])
        self._firsts[begin:end] = [first]
        self._lasts[begin:end] = [last]


def _without_cells(earlier: LayerActivations, later: LayerActivations) -> LayerActivations:
    """`earlier` without the figures of layers that `later` has for the same steps; another layer's figures stay."""
    if not len(earlier) or not len(later):
        return earlier
    repeated = (earlier.step >= later.step.min()) & (earlier.step <= later.step.max())
    common = set(later.layers)
    columns = [at for at, path in enumerate(earlier.layers) if path in common]
    if not repeated.any() or not columns:
        return earlier
    if len(columns) == len(earlier.layers):
        return take_activations(earlier, ~repeated)
    values = earlier.bytes.copy()
    values[np.ix_(np.flatnonzero(repeated), np.asarray(columns))] = MISSING
    cleared = dataclasses.replace(earlier, bytes=values)
    return take_activations(cleared, ~(repeated & (values == MISSING).all(axis=1)))


def _unsorted(steps: Integers) -> bool:
    return bool((np.diff(steps) < 0).any())


def _first_step(session: Session) -> int | None:
    steps = [int(part.step.min()) for part in (session.samples, session.activations) if len(part)]
    steps += [table.step for table in session.layer_tables] + [taken.step for taken in session.snapshots]
    steps += [oom.step for oom in session.ooms if oom.step is not None]
    return min(steps, default=None)


def _unknown_session(identifier: str, samples: Samples, activations: LayerActivations) -> SessionInfo:
    times = [float(part.wall_time.min()) for part in (samples, activations) if len(part)]
    note = f"the facts about session {identifier} could not be read; its figures are shown"
    return SessionInfo(identifier, min(times, default=0.0), "recorder", {}, (note,))
