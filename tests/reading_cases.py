"""Small known runs for the tests of the reading half: what is written is stated here, and tests
compare with that."""

import dataclasses
import os
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from tensorboard.compat.proto import event_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

from tb_memplugin.attribution import OomEvent, post_mortem
from tb_memplugin.schema import (
    FREE,
    IN_USE,
    MAX_STEP,
    MISSING,
    PHASES,
    Band,
    ChunkOwner,
    CompiledSpan,
    Counters,
    DeviceSamples,
    Finding,
    HeldTensorGroup,
    Layer,
    LayerActivations,
    LayerTable,
    LedgerRow,
    MemoryMap,
    Oom,
    Phase,
    Replay,
    Run,
    Samples,
    SavedRow,
    Session,
    Snapshot,
    TensorShape,
    Timeline,
)
from tb_memplugin.storage import Piece, Place, Stream, Table, sessions
from tb_memplugin.storage.frames import Tag, frame_summary
from tb_memplugin.storage.write import RunWriter

DEVICE = "CPU:0"
BASE_ADDRESS = 0x7F00_0000_0040
MIB = 1 << 20
START = 1_790_000_000.0
MEASURED = {5: (512 * MIB, 256 * MIB), 12: (512 * MIB, 128 * MIB), 42: (1024 * MIB, 512 * MIB)}
"""The pool and its largest free chunk at steps of `write_small_run`."""


def empty_activations() -> LayerActivations:
    """No rows."""
    return LayerActivations(
        np.empty(0, np.int64), np.empty(0, np.float64), (), np.empty((0, 0), np.int64)
    )


