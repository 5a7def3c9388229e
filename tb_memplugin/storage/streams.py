"""The streams of a session: how frames are read, joined to a session, and merged to a run.

A later session of a resumed training replaces the steps that it repeats; devices of workers other
than ``""`` are named ``<worker>/<device>``."""

import bisect
import dataclasses
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from tb_memplugin.schema import (
    PHASES,
    Counters,
    LayerActivations,
    LayerTable,
    MemoryMap,
    Oom,
    Samples,
    Session,
    Snapshot,
    StepRequests,
    Timeline,
    WorkerSummary,
    full_device_name,
    join_rows,
    settled_ooms,
    take_rows,
)
from tb_memplugin.storage.activations import (
    RecordedActivations,
    join_activations,
    without_repeated_cells,
)
from tb_memplugin.storage.samples import join_samples, samples_of_workers

_TRAIN = PHASES.index("train")
Content: TypeAlias = Any
"""What one field of `Session` or `Run` holds."""
Joined: TypeAlias = tuple[Content, str | None]
"""Content, and a sentence on what was left out for its size."""


class LaterSessions:
    """What the sessions after one recorded, which replaces its own records. Lost steps were
    repeated, too."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._snapshots: set[tuple[int, str, str]] = set()
        # Of each session, and the ranges of steps that it trained.
        self.activations: list[tuple[LayerActivations, list[tuple[int, int]]]] = []

    def add(self, session: Session) -> None:
        repeated = list(session.lost_steps)
        trained = session.samples.step[session.samples.phase == _TRAIN]
        if len(trained):
            repeated.append((int(trained.min()), int(trained.max())))
        for first, last in repeated:
            self._add_steps(first, last)
        self._snapshots.update(
            (snapshot.step, snapshot.phase, snapshot.device) for snapshot in session.snapshots
        )
        if len(session.activations):
            self.activations.append(
                (session.activations, [*repeated, *session.lost_activation_steps])
            )

    def replacing(self, session: Session) -> "LaterSessions":
        """What replaces records of a session: one that trained no step was no attempt that a later
        one repeats.

        Its traced steps are replaced by those of the same phase only."""
        if (session.samples.phase == _TRAIN).any() or not len(session.samples):
            return self
        others = LaterSessions()
        others._snapshots = self._snapshots
        return others

    def repeats(self, step: int) -> bool:
        at = bisect.bisect_right(self._firsts, step) - 1
        return at >= 0 and step <= self._lasts[at]

    def replaces(self, record: Snapshot | Timeline | StepRequests) -> bool:
        """Whether a later session trained or traced the record's step again."""
        return (
            self.repeats(record.step)
            or (record.step, record.phase, record.device) in self._snapshots
        )

    def without_repeated_samples(self, samples: Content) -> Content:
        if not self._firsts or not len(samples):
            return samples
        at = np.searchsorted(self._firsts, samples.step, side="right") - 1
        keep = (at < 0) | (samples.step > np.asarray(self._lasts)[at])
        return samples if keep.all() else take_rows(samples, keep)

    def _add_steps(self, first: int, last: int) -> None:
        # The ranges stay disjoint and sorted: those that overlap the new one are merged with it.
        begin = bisect.bisect_left(self._lasts, first)
        end = bisect.bisect_right(self._firsts, last)
        if begin < end:
            first, last = min(first, self._firsts[begin]), max(last, self._lasts[end - 1])
        self._firsts[begin:end] = [first]
        self._lasts[begin:end] = [last]


class Stream:
    """A stream of records, one a frame, each of one device; other streams override its methods.
    Each is itself alone.

    Args:
        words: What sentences on lost frames call its records.
        record: The class of its records.
        field: The field of `Session` and of `Run` that holds its content; by default its tag.
        order: Key by which a run lists them; of several workers, `worker_by_worker` lists those of
            each together.

    Attributes:
        has_steps: Whether a frame holds a row for each of the steps that its header states.
        heads_only: Whether frames are read without their columns.
        only: The columns of a device that are read, all if it is empty; the others are unknown."""

    has_steps = False
    heads_only = False
    only: Collection[str] = ()

    def __init__(
        self,
        tag: str,
        words: str,
        record: Any,
        field: str | None = None,
        order: Callable[[Any], Any] = lambda one: (one.step, one.in_use_bytes),
        worker_by_worker: bool = False,
    ) -> None:
        self.tag, self.words, self.field = tag, words, tag if field is None else field
        self.record, self._order, self._worker_by_worker = record, order, worker_by_worker

    def needs_column(self, column: str) -> bool:
        """Whether a column is read, by its name; those of devices are ``<column>/<device>``."""
        return not self.only or "/" not in column or column.partition("/")[0] in self.only

    def of_frames(self, contents: Sequence[Any]) -> Joined:
        """Join the records of a session's frames, in order."""
        return tuple(contents), None

    def without_repeats(self, content: Content, later: LaterSessions) -> Content:
        """A session's content without what a later session replaces."""
        return tuple(one for one in content if not later.replaces(one))

    def of_sessions(self, contents: Sequence[Content], in_order: bool) -> Content:
        """Join the contents of the sessions of a worker, in order of the steps if that is true."""
        return tuple(sorted(itertools.chain(*contents), key=self._order))

    def of_workers(self, by_worker: Mapping[str, Content]) -> Joined:
        """Join the contents of several workers."""
        named = (
            dataclasses.replace(record, device=full_device_name(worker, record.device))
            for worker, records in by_worker.items()
            for record in records
        )
        return tuple(named if self._worker_by_worker else sorted(named, key=self._order)), None


def _in_order(table: Content, wanted: bool, take: Callable[..., Content]) -> Content:
    unordered = wanted and (np.diff(table.step) < 0).any()
    return take(table, np.argsort(table.step, kind="stable")) if unordered else table


