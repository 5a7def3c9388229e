"""``tb-memplugin import``: memory dumps, out-of-memory logs, profiles, XLA's dumps into a run."""

import argparse
import dataclasses
import itertools
import os
import re
import stat
from collections.abc import Sequence

import numpy as np

from tb_memplugin.analysis import log_findings
from tb_memplugin.attribution import (
    AttributedStep,
    OomEvent,
    described_plan,
    facts_from_names,
    owners_by_name,
    planned_step,
    post_mortem,
)
from tb_memplugin.cli.parser import LOGDIR, CommandParser
from tb_memplugin.errors import FormatError, NotFoundError, RequestError
from tb_memplugin.importers import (
    MAX_LOG_BYTES,
    MAX_PROFILE_BYTES,
    LoggedFailure,
    looks_like_dump,
    read_dump,
    read_dumped_module,
    read_live_arrays,
    read_log,
    read_traces,
)
from tb_memplugin.schema import (
    HeldTensorGroup,
    LedgerRow,
    MemoryMap,
    Module,
    Oom,
    Snapshot,
    Timeline,
    clean,
    counted,
    format_bytes,
    values_of,
)
from tb_memplugin.storage.write import RunWriter

SAME_FAILURE_SECONDS = 11.0
"""TensorFlow writes dumps for ten seconds while it waits for memory: dumps this close belong to one
failure."""

MODULE, LIVE_ARRAYS = ".hlo.pb", ".prof"
MAX_MODULES = 20
"""Most modules of a run, the largest ones: JAX compiles one for each op outside of functions."""
_PLATFORM = re.compile(r"(cpu|gpu|tpu)_after_optimizations")

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
    modules: list[tuple[Module, str, float]] = dataclasses.field(default_factory=list)
    sentences: list[str] = dataclasses.field(default_factory=list)  # on what was imported

    def add_step(self, attributed: AttributedStep) -> None:
        self.snapshots.append(attributed.snapshot)
        if (inside := attributed.timeline()) is not None:
            self.timelines.append(inside)


def add_arguments(parser: CommandParser) -> None:
    parser.describe(
        "Imports files that TensorFlow wrote into a run: memory dumps (TF_BFC_MEMORY_DUMP), logs "
        "of jobs that ran out of memory, profiles (*.xplane.pb); and what XLA planned for programs "
        "of TensorFlow, JAX or PyTorch/XLA: a directory of "
        "XLA_FLAGS='--xla_dump_to=DIR --xla_dump_hlo_as_proto', or device memory profiles of JAX "
        "(*.prof).",
        examples=(
            "tb-memplugin import job.log --logdir runs",
            "tb-memplugin import /tmp/dump.* --logdir runs --run failed",
            "tb-memplugin import /tmp/xla_dump",
        ),
    )
    parser.add_argument(
        "paths", metavar="PATH", nargs="+", help="files of one run, or XLA's directory"
    )
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
        stem = _DUMP_NAME.sub("", os.path.basename(os.path.abspath(paths[0])))
        for ending in (".xplane.pb", ".log", ".txt", MODULE, LIVE_ARRAYS):
            stem = stem.removesuffix(ending)
        name = re.sub(r"[^0-9A-Za-z._-]+", "_", stem).strip("._") or "imported"
    if not name or os.path.isabs(name) or ".." in name.split("/"):
        raise RequestError(
            f"--run must be a name relative to LOGDIR, such as exp1. Received: {name!r}"
        )
    collected = _Collected()
    for path in itertools.chain.from_iterable(map(_files, paths)):
        _collect(path, collected)
    _add_modules(collected)
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
    if profiles := len(collected.snapshots) - len(collected.sentences):
        why = "layers are TensorFlow's name scopes, because profiles do not contain Keras layers"
        sentences.append(f"{name}: {counted(profiles, 'snapshot')} from profiles; {why}")
    return sentences + [f"{name}: {one}" for one in (*collected.sentences, *collected.findings)]


def _files(path: str) -> list[str]:
    """The file, or a directory's modules after XLA's optimizations; its text files are not read."""
    if not os.path.isdir(path):
        return [path]
    names = [name for name in sorted(os.listdir(path)) if name.endswith(MODULE)]
    found = [name for name in names if "after_optimizations" in name]
    if not found:
        raise NotFoundError(
            f"{path} is not a regular file, and has no *after_optimizations{MODULE}: run with "
            "XLA_FLAGS='--xla_dump_to=DIR --xla_dump_hlo_as_proto' and pass that directory"
        )
    return [os.path.join(path, name) for name in found]


def _add_modules(collected: _Collected) -> None:
    """A step for each module, the largest first."""
    largest = sorted(collected.modules, key=lambda one: -one[0].bytes)
    for step, (module, path, changed) in enumerate(largest[:MAX_MODULES]):
        platform = _PLATFORM.search(path)
        device = f"{platform[1].upper()}:0" if platform else "XLA:0"
        owners = owners_by_name(module)
        collected.add_step(
            planned_step(module, owners, device=device, step=step, wall_time=changed)
        )
        planned = described_plan(module)
        collected.sentences.append(f"step {step}, {format_bytes(module.bytes)}. {planned}")
    if len(largest) > MAX_MODULES:
        collected.findings.append(
            f"{len(largest)} modules were read; the {MAX_MODULES} largest are shown."
        )


def _add_live_arrays(data: bytes, changed: float, collected: _Collected) -> None:
    arrays = read_live_arrays(data)
    for device in dict.fromkeys(one.device for one in arrays):
        own = [one for one in arrays if one.device == device]
        total = sum(one.bytes for one in own)
        note = "JAX's profile says who made its live arrays, not which layers or steps they are of."
        collected.snapshots.append(
            Snapshot(
                step=len(collected.snapshots),
                phase="train",
                device=device,
                wall_time=changed,
                mode=None,
                in_use_bytes=total,
                pool_bytes=None,
                largest_free_bytes=None,
                capacity_bytes=None,
                fragmentation=None,
                rounding_bytes=None,
                ledger=(LedgerRow(None, "held_tensors", None, total, None),),
                saved_for_backward=(),
                not_available=(note,),
                held_tensors=tuple(
                    HeldTensorGroup(
                        (), "", one.arrays, one.bytes, f"made in {one.function}", one.line
                    )
                    for one in own
                ),
            )
        )
        collected.sentences.append(f"{device}: {format_bytes(total)} of live arrays")


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
            collected.add_step(attributed)
    elif path.endswith(MODULE):
        collected.modules.append((read_dumped_module(data), path, changed))
    elif path.endswith(LIVE_ARRAYS):
        _add_live_arrays(data, changed, collected)
    elif looks_like_dump(data):
        stamp = _DUMP_NAME.search(path)
        collected.dumps.append(read_dump(data, int(stamp[1]) / 1e6 if stamp else changed))
    elif data[:2] == b"\x1f\x8b" or b'"traceEvents"' in data[:65536]:
        raise FormatError(
            "a compressed file or a trace (trace.json) has no events of an allocator; pass the "
            "profile (*.xplane.pb) from the same directory, or the uncompressed log or dump"
        )
    elif b"\0" in data[:4096] or not data:
        advice = (
            "pass a memory dump (TF_BFC_MEMORY_DUMP), a log, a profile (*.xplane.pb), a module "
            "(*.hlo.pb) or live arrays (*.prof)"
        )
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
