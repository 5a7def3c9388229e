"""Writes event files of a run: frames of every stream under rotating tags, in a directory of their
own."""

import dataclasses
import functools
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from tensorboard.compat.proto import event_pb2, summary_pb2

from tb_memplugin.schema import (
    LISTS,
    MISSING,
    NO_SAMPLES,
    Counters,
    LayerActivations,
    LayerTable,
    LedgerRow,
    MemoryMap,
    Oom,
    Phase,
    Run,
    Samples,
    SessionInfo,
    Snapshot,
    StepRequests,
    Timeline,
    WorkerSummary,
    group_sums,
    join_rows,
    measured_pools,
    settled_ooms,
    take_rows,
    with_failed_steps,
)
from tb_memplugin.storage.frames import (
    DIRECTORY_NAME,
    LocalRecordFile,
    RecordFile,
    TagRotation,
    codec,
    frame_of,
    frame_summary,
    new_session_id,
    scalar_summary,
)
from tb_memplugin.storage.write import recordings
from tb_memplugin.version import __version__

MAX_SAMPLE_ROWS = 4096
"""Most samples per frame: keeps it below 1 MB for some 30 devices."""
MAX_ACTIVATION_VALUES = 1 << 17
"""Most layer × step values per frame (1 MiB before compression)."""
MAX_COUNTER_ROWS = 4096
"""Most rows of counters per frame."""
ROLLUP_SECONDS = 30.0
ROLLUP_SHARE = 0.01
"""A flush writes a roll-up if the last one is older than this and than this share of the session's
time so far, sooner in the first minute."""

MAX_ROWS = 1024
"""Most rows of samples that are kept, enough for the trend of eight rows a bucket."""
MAX_FAILURES = 1000
"""Most records of failed allocations that are kept."""

_NO_ACTIVATIONS = LayerActivations(
    np.empty(0, np.int64), np.empty(0), (), np.empty((0, 0), np.int64)
)
Summarize: TypeAlias = Callable[[Run], WorkerSummary | None]


TracedRecord: TypeAlias = Snapshot | MemoryMap | Timeline | StepRequests
_STREAMS: dict[type, str] = {
    Snapshot: "snapshots",
    MemoryMap: "maps",
    Timeline: "timelines",
    StepRequests: "requests",
}


@dataclasses.dataclass(frozen=True)
class PackedRecord:
    """A record of a traced step in the form in which it is stored; of a snapshot also what a
    roll-up needs."""

    stream: str
    frame: codec.PackedFrame
    kept: Snapshot | None


def pack(record: TracedRecord) -> PackedRecord:
    stream = _STREAMS[type(record)]
    kept = _small(record) if isinstance(record, Snapshot) else None
    return PackedRecord(stream, codec.pack(frame_of(stream, record, 0)), kept)