class _Samples(Stream):
    has_steps = True

    def __init__(self, tag: str, words: str, only: Collection[str] = ()) -> None:
        super().__init__(tag, words, Samples, "samples")
        self.only = only

    def of_frames(self, contents: Sequence[Any]) -> Joined:
        return join_samples(contents)

    def without_repeats(self, content: Content, later: LaterSessions) -> Content:
        return later.without_repeated_samples(content)

    def of_sessions(self, contents: Sequence[Content], in_order: bool) -> Content:
        return _in_order(join_samples(contents)[0], in_order, take_rows)

    def of_workers(self, by_worker: Mapping[str, Content]) -> Joined:
        return samples_of_workers(by_worker)


class _Activations(Stream):
    has_steps = True

    def __init__(self, heads_only: bool = False) -> None:
        super().__init__("activations", "layer activations", LayerActivations)
        self.heads_only = heads_only

    def of_frames(self, contents: Sequence[Any]) -> Joined:
        return join_activations([RecordedActivations(contents)])

    def without_repeats(self, content: Content, later: LaterSessions) -> Content:
        for activations, trained in later.activations:
            content = without_repeated_cells(content, activations, trained)
        return content

    def of_sessions(self, contents: Sequence[Content], in_order: bool) -> Content:
        return _in_order(join_activations(contents)[0], in_order, RecordedActivations.reordered)

    def of_workers(self, by_worker: Mapping[str, Content]) -> Joined:
        return self.of_sessions(list(by_worker.values()), in_order=True), None


class _Meta(Stream):
    """The session's facts, which become `Session.info`, and its layer tables."""

    def of_frames(self, contents: Sequence[Any]) -> Joined:
        return tuple(one for one in contents if isinstance(one, LayerTable)), None

    def without_repeats(self, content: Content, later: LaterSessions) -> Content:
        return tuple(one for one in content if one.step is None or not later.repeats(one.step))

    def of_workers(self, by_worker: Mapping[str, Content]) -> Joined:
        return next((tables for tables in by_worker.values() if tables), ()), None


class _Maps(Stream):
    without_repeats = _Meta.without_repeats  # a map may be of no step


class _Ooms(Stream):
    def of_frames(self, contents: Sequence[Any]) -> Joined:
        return settled_ooms(contents), None

    def without_repeats(self, content: Content, later: LaterSessions) -> Content:
        # failures stay even if a later session repeats their step: they are why it was started
        return content


class _Counters(Stream):
    without_repeats = _Ooms.without_repeats

    def of_frames(self, contents: Sequence[Any]) -> Joined:
        return join_rows(contents) if contents else None, None

    def of_sessions(self, contents: Sequence[Content], in_order: bool) -> Content:
        return tuple(one for one in contents if one is not None)

    def of_workers(self, by_worker: Mapping[str, Content]) -> Joined:
        pairs = [(worker, one) for worker, every in by_worker.items() for one in every]
        return tuple(dataclasses.replace(one, worker=worker) for worker, one in pairs), None


FIGURES = ("in_use_bytes", "peak_bytes", "capacity_bytes", "pool_bytes")
"""The columns of a device that the list of runs and the comparison of devices need."""
SAMPLES = _Samples("samples", "samples")
SAMPLE_FIGURES = _Samples("samples", "samples", FIGURES)
"""Samples with only the `FIGURES` of their devices, which takes half of the time."""
PEAK = _Samples("peak", "")
"""Its records repeat samples, and replace those that are lost."""
ACTIVATIONS, ACTIVATION_HEADS = _Activations(), _Activations(heads_only=True)
SNAPSHOTS = Stream("snapshots", "snapshots", Snapshot)
META = _Meta("meta", "layer tables", LayerTable, "layer_tables", order=lambda table: table.step)
MAPS = _Maps(
    "maps", "memory maps", MemoryMap, order=lambda one: one.step or 0, worker_by_worker=True
)
OOM = _Ooms("oom", "failed allocations", Oom, "ooms", order=lambda oom: oom.wall_time)
TIMELINES = Stream("timelines", "timelines", Timeline, worker_by_worker=True)
REQUESTS = Stream(
    "requests",
    "requests of steps",
    StepRequests,
    order=lambda one: (one.step, one.wall_time),
    worker_by_worker=True,
)
COUNTERS = _Counters("counters", "counters", Counters)
ROLLUPS = Stream("rollups", "", WorkerSummary, "")
"""They repeat what the other streams say, and are read instead of these; see `rollups`."""

ALL = (SAMPLES, ACTIVATIONS, SNAPSHOTS, META, MAPS, OOM, TIMELINES, REQUESTS, COUNTERS, PEAK)
"""All streams, in the order in which sentences name their losses."""
BASIC = frozenset({META, SAMPLES, PEAK, SNAPSHOTS, OOM, COUNTERS})
"""The streams that most answers need; the others are read if an answer is about them."""
BASIC_FIGURES = BASIC - {SAMPLES} | {SAMPLE_FIGURES}
"""The same with few columns of the samples: enough for lists of workers."""
OF_TAG: Mapping[str, Stream] = {stream.tag: stream for stream in (*ALL, ROLLUPS)}
ON_THE_WAY = (ACTIVATIONS, SNAPSHOTS, MAPS, TIMELINES, REQUESTS, PEAK)
"""Streams whose records are of steps that have samples."""
MERGED = tuple(stream for stream in ALL if stream is not PEAK)
"""The streams with a field of their own in `Session` and `Run`."""


def basic_streams(worker: str | None) -> frozenset[Stream]:
    """The streams for an answer about all workers. A run of one process is soon read by other
    routes, so as a whole."""
    return BASIC if worker is None else BASIC_FIGURES