def write_frames(directory: pathlib.Path, frames: Sequence[tuple[str, int, bytes]]) -> None:
    """Write events with the given (tag, step, frame) into a new event file of the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / f"events.out.tfevents.{len(event_files(directory))}").open("wb") as file:
        writer = RecordWriter(file)
        for text, step, frame in frames:
            event = event_pb2.Event(step=step, summary=frame_summary(Tag("s", "meta", 0), frame))
            event.summary.value[0].tag = text  # also one that no `Tag` can have
            writer.write(event.SerializeToString())


def make_samples(
    steps: Sequence[int],
    peaks: Sequence[int],
    *,
    phase: Phase = "train",
    device: str = DEVICE,
    in_use: Sequence[int] | None = None,
    epoch: int = 0,
    start: float = START,
    pools: Mapping[int, tuple[int, int]] | None = None,
) -> Samples:
    """Samples with the given peaks, half a second a step, in use one MiB below the peak unless
    given.

    `pools` maps measured steps to their pool and its largest free chunk.
    """
    count = len(steps)
    missing = np.full(count, MISSING)
    peak = np.asarray(peaks, np.int64)
    measured = [(pools or {}).get(step, (MISSING, MISSING)) for step in steps]
    pool, largest = np.asarray(measured, np.int64).reshape(-1, 2).T
    return Samples(
        step=np.asarray(steps, np.int64),
        phase=np.full(count, PHASES.index(phase)),
        epoch=np.full(count, epoch),
        wall_time=start + np.asarray(steps, np.float64) / 2,
        host_resident_bytes=np.full(count, 300 * MIB),
        devices={
            device: DeviceSamples(
                in_use_bytes=np.maximum(peak - MIB, 0)
                if in_use is None
                else np.asarray(in_use, np.int64),
                peak_bytes=peak,
                capacity_bytes=np.full(count, 2048 * MIB),
                driver_process_bytes=missing,
                driver_used_bytes=missing,
                driver_total_bytes=missing,
                pool_bytes=pool,
                largest_free_bytes=largest,
            )
        },
    )


def make_layer(
    path: str,
    trainable: bool,
    parameters: int,
    optimizer_bytes: int = 0,
    kind: str = "Conv2D",
    shape: tuple[int, ...] = (-1, 8, 8, 4),
    output_bytes: int | None = None,
    unit: int | None = None,
) -> Layer:
    """A float32 layer of `parameters` weights."""
    size = 4 * parameters
    sizes = (size, size * trainable, optimizer_bytes)
    return Layer(
        path, kind, trainable, parameters, *sizes, shape, "float32", output_bytes, unit=unit
    )


def make_table(step: int, *, unfrozen: bool, reason: str = "recording began") -> LayerTable:
    """A frozen backbone of 1,000,000 weights (unless `unfrozen`) with a trainable head of 500."""
    backbone = make_layer("model/backbone", unfrozen, 1_000_000, 8_000_000 if unfrozen else 0)
    head = make_layer("model/head", True, 500, 4_000)
    return LayerTable(
        step=step,
        wall_time=START + step / 2,
        reason=reason,
        layers=(backbone, head),
        optimizer="Adam",
        other_optimizer_bytes=12,
        other_state_bytes=16,
    )


def make_snapshot(
    step: int,
    *,
    activations: int = 100 * MIB,
    frozen: int = 4_000_000,
    trainable: int = 2_000,
    device: str = DEVICE,
    phase: Phase = "train",
    unattributed: int = 4096,
    rounding: int = 512,
    replay: Replay | None = None,
    held_tensors: tuple[HeldTensorGroup, ...] = (),
) -> Snapshot:
    """A snapshot whose ledger holds exactly the given bytes, some of the activations' chunks being
    rounding."""
    ledger = (
        LedgerRow("model/backbone", "activations", None, activations - rounding, 0),
        LedgerRow("model/backbone", "weights", False, frozen, 0),
        LedgerRow(None, "unattributed", None, unattributed, None),
        LedgerRow("model/head", "weights", True, trainable, 0),
        *((LedgerRow("model/backbone", "rounding", None, rounding, rounding),) if rounding else ()),
    )
    return Snapshot(
        step=step,
        phase=phase,
        device=device,
        wall_time=START + step / 2,
        mode="graph",
        in_use_bytes=activations + frozen + trainable + unattributed,
        pool_bytes=512 * MIB,
        largest_free_bytes=128 * MIB,
        capacity_bytes=2048 * MIB,
        fragmentation=0.25,
        rounding_bytes=rounding,
        ledger=ledger,
        saved_for_backward=(SavedRow("model/backbone", activations - rounding),),
        not_available=("the map is not available, because this is a test",),
        replay=replay,
        held_tensors=held_tensors,
    )


REPLAY = Replay(addresses=3079, of_addresses=3080, chunks=658, of_chunks=659, peak_bytes=600 * MIB)
HELD_PATH = "module __main__ › history (list) › […]"
HELD_TENSORS = (
    HeldTensorGroup(
        (32, 10),
        "float32",
        40,
        51_200,
        "list `history` in module __main__",
        "train.py:42",
        HELD_PATH,
    ),
    HeldTensorGroup((), "float32", 1, 4, None),
)


def make_map(step: int | None, *, device: str = DEVICE, capacity: int = 2048 * MIB) -> MemoryMap:
    """16 MiB in two regions: 7 MiB in use by two owners, 1 MiB by nobody known; holes of 2 and 6
    MiB, one pinned."""
    return MemoryMap(
        step=step,
        phase=None if step is None else "train",
        device=device,
        wall_time=START + (step or 0) / 2,
        address=BASE_ADDRESS + np.asarray([0, 3 * MIB, 8 * MIB, 10 * MIB, 14 * MIB]),
        bytes=np.asarray([3 * MIB, MIB, 2 * MIB, 4 * MIB, 6 * MIB]),
        requested_bytes=np.asarray([3 * MIB - 100, MISSING, MISSING, 4 * MIB - 412, MISSING]),
        state=np.asarray([IN_USE, IN_USE, FREE, IN_USE, FREE]),
        owner=np.asarray([0, -1, -1, 1, -1]),
        source=np.asarray([1, 0, 0, 3, 0]),
        since=np.asarray([0, MISSING, MISSING, 3, MISSING]),
        region=np.asarray([0, 0, 1, 1, 1]),
        owners=(
            ChunkOwner("model/backbone", "weights", False),
            ChunkOwner("model/head", "activations", None),
        ),
        region_address=BASE_ADDRESS + np.asarray([0, 8 * MIB]),
        region_bytes=np.asarray([4 * MIB, 12 * MIB]),
        in_use_bytes=8 * MIB,
        pool_bytes=16 * MIB,
        capacity_bytes=capacity,
        complete=True,
        not_available=(),
    )


def make_timeline(step: int, *, device: str = DEVICE, phase: Phase = "train") -> Timeline:
    """Five moments; at the third, its peak, the ledger of `make_snapshot` is live."""
    ledger = list(make_snapshot(step).ledger)
    rounding = ledger.pop()
    ledger[0] = dataclasses.replace(
        ledger[0], bytes=ledger[0].bytes + rounding.bytes, rounding_bytes=rounding.bytes
    )
    weights = [row.category in ("weights", "unattributed") for row in ledger]
    return Timeline(
        step=step,
        phase=phase,
        device=device,
        wall_time=START + step / 2,
        mode="graph",
        in_use_bytes=sum(row.bytes for row in ledger),
        peak=2,
        events=4,
        duration_ns=1_800_000,
        time_ns=np.asarray([0, 250_000, 700_000, 1_200_000, 1_500_000]),
        event=np.arange(5),
        start=np.asarray([0 if stays else 2 for stays in weights]),
        end=np.asarray([5 if stays else 4 for stays in weights]),
        bytes=np.asarray([row.bytes for row in ledger]),
        rounding_bytes=np.asarray(
            [MISSING if row.rounding_bytes is None else row.rounding_bytes for row in ledger]
        ),
        count=np.asarray([1 if row.layer else 0 for row in ledger]),
        owner=np.arange(len(ledger)),
        op=np.asarray([-1 if stays else 0 for stays in weights]),
        address=np.asarray(
            [-1 if not row.layer else place * 128 * MIB for place, row in enumerate(ledger)]
        ),
        shape=np.asarray([-1 if stays else 0 for stays in weights]),
        line=np.asarray([-1 if stays else 0 for stays in weights]),
        owners=tuple(ChunkOwner(row.layer, row.category, row.trainable) for row in ledger),
        ops=("model/backbone/Relu",),
        shapes=(TensorShape((128, 204_799), "float32"),),
        lines=("train.py:42",),
        bands=(
            Band("forward", 0, 2),
            Band("backward", 2, 3),
            Band("backward_and_update", 3, 4),
            Band("update", 4, 5),
        ),
        compiled=(CompiledSpan(1, 2),),
        not_available=("the times are not available, because this is a test",),
    )


def make_oom(step: int) -> Oom:
    """8 MiB asked for of the map's 8 MiB free, at its limit."""
    death = OomEvent(
        "1",
        "failed",
        DEVICE,
        START + step / 2,
        step,
        "train",
        8 * MIB,
        "model/head/Relu",
        "model/head",
        "[16]",
    )
    return post_mortem(death, make_map(step, capacity=16 * MIB))


