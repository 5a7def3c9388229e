"""The streams of a session, one row of a table each: how its frames are read, joined to a session, and merged to a run.

A later session of a resumed training replaces the steps that it repeats; devices of workers other than ``""`` are named
``<worker>/<device>``.
"""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from tb_memplugin.schema import (
    Counters,
    LayerActivations,
    LayerTable,
    MemoryMap,
    Oom,
    Samples,
    SessionInfo,
    Snapshot,
    StepRequests,
    Timeline,
    WorkerSummary,
    full_device_name,
    join_rows,
    settled_ooms,
    take_rows,
)
from tb_memplugin.storage.frames import Frame, FrameHead, object_bytes, read_frame
from tb_memplugin.storage.read.activation_rows import ActivationPart, ActivationRows, part_of, table_of
from tb_memplugin.storage.read.attempts import LaterSessions
from tb_memplugin.storage.read.columns import (
    join_activations,
    join_samples,
    take_activations,
)
from tb_memplugin.storage.read.worker_samples import samples_of_workers

ROW_BYTES = 400
"""One ledger row, owner or layer: an estimate, above rather than below."""
Content: TypeAlias = Any
"""What one field of `Session` or `Run` holds."""
Joined: TypeAlias = tuple[Content, str | None]
"""Content, and a sentence on what was left out for its size."""


@dataclasses.dataclass(frozen=True, eq=False)  # each is itself alone
class Stream:
    """One stream.

    Attributes:
        tag: Its name in tags.
        words: What sentences on lost frames call its records.
        field: The field of `Session` and of `Run` that holds its content.
        read: Reads a frame of a session, whose identifier comes first; raises FormatError.
        of_frames: Joins what `read` returned for the frames of a session, in order.
        without_repeats: Removes from a session's content what a later session replaces.
        of_sessions: Joins the contents of the sessions of a worker, in order of the steps if that is true.
        of_workers: Joins the contents of several workers.
        objects: Table of a frame to the bytes of the objects that each of its rows becomes.
        has_steps: Whether a frame holds a row for each of the steps that its header states.
        is_needed: Whether `read` needs a column, by its name.
    """

    tag: str
    words: str
    field: str
    read: Callable[[str, Frame], Any]
    of_frames: Callable[[Sequence[Any]], Joined]
    without_repeats: Callable[[Content, LaterSessions], Content]
    of_sessions: Callable[[Sequence[Content], bool], Content]
    of_workers: Callable[[Mapping[str, Content]], Joined]
    objects: Mapping[str, int] = dataclasses.field(default_factory=dict)
    has_steps: bool = False
    is_needed: Callable[[str], bool] = lambda name: True

    def head_bytes(self, head: FrameHead) -> int:
        """Most bytes that a frame takes in memory once it is read, as its head states them."""
        rows = {table: columns[0][2] for table, columns in head.tables.items() if columns}
        return ROW_BYTES + head.nbytes + sum(size * rows.get(table, 0) for table, size in self.objects.items())


def _records(
    tag: str,
    words: str,
    record: type,
    order: Callable[[Any], Any],
    is_repeated: Callable[[LaterSessions, Any], bool] = LaterSessions.replaces,
    of_frames: Callable[[Sequence[Any]], tuple[Any, ...]] = tuple,
    worker_by_worker: bool = False,
    field: str | None = None,
) -> Stream:
    """A stream of one record a frame, each of one device.

    Args:
        order: Key by which a run lists them; of several workers, `worker_by_worker` lists those of each together.
    """

    def of_workers(by_worker: Mapping[str, Sequence[Any]]) -> Joined:
        named = (
            dataclasses.replace(record, device=full_device_name(worker, record.device))
            for worker, records in by_worker.items()
            for record in records
        )
        return tuple(named if worker_by_worker else sorted(named, key=order)), None

    return Stream(
        tag,
        words,
        field or tag,
        read=lambda _, frame: read_frame(record, frame),
        of_frames=lambda records: (of_frames(records), None),
        without_repeats=lambda records, later: tuple(one for one in records if not is_repeated(later, one)),
        of_sessions=lambda contents, _: tuple(sorted(itertools.chain(*contents), key=order)),
        of_workers=of_workers,
        objects=object_bytes(record),
    )


def _rows(
    tag: str,
    words: str,
    read: Callable[[Frame], Any],
    of_frames: Callable[[Sequence[Any]], Joined],
    without_repeats: Callable[[Content, LaterSessions], Content],
    join: Callable[[Sequence[Content]], Joined],
    take: Callable[[Content, Any], Content],
    of_workers: Callable[[Mapping[str, Content]], Joined],
    field: str | None = None,
) -> Stream:
    """A stream of tables with one row a step."""

    def of_sessions(contents: Sequence[Content], in_order: bool) -> Content:
        table, _ = join(contents)
        if in_order and (np.diff(table.step) < 0).any():
            table = take(table, np.argsort(table.step, kind="stable"))
        return table

    return Stream(
        tag,
        words,
        field or tag,
        read=lambda _, frame: read(frame),
        of_frames=of_frames,
        without_repeats=without_repeats,
        of_sessions=of_sessions,
        of_workers=of_workers,
        has_steps=True,
    )


def _step_and_bytes(record: Snapshot | Timeline) -> tuple[int, int]:
    return record.step, record.in_use_bytes


def _is_repeated_map(later: LaterSessions, memory_map: MemoryMap) -> bool:
    return memory_map.step is not None and later.repeats(memory_map.step)


def _activations_of_frames(parts: Sequence[ActivationPart]) -> Joined:
    return join_activations([table_of(ActivationRows(parts))])


