"""Directories that state much more than they hold: each a few megabytes at most, with right
checksums."""

import dataclasses
import io
import os
import pathlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from reading_cases import event_files, make_samples, make_snapshot, write_frames
from tensorboard.compat.proto import event_pb2, tensor_pb2, tensor_shape_pb2, types_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

from tb_memplugin.schema import (
    Counters,
    DeviceSamples,
    LayerActivations,
    LedgerRow,
    Samples,
    SessionInfo,
)
from tb_memplugin.storage.frames import Frame, Tag, codec, frame_of, frame_summary

FIGURES = 8
"""Columns of a device."""


def samples(rows: int, devices: list[str], first: int) -> Samples:
    """Zeros, which compress well."""
    step, zeros = np.arange(first, first + rows), np.zeros(rows, np.int64)
    return Samples(
        step,
        zeros,
        zeros,
        step / 2,
        zeros,
        {name: DeviceSamples(*[zeros] * FIGURES) for name in devices},
    )


def write(directory: pathlib.Path, tag: str, records: Iterable[Any], level: int = 6) -> None:
    """A frame of each record, in a tag with its number unless `tag` is one for all."""
    stream = tag.partition("/")[0]
    frames = (frame_of(stream, record, number) for number, record in enumerate(records))
    encoded = enumerate(codec.encode(frame, level) for frame in frames)
    write_frames(directory, [(tag.format(number), number, frame) for number, frame in encoded])


def frames_of_64_mib(run: pathlib.Path) -> None:
    write(
        run / "memory",
        "samples/s/{}",
        (samples(520_000, ["GPU:0"], 520_000 * at) for at in range(6)),
    )


def frames_in_one_tag(run: pathlib.Path) -> None:
    write(
        run / "memory",
        "samples/s/0",
        (samples(260_000, ["GPU:0"], 260_000 * at) for at in range(20)),
    )


def devices(run: pathlib.Path) -> None:
    names = [f"GPU:{at}" for at in range(15_000)]
    write(
        run / "memory",
        "samples/s/{}",
        (samples(2, names[250 * at : 250 * at + 250], 2 * at) for at in range(60)),
    )


def workers(run: pathlib.Path) -> None:
    table = samples(3000, [f"GPU:{at}" for at in range(8)], 0)
    for worker in range(300):
        write(run / "memory" / f"w{worker}", "samples/s/0", [table])


def steps_of_workers(run: pathlib.Path) -> None:
    """128 workers of 8 devices and 20,000 steps of their own."""
    alternating = np.arange(2000) % 2 * (2**40) + 1
    figures = {f"GPU:{at}": DeviceSamples(*[alternating] * FIGURES) for at in range(8)}
    for worker in range(128):
        steps = (10**6 * worker + np.arange(2000 * at, 2000 * at + 2000) for at in range(10))
        tables = (
            Samples(step, step * 0, step * 0, step / 2, alternating, figures) for step in steps
        )
        write(run / "memory" / f"w{worker}", "samples/s/{}", tables)


def sessions(run: pathlib.Path) -> None:
    frames = (
        codec.encode(frame_of("samples", samples(2, ["GPU:0"], 2 * at), 0), 6)
        for at in range(20_000)
    )
    write_frames(
        run / "memory", [(f"samples/s{at}/0", at, frame) for at, frame in enumerate(frames)]
    )


def activations(run: pathlib.Path) -> None:
    layers, zeros = tuple(f"l{at}" for at in range(20_000)), np.zeros((40, 20_000), np.int64)
    steps = (np.arange(40 * at, 40 * at + 40) for at in range(60))
    write(
        run / "memory",
        "activations/s/{}",
        (LayerActivations(step, step / 2, layers, zeros) for step in steps),
    )


def wide_values(run: pathlib.Path) -> None:
    """Figures that no narrower column holds, in all columns of a device and of 2,000 layers."""
    alternating = np.arange(1 << 20) % 2 * (2**53 - 2) + 1
    layers, rows = tuple(f"l{at}" for at in range(2_000)), alternating[:60_000]
    figures = {"GPU:0": DeviceSamples(*[rows] * FIGURES)}
    steps = (np.arange(60_000 * at, 60_000 * at + 60_000) for at in range(24))
    tables = (Samples(step, step % 2, step % 2, step / 2, rows, figures) for step in steps)
    write(run / "memory", "samples/s/{}", tables)
    values = alternating[: 512 * len(layers)].reshape(512, -1)
    steps = (np.arange(512 * at, 512 * at + 512) for at in range(20))
    write(
        run / "memory",
        "activations/s/{}",
        (LayerActivations(step, step / 2, layers, values) for step in steps),
    )