def make_activations(steps: Sequence[int], layers: Sequence[str], values: Any) -> LayerActivations:
    """Recorded activation bytes, half a second a step; `values` of shape [steps, layers]."""
    step = np.asarray(steps, np.int64)
    return LayerActivations(step, START + step / 2, tuple(layers), np.asarray(values, np.int64))


def sentences(findings: Iterable[Finding]) -> list[str]:
    return [finding.sentence for finding in findings]


def make_run(samples: Samples | None = None, **parts: Any) -> Run:
    """A run with these samples and nothing else but the given parts."""
    samples = make_samples([], []) if samples is None else samples
    made = Run("r", ("s",), ("",), (), samples, empty_activations(), (), (), ())
    return dataclasses.replace(made, **parts)


def write_records(directory: str | os.PathLike[str], *records: Any, worker: str = "") -> None:
    """A session of nothing but these records."""
    writer = RunWriter(directory, worker=worker)
    methods: dict[type, Callable[[Any], None]] = {
        Samples: writer.samples,
        Counters: writer.counters,
        LayerActivations: writer.activations,
        LayerTable: writer.layer_table,
        Oom: writer.oom,
    }
    for one in records:
        methods.get(type(one), writer.traced)(one)
    writer.close()


def write_small_run(
    directory: str | os.PathLike[str],
    *,
    worker: str = "",
    start: float = START,
    allocator: bool = False,
) -> None:
    """60 steps in two epochs, a peak of 700 MiB at step 41, an unfreezing at 30, two snapshots, a
    validation pass.

    At the ends of the steps of `MEASURED` the pool was measured.
    """
    writer = RunWriter(directory, versions={"tensorflow": "2.21.0"}, worker=worker)
    writer.layer_table(make_table(0, unfrozen=False))
    for first in range(0, 60, 10):
        steps = range(first, first + 10)
        peaks = [700 * MIB if step == 41 else 200 * MIB + step for step in steps]
        if first == 30:
            writer.layer_table(
                make_table(30, unfrozen=True, reason="model/backbone became trainable")
            )
        writer.samples(make_samples(steps, peaks, epoch=first // 30, start=start, pools=MEASURED))
        if first == 0:
            writer.traced(make_snapshot(3, replay=REPLAY, held_tensors=HELD_TENSORS))
            if allocator:
                writer.traced(make_map(3))
                writer.traced(make_timeline(3))
        if first == 40:
            writer.traced(make_snapshot(41, frozen=0, trainable=4_002_000, activations=600 * MIB))
    writer.samples(
        make_samples(
            [59] * 4, [120 * MIB, 150 * MIB, 140 * MIB, 90 * MIB], phase="validation", start=start
        )
    )
    if allocator:
        writer.oom(make_oom(59))
    writer.activations(
        make_activations(
            [0, 1, 2], ["model/backbone", "model/head"], [[100, 10], [300, 20], [200, 30]]
        )
    )
    writer.close()


def event_files(directory: str | os.PathLike[str]) -> list[pathlib.Path]:
    """The event files under `directory`, in order."""
    return sorted(path for path in pathlib.Path(directory).rglob("*tfevents*") if path.is_file())


def equal(left: Any, right: Any) -> bool:
    """Whether two values of the model are equal, arrays and their dtypes included."""
    if isinstance(left, np.ndarray):
        return (
            isinstance(right, np.ndarray)
            and left.dtype == right.dtype
            and np.array_equal(left, right)
        )
    if dataclasses.is_dataclass(left) and not isinstance(left, type):
        kinds = type(left), type(right)
        # A recorded table puts its bytes together when they are asked for.
        return (issubclass(*kinds) or issubclass(*reversed(kinds))) and all(
            equal(getattr(left, field.name), getattr(right, field.name))
            for field in dataclasses.fields(left)
        )
    if isinstance(left, Mapping):
        return (
            isinstance(right, Mapping)
            and left.keys() == right.keys()
            and all(equal(left[k], right[k]) for k in left)
        )
    if isinstance(left, tuple):
        return isinstance(right, tuple) and len(left) == len(right) and all(map(equal, left, right))
    return bool(left == right)


def session_of(
    identifier: str, contents: Mapping[Stream, Sequence[Any]]
) -> tuple[Session, list[str]]:
    """The session with these contents by stream, in order and without gaps, and what the reader
    says of it."""
    tables = {stream: Table(stream) for stream in contents}
    for stream, values in contents.items():
        for at, value in enumerate(values):
            tables[stream].add(Piece((Place(at, 0, MAX_STEP),), value, 0))
    return sessions.session_of(identifier, tables)