def _activations_of_workers(by_worker: Mapping[str, LayerActivations]) -> Joined:
    table, _ = join_activations(list(by_worker.values()))
    return take_activations(table, np.argsort(table.step, kind="stable")), None


def _samples(tag: str, words: str) -> Stream:
    return _rows(
        tag,
        words,
        lambda frame: read_frame(Samples, frame),
        join_samples,
        lambda samples, later: later.without_repeated_samples(samples),
        join_samples,
        take_rows,
        samples_of_workers,
        field="samples",
    )


def _read_meta(session: str, frame: Frame) -> SessionInfo | LayerTable:
    if frame.attributes.get("kind") == "layers":
        return read_frame(LayerTable, frame)
    return read_frame(SessionInfo, frame, session=session)


def _joined_counters(parts: Sequence[Counters]) -> Joined:
    return join_rows(parts) if parts else None, None


def _tables_of_frames(values: Sequence[Any]) -> Joined:
    return tuple(value for value in values if isinstance(value, LayerTable)), None


FIGURES = ("in_use_bytes", "peak_bytes", "capacity_bytes", "pool_bytes")
"""The columns of a device that the list of runs and the comparison of devices need."""


SAMPLES = _samples("samples", "samples")
PEAK = _samples("peak", "")
"""Its records repeat samples, and replace those that are lost."""
SAMPLE_FIGURES = dataclasses.replace(
    SAMPLES,
    read=lambda _, frame: read_frame(Samples, frame, FIGURES),
    is_needed=lambda name: "/" not in name or name.partition("/")[0] in FIGURES,
)
"""Samples with only the `FIGURES` of their devices, which takes half of the time; other columns are unknown."""
ACTIVATIONS = _rows(
    "activations",
    "layer activations",
    lambda frame: part_of(read_frame(LayerActivations, frame)),
    _activations_of_frames,
    lambda table, later: later.without_repeated_activations(table),
    join_activations,
    take_activations,
    _activations_of_workers,
)
SNAPSHOTS = _records(
    "snapshots",
    "snapshots",
    Snapshot,
    order=_step_and_bytes,
)
META = Stream(
    "meta",
    "layer tables",
    "layer_tables",
    read=_read_meta,
    of_frames=_tables_of_frames,
    without_repeats=lambda tables, later: tuple(table for table in tables if not later.repeats(table.step)),
    of_sessions=lambda contents, _: tuple(sorted(itertools.chain(*contents), key=lambda table: table.step)),
    of_workers=lambda by_worker: (next((tables for tables in by_worker.values() if tables), ()), None),
    objects=object_bytes(LayerTable),
)
"""The session's facts, which become `Session.info`, and its layer tables."""
MAPS = _records(
    "maps",
    "memory maps",
    MemoryMap,
    order=lambda memory_map: memory_map.step or 0,
    is_repeated=_is_repeated_map,
    worker_by_worker=True,
)
OOM = _records(
    "oom",
    "failed allocations",
    Oom,
    order=lambda oom: oom.wall_time,
    # Failures stay even if a later session repeats their step: they are why it was started.
    is_repeated=lambda later, oom: False,
    of_frames=settled_ooms,
    field="ooms",
)
TIMELINES = _records(
    "timelines",
    "timelines",
    Timeline,
    order=_step_and_bytes,
    worker_by_worker=True,
)
REQUESTS = _records(
    "requests",
    "requests of steps",
    StepRequests,
    order=lambda one: (one.step, one.wall_time),
    worker_by_worker=True,
)
COUNTERS = Stream(
    "counters",
    "counters",
    "counters",
    read=lambda _, frame: read_frame(Counters, frame),
    of_frames=_joined_counters,
    without_repeats=lambda counters, _: counters,
    of_sessions=lambda contents, _: tuple(one for one in contents if one is not None),
    of_workers=lambda by_worker: (
        tuple(dataclasses.replace(one, worker=worker) for worker, every in by_worker.items() for one in every),
        None,
    ),
    objects=object_bytes(Counters),
)
ROLLUPS = Stream(
    "rollups",
    "",
    "",
    read=lambda _, frame: read_frame(WorkerSummary, frame, worker="", sessions=1),
    of_frames=lambda summaries: (summaries[-1], None),
    without_repeats=lambda summary, _: summary,
    of_sessions=lambda summaries, _: summaries,
    of_workers=lambda by_worker: (by_worker, None),
    objects=object_bytes(WorkerSummary),
)
"""They repeat what the other streams say, and are read instead of these; see `rollups`."""

ALL = (SAMPLES, ACTIVATIONS, SNAPSHOTS, META, MAPS, OOM, TIMELINES, REQUESTS, COUNTERS, PEAK)
"""All streams, in the order in which sentences name their losses."""
BASIC = frozenset({META, SAMPLES, PEAK, SNAPSHOTS, OOM, COUNTERS})
"""The streams that most answers need; the others are read if an answer is about them."""
BASIC_FIGURES = BASIC - {SAMPLES} | {SAMPLE_FIGURES}
"""The same with few columns of the samples: enough for lists of workers."""
OF_TAG: Mapping[str, Stream] = {stream.tag: stream for stream in (*ALL, ROLLUPS)}
MERGED = tuple(stream for stream in ALL if stream is not PEAK)
"""The streams with a field of their own in `Session` and `Run`."""


def basic_streams(worker: str | None) -> frozenset[Stream]:
    """The streams for an answer about all workers.

    A run of one process is soon read by other routes, so it is read whole; of many workers all but one are read for
    such answers alone.
    """
    return BASIC if worker is None else BASIC_FIGURES
