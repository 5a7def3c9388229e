"""Writes a run's event files: frames of every stream, in a directory of their own, under rotating tags."""

import dataclasses
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, cast

import numpy as np
from tensorboard.compat.proto import event_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

from tb_memplugin import codec, live_files, map_records, records, timeline_records
from tb_memplugin.codec import Frame
from tb_memplugin.metadata import DIRECTORY_NAME, Tag, frame_summary
from tb_memplugin.model import AllocatorMap, LayerActivations, LayerTable, Oom, Samples, Snapshot, Timeline
from tb_memplugin.streams import TagRotation, new_session_id
from tb_memplugin.version import __version__

MAX_SAMPLE_ROWS = 4096
"""Most samples in one frame: keeps it below 1 MB for some 30 devices."""
MAX_ACTIVATION_VALUES = 1 << 17
"""Most layer × step values in one frame (1 MiB before compression)."""


class RecordFile(Protocol):
    """An open TFRecord file; `tf.io.TFRecordWriter` is one."""

    def write(self, record: bytes, /) -> Any: ...

    def flush(self) -> Any: ...

    def close(self) -> Any: ...


def open_record_file(path: str) -> RecordFile:
    """A record file on a local disk, written without TensorFlow."""
    return cast(RecordFile, RecordWriter(open(path, "wb")))