class RunWriter:
    """One session's event files in ``<run_directory>/memory[/<worker>]``. Not thread-safe: one
    thread owns it.

    Args:
        run_directory: The run, e.g. ``runs/exp1``; created if missing.
        producer: The component that records.
        versions: Package versions to store, in addition to this package's.
        worker: Name of this process among those that write into the same run; becomes a
            subdirectory.
        max_file_bytes: Start a new event file above this size: on remote file systems each flush
            uploads the whole file.
        open_file: Function that opens a new record file at a path; default: `LocalRecordFile`,
            which can also append.
        make_directories: Function that creates a directory and its parents; default: on a local
            disk.
        summarize: Makes the roll-ups; by default there are none.

    Raises:
        OSError (or an error of `open_file`): The directory cannot be created or written."""

    def __init__(
        self,
        run_directory: str | os.PathLike[str],
        *,
        producer: Literal["recorder", "summary", "import"] = "recorder",
        versions: Mapping[str, str] | None = None,
        worker: str = "",
        max_file_bytes: int | None = None,
        open_file: Callable[[str], RecordFile] | None = None,
        make_directories: Callable[[str], Any] | None = None,
        summarize: Summarize | None = None,
    ) -> None:
        self._place = os.fspath(run_directory).rstrip("/"), worker
        self._open_file = open_file
        self._make_directories = make_directories or functools.partial(os.makedirs, exist_ok=True)
        self._max_file_bytes = max_file_bytes
        self._summarize = summarize
        self._producer: Literal["recorder", "summary", "import"] = producer
        self._versions = {"tb_memplugin": __version__, **(versions or {})}
        self.info: SessionInfo
        self._unflushed = False
        self._table: LayerTable | None = None
        self._path = ""
        self._file: RecordFile | None = None
        self._mark: int | None = None
        try:
            self._begin_session()
        except BaseException:
            self.abandon()
            raise

    def note(self, sentence: str, step: int = 0) -> None:
        if sentence in self.info.notes:
            return
        self.info = dataclasses.replace(self.info, notes=(*self.info.notes, sentence))
        self._write("meta", self.info, step)

    def analyzing(self, step: int | None) -> None:
        """Add to the session's facts, and flush, that a traced step is being analyzed; None removes
        that again."""
        self.info = dataclasses.replace(self.info, analyzing=step)
        self._write("meta", self.info, step or 0)
        self.flush()

    def end(self) -> None:
        """Add to the session's facts that it ended now. Readers take a session without this for
        interrupted.

        Nothing is written after `close` if another process records into the directory by now."""
        if self._file is None and self._open_file is None and self._is_taken():
            return
        self.info = dataclasses.replace(self.info, ended=time.time())
        self._write("meta", self.info)
        self._rolled_up = False
        self.roll_up()

    def layer_table(self, table: LayerTable) -> None:
        self._table = table
        self._write("meta", table, kind="layers")

    def samples(self, samples: Samples) -> None:
        self._write_rows("samples", samples, MAX_SAMPLE_ROWS)
        for row in self._new_peaks(samples):
            self._write("peak", take_rows(samples, slice(row, row + 1)))
        self._keep(KeptSession.add_samples, samples)

    def activations(self, activations: LayerActivations) -> None:
        rows = max(1, MAX_ACTIVATION_VALUES // max(1, len(activations.layers)))
        self._write_rows("activations", activations, rows)

    def traced(self, record: TracedRecord | PackedRecord) -> None:
        """Write a record of a traced step."""
        packed = record if isinstance(record, PackedRecord) else pack(record)
        self._add(packed.stream, packed.frame)
        if packed.kept is not None:
            self._keep(KeptSession.add_snapshot, packed.kept)

    def counters(self, counters: Counters) -> None:
        self._write_rows("counters", counters, MAX_COUNTER_ROWS)

    def oom(self, oom: Oom) -> None:
        self._write("oom", oom)
        self._keep(KeptSession.add_oom, oom)

    def roll_up(self) -> None:
        """Write a summary of what the session has recorded so far, unless nothing was added since
        the last one."""
        if self._rolled_up or self._summarize is None:
            return
        self._rolled_up, self._rolled_up_at = True, time.monotonic()
        summary = self._kept.summary(self.info, self._summarize)
        if summary is not None:
            self._write("rollups", summary, summary.last_step or 0)

    def scalar(self, tag: str, step: int, value: float) -> None:
        self._event(self._opened(), step, scalar_summary(tag, value))

    def flush(self) -> None:
        """Flush everything written so far to the operating system or the remote file system."""
        if self._file is None or not self._unflushed:
            return
        now, elapsed = time.monotonic(), time.monotonic() - self._began
        if now - self._rolled_up_at >= max(
            min(ROLLUP_SECONDS, elapsed / 2), ROLLUP_SHARE * elapsed
        ):
            self.roll_up()
        self._file.flush()
        self._unflushed = False
        if self._max_file_bytes is not None and self._file_bytes >= self._max_file_bytes:
            self.close()
            self._begin_file()

    def close(self) -> None:
        """Flush and close the file, also if flushing fails. A later record opens it again."""
        file = self._file
        try:
            if file is not None:
                try:
                    file.flush()
                finally:
                    file.close()
        finally:
            self._let_go()

    def abandon(self) -> None:
        """Let go of the file without writing: in a forked child it belongs to the parent."""
        file = self._file
        self._let_go()
        if file is not None:
            file.abandon()

    def _let_go(self) -> None:
        mark, self._mark, self._file = self._mark, None, None
        if mark is not None:
            os.close(mark)

    def _begin_session(self) -> None:
        self.directory = _free_directory(*self._place)
        earlier = None if self._open_file is not None else recordings.sessions_in(self.directory)
        self.session = new_session_id()
        self._rotations: dict[str, TagRotation] = {}
        self._peaks: dict[str, int] = {}
        self._files = 0
        self._kept, self._rolled_up = KeptSession(), True
        self._began = self._rolled_up_at = time.monotonic()
        self._make_directories(self.directory)
        self._begin_file()
        self.info = SessionInfo(
            self.session, time.time(), self._producer, self._versions, (), earlier=earlier
        )
        self._write("meta", self.info)

    def _begin_file(self) -> RecordFile:
        # TensorBoard's Python reader follows only the last file of a directory, by name.
        # Unlike the usual name, this one contains neither host nor process.
        name = f"{recordings.EVENT_FILE_BEGIN}{int(time.time())}.{self.session}.{self._files:04d}"
        self._files += 1
        self._file_bytes = 0
        self._path = f"{self.directory}/{name}"
        self._file = file = (self._open_file or LocalRecordFile)(self._path)
        file.write(
            event_pb2.Event(wall_time=time.time(), file_version="brain.Event:2").SerializeToString()
        )
        file.flush()
        self._unflushed = False
        self._mark = recordings.hold(self._path)
        return file

    def _opened(self) -> RecordFile:
        """The open file; after `close`, the same file again, or a new one on a remote file
        system."""
        if self._file is not None:
            return self._file
        if self._open_file is not None:
            return self._begin_file()
        if self._is_taken():
            # A new session, in a directory of its own if another session still records into this
            # one.
            notes, table = self.info.notes, self._table
            self._begin_session()
            for sentence in notes:
                self.note(sentence)
            if table is not None:
                self.layer_table(table)
            return self._opened()
        self._file = LocalRecordFile(self._path, append=True)
        self._mark = recordings.hold(self._path)
        return self._file

    def _is_taken(self) -> bool:
        """Whether another session records into the directory now, or began there while this one's
        file was closed."""
        there, earlier = recordings.sessions_in(self.directory), self.info.earlier
        began = there is not None and earlier is not None and there > earlier + 1
        return began or recordings.any_live(self.directory)

    def _keep(self, add: "Callable[[KeptSession, Any], None]", record: Any) -> None:
        if self._summarize is not None:
            add(self._kept, record)
            self._rolled_up = False

    def _write_rows(self, stream: str, table: Any, rows: int) -> None:
        for start in range(0, len(table), rows):
            self._write(stream, take_rows(table, slice(start, start + rows)))

    def _write(self, stream: str, record: Any, step: int | None = None, **attributes: str) -> None:
        self._add(stream, codec.pack(frame_of(stream, record, 0, **attributes)), step)

    def _add(self, stream: str, frame: codec.PackedFrame, step: int | None = None) -> None:
        file = self._opened()  # which may begin a new session
        rotation = self._rotations.setdefault(stream, TagRotation(self.session, stream))
        step, sequence = frame.last_step if step is None else step, rotation.sequence
        self._event(file, step, frame_summary(rotation.next(step), frame.encode(sequence)))

    def _event(self, file: RecordFile, step: int, summary: summary_pb2.Summary) -> None:
        event = event_pb2.Event(wall_time=time.time(), step=step, summary=summary)
        record = event.SerializeToString()
        file.write(record)
        self._unflushed = True
        self._file_bytes += len(record) + 16

    @property
    def peak_bytes(self) -> int | None:
        """The highest peak of any device in the samples so far; None if unknown."""
        return max((one for one in self._peaks.values() if one > 0), default=None)

    def _new_peaks(self, samples: Samples) -> list[int]:
        rows = set()
        for device, figures in samples.devices.items():
            at = int(np.argmax(figures.peak_bytes))
            peak = int(figures.peak_bytes[at])
            if peak > self._peaks.get(device, -1):
                self._peaks[device] = peak
                rows.add(at)
        return sorted(rows)


def _free_directory(run: str, worker: str) -> str:
    """The worker's directory, or the first free ``process_2``, ``process_3``, … if another process
    writes there."""
    # Always forward slashes: a run directory may be a URL.
    names = (
        worker,
        *(
            f"{worker}_process_{number}" if worker else f"process_{number}"
            for number in range(2, 1000)
        ),
    )
    directories = ("/".join(filter(None, [run, DIRECTORY_NAME, name])) for name in names)
    return next(directory for directory in directories if not recordings.any_live(directory))


class KeptSession:
    """What a session's writer keeps of its records, in bounded memory, to summarize them at any
    time."""

    def __init__(self) -> None:
        self._samples = NO_SAMPLES
        self._highest: dict[tuple[str, Phase], Snapshot] = {}
        self._traced: Counter[str] = Counter()
        self._ooms: list[Oom] = []

    def add_samples(self, samples: Samples) -> None:
        """Add samples in the order of recording; if there are too many, every other one goes."""
        self._samples = join_rows([self._samples, samples])
        if len(self._samples) > MAX_ROWS:
            keep = np.arange(len(self._samples)) % 2 == 0
            keep[[-1, *_quoted_rows(self._samples)]] = True
            self._samples = take_rows(self._samples, keep)

    def add_snapshot(self, snapshot: Snapshot) -> None:
        """Add what `_small` gives of a snapshot."""
        self._traced[snapshot.device] += 1
        key, highest = (snapshot.device, snapshot.phase), self._highest
        highest[key] = max(
            highest.get(key, snapshot), snapshot, key=lambda one: (one.in_use_bytes, -one.step)
        )

    def add_oom(self, oom: Oom) -> None:
        if len(self._ooms) < MAX_FAILURES:
            self._ooms.append(
                dataclasses.replace(
                    oom, ledger=_by_group(oom.ledger), map=None, requests=None, not_available=()
                )
            )

    def summary(self, info: SessionInfo, summarize: Summarize) -> WorkerSummary | None:
        """The summary of what was added so far; None if none can be made."""
        ooms = settled_ooms(self._ooms)
        run = Run(
            name="",
            sessions=(info.session,),
            workers=("",),
            layer_tables=(),
            samples=self._samples,
            activations=_NO_ACTIVATIONS,
            snapshots=with_failed_steps(tuple(self._highest.values()), ooms),
            notes=(),
            damage=(),
            ooms=ooms,
            session_starts=(info.started,),
            ended=info.ended is not None if info.producer == "recorder" else None,
        )
        made = summarize(run)
        if made is None:
            return None
        devices = (
            dataclasses.replace(
                one,
                snapshots=self._traced[one.name],
                traced=tuple(sorted(one.traced, key=lambda traced: -traced.peak_bytes)[:1]),
            )
            for one in made.devices
        )
        return dataclasses.replace(made, devices=tuple(devices))


def _small(snapshot: Snapshot) -> Snapshot:
    """What a roll-up needs of a snapshot."""
    none: dict[str, Any] = {name: () for name in LISTS if name != "ledger"}
    return dataclasses.replace(
        snapshot, ledger=_by_group(snapshot.ledger), not_available=(), **none
    )


def _by_group(ledger: Sequence[LedgerRow]) -> tuple[LedgerRow, ...]:
    return tuple(LedgerRow(None, *group, size, None) for group, size in group_sums(ledger).items())


def _quoted_rows(samples: Samples) -> Iterator[int]:
    """The rows of each device's highest peaks in each phase, also with a measured pool, and of its
    last figures."""
    for phase in set(samples.phase.tolist()):
        of_phase = samples.phase == phase
        for figures in samples.devices.values():
            peaks = np.where(
                of_phase, np.maximum(figures.peak_bytes, figures.in_use_bytes), MISSING
            )
            in_last_step = of_phase & (samples.step == samples.step[of_phase][-1])
            for rows in (of_phase, measured_pools(figures), in_last_step):
                yield int(np.where(rows, peaks, MISSING).argmax())
            for column in (figures.in_use_bytes, figures.pool_bytes, figures.capacity_bytes):
                yield int((np.arange(len(column)) * (of_phase & (column != MISSING))).argmax())
