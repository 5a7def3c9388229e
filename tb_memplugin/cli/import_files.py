"""``tb-memplugin import``: memory dumps, out-of-memory logs and profiles into a run."""

import argparse
import dataclasses
import os
import re
import stat
from collections.abc import Sequence

import numpy as np

from tb_memplugin.analysis import log_findings
from tb_memplugin.attribution import AttributedStep, OomEvent, facts_from_names, post_mortem
from tb_memplugin.cli.parser import LOGDIR, CommandParser
from tb_memplugin.errors import FormatError, NotFoundError, RequestError
from tb_memplugin.importers import (
    MAX_LOG_BYTES,
    MAX_PROFILE_BYTES,
    LoggedFailure,
    looks_like_dump,
    read_dump,
    read_log,
    read_traces,
)
from tb_memplugin.schema import MemoryMap, Oom, Snapshot, Timeline, clean, counted, values_of
from tb_memplugin.storage.write import RunWriter

SAME_FAILURE_SECONDS = 11.0
"""TensorFlow writes dumps for ten seconds while it waits for memory: dumps this close belong to one
failure."""

_STYLE = re.compile(r"\x1b\[[\d;]{0,20}m")
"""Colors and bold type of a terminal, in which Keras 3 sets messages."""
_DUMP_NAME = re.compile(r"\.(\d{15,17})$")


@dataclasses.dataclass
class _Collected:
    """Contents of the files, of logs with the time of their last change."""

    dumps: list[MemoryMap] = dataclasses.field(default_factory=list)
    failures: list[tuple[LoggedFailure, float]] = dataclasses.field(default_factory=list)
    snapshots: list[Snapshot] = dataclasses.field(default_factory=list)
    timelines: list[Timeline] = dataclasses.field(default_factory=list)
    findings: list[str] = dataclasses.field(default_factory=list)


def add_arguments(parser: CommandParser) -> None:
    parser.describe(
        "Imports files that TensorFlow wrote into a run: memory dumps (TF_BFC_MEMORY_DUMP), logs "
        "of jobs that ran out of memory, profiles (*.xplane.pb).",
        examples=(
            "tb-memplugin import job.log --logdir runs",
            "tb-memplugin import /tmp/dump.* --logdir runs --run failed",
        ),
    )
    parser.add_argument("paths", metavar="PATH", nargs="+", help="files of one run")
    created = "log directory; created if missing (default: %(default)s)"
    parser.option("--logdir LOGDIR", created, default=LOGDIR)
    parser.option("--run NAME", "name of the run (default: from the first file's name)")
    parser.set_defaults(command=_import)


def _import(options: argparse.Namespace) -> int:
    for sentence in import_files(options.paths, options.logdir, options.run):
        print(clean(sentence))
    return 0


def import_files(paths: Sequence[str], logdir: str, run: str | None) -> list[str]:
    """Import files into one run under `logdir`; return a sentence on each kind of imported data.

    Nothing is written if a file cannot be read (NotFoundError) or is damaged or of an unknown
    format (FormatError)."""
    name = run
    if name is None:
        stem = _DUMP_NAME.sub("", os.path.basename(paths[0]))
        for ending in (".xplane.pb", ".log", ".txt"):
            stem = stem.removesuffix(ending)
        name = re.sub(r"[^0-9A-Za-z._-]+", "_", stem).strip("._") or "imported"
    if not name or os.path.isabs(name) or ".." in name.split("/"):
        raise RequestError(
            f"--run must be a name relative to LOGDIR, such as exp1. Received: {name!r}"
        )
    collected = _Collected()
    for path in paths:
        _collect(path, collected)
    ooms = _post_mortems(collected)
    if not (ooms or collected.snapshots):
        where, meaning = ", ".join(paths), " ".join(collected.findings)
        raise FormatError(
            f"{where}: {meaning} No allocator of TensorFlow logged a failed allocation, so no run "
            "is written."
        )
    try:
        writer = RunWriter(os.path.join(logdir, name), producer="import")
        for snapshot in collected.snapshots:
            writer.traced(snapshot)
        for timeline in collected.timelines:
            writer.traced(timeline)
        for oom in ooms:
            writer.oom(oom)
        for finding in collected.findings:
            writer.note(finding)
        writer.close()
    except OSError as error:
        raise NotFoundError(
            f"run {name!r} cannot be written to {logdir}: {error.strerror}"
        ) from None
    sentences = [f"{name}: {counted(len(ooms), 'failed allocation')}"] if ooms else []
    if collected.snapshots:
        why = "layers are TensorFlow's name scopes, because profiles do not contain Keras layers"
        sentences.append(
            f"{name}: {counted(len(collected.snapshots), 'snapshot')} from profiles; {why}"
        )
    return sentences + [f"{name}: {one}" for one in collected.findings]