class RunWriter:
    """One session's event files in ``<run_directory>/memory[/<worker>]``. Not thread-safe: one thread owns it.

    Args:
        run_directory: The run, e.g. ``runs/exp1``; made if it is missing.
        producer: Who records.
        versions: Package versions to note, beside this package's own.
        worker: Name of this process among several that write into the same run; its sub-directory.
        max_file_bytes: Begin a new event file past this size: on remote file systems each flush uploads the whole file
            again.
        open_file: Opens the record file of a path.

    Raises:
        OSError (or what `open_file` raises): The directory cannot be made or written.
    """

    def __init__(
        self,
        run_directory: str | os.PathLike[str],
        *,
        producer: Literal["recorder", "summary", "import"] = "recorder",
        versions: Mapping[str, str] | None = None,
        worker: str = "",
        max_file_bytes: int | None = None,
        open_file: Callable[[str], RecordFile] = open_record_file,
        make_directories: Callable[[str], Any] | None = None,
    ) -> None:
        self.directory = _free_directory(os.fspath(run_directory).rstrip("/"), worker)
        self._open_file = open_file
        self._max_file_bytes = max_file_bytes
        self.session = new_session_id()
        self._rotations: dict[str, TagRotation] = {}
        self._peaks: dict[str, int] = {}
        (make_directories or _make_local_directories)(self.directory)
        self._files = 0
        self._mark: int | None = None
        self._file = self._begin_file()
        self.info = records.new_session_info(self.session, producer, {"tb_memplugin": __version__, **(versions or {})})
        self._write("meta", 0, records.session_frame, self.info)

    def note(self, sentence: str, step: int = 0) -> None:
        """Adds a sentence on what is not recorded, and why, to the session's facts."""
        if sentence in self.info.notes:
            return
        self.info = dataclasses.replace(self.info, notes=(*self.info.notes, sentence))
        self._write("meta", step, records.session_frame, self.info)

    def layer_table(self, table: LayerTable) -> None:
        """Writes the layers that hold from `table.step` on."""
        self._write("meta", table.step, records.layer_table_frame, table)

    def samples(self, samples: Samples) -> None:
        """Writes samples in order, in frames of bounded size, and the highest peak of each device again where it is a
        new one."""
        for start in range(0, len(samples), MAX_SAMPLE_ROWS):
            part = take_samples(samples, slice(start, start + MAX_SAMPLE_ROWS))
            self._write("samples", int(part.step.max()), records.samples_frame, part)
        row = self._new_peak(samples)
        if row is not None:
            top = take_samples(samples, slice(row, row + 1))
            self._write("peak", int(top.step[0]), records.peak_frame, top)

    def activations(self, activations: LayerActivations) -> None:
        """Writes activation bytes in order, in frames of bounded size."""
        rows = max(1, MAX_ACTIVATION_VALUES // max(1, len(activations.layers)))
        for start in range(0, len(activations), rows):
            part = slice(start, start + rows)
            piece = dataclasses.replace(
                activations,
                step=activations.step[part],
                wall_time=activations.wall_time[part],
                bytes=activations.bytes[part],
            )
            self._write("activations", int(piece.step.max()), records.activations_frame, piece)

    def snapshot(self, snapshot: Snapshot) -> None:
        """Writes one snapshot."""
        self._write("snapshots", snapshot.step, records.snapshot_frame, snapshot)

    def allocator_map(self, taken: AllocatorMap) -> None:
        """Writes one allocator map."""
        self._write("maps", taken.step or 0, map_records.map_frame, taken)

    def timeline(self, taken: Timeline) -> None:
        """Writes one timeline."""
        self._write("timelines", taken.step, timeline_records.timeline_frame, taken)

    def oom(self, oom: Oom) -> None:
        """Writes one post-mortem, or takes an earlier one of the same identifier back."""
        self._write("oom", oom.step or 0, map_records.oom_frame, oom)

    def flush(self) -> None:
        """Hands everything written so far to the operating system (or the remote file system)."""
        self._file.flush()
        if self._max_file_bytes is not None and self._file_bytes >= self._max_file_bytes:
            self._file.close()
            self._file = self._begin_file()

    def close(self) -> None:
        """Flushes and closes; nothing may be written afterwards."""
        try:
            self._file.flush()
            self._file.close()
        finally:
            live_files.release(self._mark)
            self._mark = None

    def _begin_file(self) -> RecordFile:
        # TensorBoard's Python reader follows the lexicographically last file of a directory only.
        # The name tells neither host nor process, unlike the usual one.
        name = f"events.out.tfevents.{int(time.time())}.{self.session}.{self._files:04d}"
        self._files += 1
        self._file_bytes = 0
        path = f"{self.directory}/{name}"
        file = self._open_file(path)
        file.write(event_pb2.Event(wall_time=time.time(), file_version="brain.Event:2").SerializeToString())
        file.flush()
        live_files.release(self._mark)
        self._mark = live_files.hold(path)
        return file

    def _write(self, stream: str, step: int, make_frame: Callable[[Any, int], Frame], record: Any) -> None:
        rotation = self._rotations.setdefault(stream, TagRotation(self.session, stream))
        data = codec.encode(make_frame(record, rotation.sequence))
        self._event(rotation.next(step), step, data)

    def _event(self, tag: Tag, step: int, frame: bytes) -> None:
        event = event_pb2.Event(wall_time=time.time(), step=step, summary=frame_summary(tag, frame))
        record = event.SerializeToString()
        self._file.write(record)
        self._file_bytes += len(record) + 16

    def _new_peak(self, samples: Samples) -> int | None:
        row = None
        for device, figures in samples.devices.items():
            at = int(np.argmax(figures.peak_bytes))
            if figures.peak_bytes[at] > self._peaks.get(device, -1):
                self._peaks[device] = int(figures.peak_bytes[at])
                row = at
        return row


def take_samples(samples: Samples, rows: slice | Sequence[int]) -> Samples:
    """The given rows of `samples`."""
    return Samples(
        step=samples.step[rows],
        phase=samples.phase[rows],
        epoch=samples.epoch[rows],
        wall_time=samples.wall_time[rows],
        host_resident_bytes=samples.host_resident_bytes[rows],
        devices={
            name: type(figures)(
                **{field.name: getattr(figures, field.name)[rows] for field in dataclasses.fields(figures)}
            )
            for name, figures in samples.devices.items()
        },
    )


def _free_directory(run: str, worker: str) -> str:
    """The worker's directory, or the first ``process_2``, ``process_3``, … if a living process already writes there."""
    # One slash style throughout: a run directory may be a URL.
    names = (worker, *(f"{worker}_process_{number}" if worker else f"process_{number}" for number in range(2, 1000)))
    directories = ("/".join(filter(None, [run, DIRECTORY_NAME, name])) for name in names)
    return next(directory for directory in directories if not live_files.any_live(directory))


def _make_local_directories(path: str) -> None:
    os.makedirs(path, exist_ok=True)
