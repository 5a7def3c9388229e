"""Writes event files of a run: frames of every stream under rotating tags, in a directory of their
own."""

import dataclasses
import functools
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

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
    take_rows,
)
from tb_memplugin.storage.frames import (
    DIRECTORY_NAME,
    RecordFile,
    codec,
    frame_of,
    new_session_id,
    scalar_summary,
)
from tb_memplugin.storage.write import recordings
from tb_memplugin.storage.write.event_log import EventLog
from tb_memplugin.storage.write.rollups import RollUps, Summarize, small
from tb_memplugin.version import __version__

MAX_SAMPLE_ROWS = 4096
"""Most samples per frame: keeps it below 1 MB for some 30 devices."""
MAX_ACTIVATION_VALUES = 1 << 17
"""Most layer × step values per frame (1 MiB before compression)."""
MAX_COUNTER_ROWS = 4096
"""Most rows of counters per frame."""

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
    kept = small(record) if isinstance(record, Snapshot) else None
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
        self._table: LayerTable | None = None
        self._peaks: dict[str, int] = {}
        self._rollups = RollUps(summarize)
        self._log, self.info = self._begin_session(notes=())
        self._write("meta", self.info)

    def note(self, sentence: str, step: int = 0) -> None:
        if sentence not in self.info.notes:
            self._tell(step, notes=(*self.info.notes, sentence))

    def analyzing(self, step: int | None) -> None:
        """Add to the session's facts, and flush, that a traced step is being analyzed; None removes
        that again."""
        self._tell(step or 0, analyzing=step)
        self.flush()

    def end(self) -> None:
        """Add to the session's facts that it ended now. Readers take a session without this for
        interrupted.

        Nothing is written after `close` if another process records into the directory by now."""
        if not self._log.is_open and self._open_file is None and self._is_taken():
            return
        self._tell(0, ended=time.time())
        self._rollups.has_news = True
        self.roll_up()

    def _tell(self, step: int, **facts: Any) -> None:
        self.info = dataclasses.replace(self.info, **facts)
        self._write("meta", self.info, step)

    def layer_table(self, table: LayerTable) -> None:
        self._table = table
        self._write("meta", table, kind="layers")

    def samples(self, samples: Samples) -> None:
        self._write_rows("samples", samples, MAX_SAMPLE_ROWS)
        for row in self._new_peaks(samples):
            self._write("peak", take_rows(samples, slice(row, row + 1)))
        self._rollups.add(samples)

    def activations(self, activations: LayerActivations) -> None:
        rows = max(1, MAX_ACTIVATION_VALUES // max(1, len(activations.layers)))
        self._write_rows("activations", activations, rows)

    def traced(self, record: TracedRecord | PackedRecord) -> None:
        """Write a record of a traced step."""
        packed = record if isinstance(record, PackedRecord) else pack(record)
        self._opened().add_frame(packed.stream, packed.frame)
        if packed.kept is not None:
            self._rollups.add(packed.kept)

    def counters(self, counters: Counters) -> None:
        self._write_rows("counters", counters, MAX_COUNTER_ROWS)

    def oom(self, oom: Oom) -> None:
        self._write("oom", oom)
        self._rollups.add(oom)

    def roll_up(self) -> None:
        """Write a summary of what the session has recorded so far, unless nothing was added since
        the last one."""
        summary = self._rollups.summary(self.info)
        if summary is not None:
            self._write("rollups", summary, summary.last_step or 0)

    def scalar(self, tag: str, step: int, value: float) -> None:
        self._opened().add(step, scalar_summary(tag, value))

    def flush(self) -> None:
        """Flush everything written so far to the operating system or the remote file system."""
        if not self._log.has_unflushed:
            return
        if self._rollups.is_due():
            self.roll_up()
        self._log.flush()
        if self._max_file_bytes is not None and self._log.file_bytes >= self._max_file_bytes:
            self._log.close()
            self._log.begin_file()

    def close(self) -> None:
        """Flush and close the file, also if flushing fails. A later record opens it again."""
        self._log.close()

    def abandon(self) -> None:
        """Let go of the file without writing: in a forked child it belongs to the parent."""
        self._log.abandon()

    def _opened(self) -> EventLog:
        """The session's log, open; after `close` a new session in a directory of its own if another
        one began in this directory, or still records there."""
        if self._log.is_open:
            return self._log
        if self._open_file is None and self._is_taken():
            self._peaks, self._rollups = {}, RollUps(self._summarize)
            self._log, self.info = self._begin_session(self.info.notes)
            self._write("meta", self.info)
            if self._table is not None:
                self.layer_table(self._table)
        else:
            self._log.reopen()
        return self._log

    def _is_taken(self) -> bool:
        """Whether another session records into the directory now, or began there while this one's
        file was closed."""
        there, earlier = recordings.sessions_in(self.directory), self.info.earlier
        began = there is not None and earlier is not None and there > earlier + 1
        return began or recordings.any_live(self.directory)

    def _write_rows(self, stream: str, table: Any, rows: int) -> None:
        for start in range(0, len(table), rows):
            self._write(stream, take_rows(table, slice(start, start + rows)))

    def _write(self, stream: str, record: Any, step: int | None = None, **attributes: str) -> None:
        frame = codec.pack(frame_of(stream, record, 0, **attributes))
        self._opened().add_frame(stream, frame, step)

    def _begin_session(self, notes: tuple[str, ...]) -> tuple[EventLog, SessionInfo]:
        directory, session = _free_directory(*self._place), new_session_id()
        earlier = None if self._open_file is not None else recordings.sessions_in(directory)
        self._make_directories(directory)
        log = EventLog(directory, session, self._open_file)
        return log, SessionInfo(
            session, time.time(), self._producer, self._versions, notes, earlier=earlier
        )

    @property
    def directory(self) -> str:
        return self._log.directory

    @property
    def session(self) -> str:
        return self._log.session

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