def _collect(path: str, collected: _Collected) -> None:
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise NotFoundError(f"{path} is not a regular file; pass a file that TensorFlow wrote")
        if status.st_size > MAX_PROFILE_BYTES:
            raise FormatError(f"the file is larger than the limit of {MAX_PROFILE_BYTES} bytes")
        with open(path, "rb") as file:
            data = file.read(status.st_size)
        _read(path, data, status.st_mtime, collected)
    except OSError as error:
        raise NotFoundError(f"{path} cannot be read: {error.strerror}") from None
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from None
    except MemoryError:
        raise FormatError(f"{path}: there is not enough memory to read the file") from None


def _read(path: str, data: bytes, changed: float, collected: _Collected) -> None:
    if path.endswith(".xplane.pb"):
        traces = read_traces(data)
        if not traces:
            raise FormatError(
                "the profile has no events of an allocator (MemoryAllocation), as that of a JAX "
                "program; record a TensorFlow program with `tb-memplugin run PROGRAM.py`"
            )
        for trace in traces:
            step = len({snapshot.wall_time for snapshot in collected.snapshots} - {changed})
            # The step's ledger and timeline, attributed by op names alone.
            attributed = AttributedStep(
                trace, facts_from_names(trace), step=step, phase="train", wall_time=changed
            )
            collected.snapshots.append(attributed.snapshot)
            if (inside := attributed.timeline()) is not None:
                collected.timelines.append(inside)
    elif looks_like_dump(data):
        stamp = _DUMP_NAME.search(path)
        collected.dumps.append(read_dump(data, int(stamp[1]) / 1e6 if stamp else changed))
    elif data[:2] == b"\x1f\x8b" or b'"traceEvents"' in data[:65536]:
        raise FormatError(
            "a compressed file or a trace (trace.json) has no events of an allocator; pass the "
            "profile (*.xplane.pb) from the same directory, or the uncompressed log or dump"
        )
    elif b"\0" in data[:4096] or not data:
        advice = "pass a memory dump (TF_BFC_MEMORY_DUMP), a log, or a profile (*.xplane.pb)"
        raise FormatError(f"unknown format ({len(data)} bytes); {advice}")
    else:
        if len(data) > MAX_LOG_BYTES:
            raise FormatError(
                f"the log of {len(data)} bytes is larger than the limit of {MAX_LOG_BYTES}"
            )
        text = _STYLE.sub("", data.decode("utf-8", "replace"))
        findings = log_findings(text)
        collected.findings += (one for one in findings if one not in collected.findings)
        failures = read_log(text, changed, required=not findings)
        collected.failures += [(one, changed) for one in failures]


def _post_mortems(collected: _Collected) -> list[Oom]:
    """One for each failure; a dump and a log with the same chunks are one failure."""
    dumps: list[MemoryMap] = []
    for dump in sorted(collected.dumps, key=lambda dump: (dump.device, dump.wall_time)):
        before = dumps[-1] if dumps else dump
        seconds = dump.wall_time - before.wall_time
        if dumps and before.device == dump.device and seconds < SAME_FAILURE_SECONDS:
            dumps.pop()
        dumps.append(dump)
    ooms: list[Oom] = []
    for failure, wall_time in collected.failures:
        same = next((dump for dump in dumps if _same_chunks(dump, failure.map)), None)
        memory_map = failure.map
        if same is not None and memory_map is not None:
            dumps.remove(same)
            capacity = memory_map.capacity_bytes
            memory_map = dataclasses.replace(
                same, capacity_bytes=capacity, not_available=memory_map.not_available
            )
        event = OomEvent(
            identifier=f"log {len(ooms)}",
            status="failed",
            device=failure.device,
            wall_time=memory_map.wall_time if memory_map is not None else wall_time,
            notes=failure.notes,
            **values_of(failure, "in_use_bytes", "capacity_bytes"),
            **values_of(
                failure.request, "requested_bytes", "uncertain_bytes", "op", "layer", "shape"
            ),
        )
        ooms.append(post_mortem(event, memory_map))
    for dump in dumps:
        ooms.append(
            post_mortem(OomEvent(f"dump {len(ooms)}", "failing", dump.device, dump.wall_time), dump)
        )
    return ooms


def _same_chunks(dump: MemoryMap, logged: MemoryMap | None) -> bool:
    columns = ("address", "bytes", "state")
    return logged is not None and all(
        np.array_equal(getattr(dump, one), getattr(logged, one)) for one in columns
    )