def objects(run: pathlib.Path) -> None:
    """Snapshots of 200,000 ledger rows, and sessions' facts with 200,000 notes."""
    ledger = tuple(LedgerRow(f"l{at % 50}", "other_state", None, 1, None) for at in range(200_000))
    taken = (
        dataclasses.replace(make_snapshot(at), ledger=ledger, in_use_bytes=len(ledger))
        for at in range(12)
    )
    write(run / "memory", "snapshots/s/{}", taken)
    facts = SessionInfo("s", 1.0, "recorder", {}, tuple(f"n{at}" for at in range(200_000)))
    write(run / "memory", "meta/s/{}", [facts] * 12)


def counters_with_texts(run: pathlib.Path) -> None:
    """500 frames of counters."""
    texts = tuple(f"{at:0500}" for at in range(4096))
    write(run / "memory", "samples/s/0", [samples(2, ["GPU:0"], 0)])
    steps = (np.full(4096, at) for at in range(500))
    counters = (Counters(step, ("traces",) * 4096, texts, step, step) for step in steps)
    write(run / "memory", "counters/s/{}", counters, level=1)


def strings(run: pathlib.Path) -> None:
    frames = []
    for at in range(4):
        tables = frame_of("samples", make_samples([at], [1]), at).tables
        extra = {"a": [str(number) for number in range(700_000)]}
        frame = Frame(1, at, at, at, 1, {"devices": []}, {**tables, "extra": extra})
        frames.append((f"samples/s/{at}", at, codec.encode(frame, 6)))
    write_frames(run / "memory", frames)


def tensors(run: pathlib.Path) -> None:
    """A string tensor that states 40 million elements."""
    (run / "memory").mkdir(parents=True)
    dimension = tensor_shape_pb2.TensorShapeProto.Dim(size=40_000_000)
    event = event_pb2.Event(step=1, summary=frame_summary(Tag("s", "samples", 0), b"x" * 200))
    event.summary.value[0].tensor.CopyFrom(
        tensor_pb2.TensorProto(
            dtype=types_pb2.DT_STRING,
            tensor_shape=tensor_shape_pb2.TensorShapeProto(dim=[dimension]),
            string_val=[b"x" * 200],
        )
    )
    with (run / "memory" / "events.out.tfevents.1").open("wb") as file:
        RecordWriter(file).write(event.SerializeToString())


def stray_bytes(run: pathlib.Path) -> None:
    """A stray byte before each of 28,000 records."""
    write(run / "memory", "samples/s/0", [samples(2, ["GPU:0"], 0)])
    (path,) = event_files(run)
    record = io.BytesIO()
    RecordWriter(record).write(b"x")
    path.write_bytes(path.read_bytes() + (b"\xff" + record.getvalue()) * 28_000)


def links(run: pathlib.Path) -> None:
    """Eight directories with links to each other."""
    for one in range(8):
        write(run / f"d{one}" / "memory", "samples/s/0", [samples(2, ["GPU:0"], 0)])
        for other in range(8):
            if other != one:
                os.symlink(run / f"d{other}", run / f"d{one}" / f"to_{other}")


CRAFTED: dict[str, Callable[[pathlib.Path], None]] = {
    "a tensor of 40 million elements": tensors,
    "frames of 64 MiB": frames_of_64_mib,
    "frames in one tag": frames_in_one_tag,
    "15,000 devices": devices,
    "300 workers": workers,
    "steps of 128 workers": steps_of_workers,
    "20,000 sessions": sessions,
    "20,000 layers of activations": activations,
    "700,000 strings per frame": strings,
    "values that stay wide": wide_values,
    "ledgers of 200,000 rows": objects,
    "2,048,000 rows of counters": counters_with_texts,
    "stray bytes": stray_bytes,
    "linked directories": links,
}


def make(name: str, logdir: pathlib.Path) -> None:
    """The crafted run ``hostile`` beside the honest run ``honest`` of five steps."""
    CRAFTED[name](logdir / "hostile")
    write(logdir / "honest" / "memory", "samples/s/0", [samples(5, ["GPU:0"], 0)])
