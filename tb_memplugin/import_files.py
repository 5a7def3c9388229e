"""``tb-memplugin import``: files of TensorFlow's own into a run: memory dumps, out-of-memory logs, profiles."""

import dataclasses
import os
import re
from collections.abc import Sequence

import numpy as np

from tb_memplugin.analysis.attribution import attribute
from tb_memplugin.analysis.categories import Classifier
from tb_memplugin.analysis.lifetimes import chunks
from tb_memplugin.analysis.names_only import facts_from_names
from tb_memplugin.analysis.post_mortem import Death, post_mortem
from tb_memplugin.analysis.timeline import timeline
from tb_memplugin.errors import FormatError, NotFoundError, RequestError
from tb_memplugin.importers.bfc_dump import looks_like_dump, read_dump
from tb_memplugin.importers.oom_log import MAX_LOG_BYTES, LoggedFailure, read_log
from tb_memplugin.importers.xplane import MAX_PROFILE_BYTES, read_traces
from tb_memplugin.model import AllocatorMap, Oom, Snapshot, Timeline
from tb_memplugin.run_writer import RunWriter
from tb_memplugin.trace import AllocationTrace

SAME_FAILURE_SECONDS = 11.0
"""TensorFlow writes dumps for ten seconds while it waits for memory: so close together they are of one failure."""

_DUMP_NAME = re.compile(r"\.(\d{15,17})$")


@dataclasses.dataclass
class Collected:
    """What the files held."""

    dumps: list[AllocatorMap] = dataclasses.field(default_factory=list)
    failures: list[LoggedFailure] = dataclasses.field(default_factory=list)
    times: list[float] = dataclasses.field(default_factory=list)
    snapshots: list[Snapshot] = dataclasses.field(default_factory=list)
    timelines: list[Timeline] = dataclasses.field(default_factory=list)


def import_files(paths: Sequence[str], logdir: str, run: str | None) -> list[str]:
    """Takes the files into one run under `logdir` and says, in a sentence for each kind, what was taken.

    Raises:
        NotFoundError: A file is not there or cannot be read.
        FormatError: A file is none that is known, or damaged beyond use; nothing is written then.
        RequestError: The run's name is none.
    """
    name = run if run is not None else _run_name(paths[0])
    if not name or os.path.isabs(name) or ".." in name.split("/"):
        raise RequestError(f"--run must be a name below LOGDIR, such as exp1. Received: {name!r}")
    found = Collected()
    for path in paths:
        _collect(path, found)
    ooms = _post_mortems(found)
    try:
        writer = RunWriter(os.path.join(logdir, name), producer="import")
        for snapshot in found.snapshots:
            writer.snapshot(snapshot)
        for inside in found.timelines:
            writer.timeline(inside)
        for oom in ooms:
            writer.oom(oom)
        writer.close()
    except OSError as error:
        raise NotFoundError(f"the run {name!r} cannot be written below {logdir} ({error.strerror})") from None
    told = [f"{name}: {_counted(len(ooms), 'failed allocation')}"] if ooms else []
    if found.snapshots:
        snapshots = _counted(len(found.snapshots), "snapshot")
        told.append(
            f"{name}: {snapshots} from profiles; their layers are TensorFlow's name scopes, because only the recorder "
            "sees which layer made an op"
        )
    return told


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _run_name(path: str) -> str:
    stem = _DUMP_NAME.sub("", os.path.basename(path))
    for ending in (".xplane.pb", ".log", ".txt"):
        stem = stem.removesuffix(ending)
    return re.sub(r"[^0-9A-Za-z._-]+", "_", stem).strip("._") or "imported"


def _collect(path: str, found: Collected) -> None:
    try:
        if os.path.getsize(path) > MAX_PROFILE_BYTES:
            raise FormatError(f"{path}: the file is over the {MAX_PROFILE_BYTES} bytes that are read")
        with open(path, "rb") as file:
            data = file.read()
        changed = os.path.getmtime(path)
    except OSError as error:
        raise NotFoundError(f"{path} cannot be read: {error.strerror}") from None
    try:
        _take(path, data, changed, found)
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from None


def _take(path: str, data: bytes, changed: float, found: Collected) -> None:
    if path.endswith(".xplane.pb"):
        for trace in read_traces(data):
            step = len({snapshot.wall_time for snapshot in found.snapshots} - {changed})
            _take_trace(trace, step, changed, found)
    elif looks_like_dump(data):
        stamp = _DUMP_NAME.search(path)
        found.dumps.append(read_dump(data, int(stamp[1]) / 1e6 if stamp else changed))
    elif b"\0" in data[:4096] or not data:
        raise FormatError(
            "neither a memory dump (TF_BFC_MEMORY_DUMP), nor a log, nor a profile (its name would end in .xplane.pb): "
            f"it has {len(data)} bytes"
        )
    else:
        if len(data) > MAX_LOG_BYTES:
            raise FormatError(f"the log has {len(data)} bytes, more than the {MAX_LOG_BYTES} that are read")
        failures = read_log(data.decode("utf-8", "replace"), changed)
        found.failures.extend(failures)
        found.times.extend([changed] * len(failures))


def _take_trace(trace: AllocationTrace, step: int, wall_time: float, found: Collected) -> None:
    """A step's ledger and timeline, as good as the names of its operations allow."""
    facts = facts_from_names(trace)
    classifier = Classifier(trace, facts, chunks(trace))
    snapshot = attribute(
        trace, facts, step=step, phase="train", wall_time=wall_time, capacity_bytes=None, classifier=classifier
    )
    found.snapshots.append(snapshot)
    inside = timeline(trace, facts, classifier, snapshot)
    if inside is not None:
        found.timelines.append(inside)


def _post_mortems(found: Collected) -> list[Oom]:
    """One for each failure; a dump and a log of the same chunks are of the same one."""
    dumps = _one_of_each_failure(found.dumps)
    ooms: list[Oom] = []
    for failure, wall_time in zip(found.failures, found.times, strict=True):
        same = next((dump for dump in dumps if _same_chunks(dump, failure.map)), None)
        taken = failure.map
        if same is not None and taken is not None:
            dumps.remove(same)
            capacity = taken.capacity_bytes
            taken = dataclasses.replace(same, capacity_bytes=capacity, not_available=taken.not_available)
        death = Death(
            identifier=f"log {len(ooms)}",
            status="died",
            device=failure.device,
            wall_time=taken.wall_time if taken is not None else wall_time,
            requested_bytes=failure.request.requested_bytes,
            op=failure.request.op,
            shape=failure.request.shape,
            notes=failure.notes,
        )
        ooms.append(post_mortem(death, taken))
    for dump in dumps:
        death = Death(f"dump {len(ooms)}", "failing", dump.device, dump.wall_time)
        ooms.append(post_mortem(death, dump))
    return ooms


def _one_of_each_failure(dumps: Sequence[AllocatorMap]) -> list[AllocatorMap]:
    kept: list[AllocatorMap] = []
    for dump in sorted(dumps, key=lambda dump: (dump.device, dump.wall_time)):
        if kept and kept[-1].device == dump.device and dump.wall_time - kept[-1].wall_time < SAME_FAILURE_SECONDS:
            kept.pop()
        kept.append(dump)
    return kept


def _same_chunks(dump: AllocatorMap, logged: AllocatorMap | None) -> bool:
    return (
        logged is not None
        and np.array_equal(dump.address, logged.address)
        and np.array_equal(dump.bytes, logged.bytes)
        and np.array_equal(dump.state, logged.state)
    )
