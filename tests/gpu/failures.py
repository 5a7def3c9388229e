"""Failed allocations on a real GPU: what the post-mortem says of each. Prints a JSON object for
each failure.

A logical device limits the GPU's memory. `fragmentation`, `capacity` and `compiled` are compared
with TensorFlow's own dump, and print the bar of the device's memory; `first_step` has several
models that fail in their very first step.

usage: python tests/gpu/failures.py fragmentation|capacity|compiled|first_step
"""

import concurrent.futures
import glob
import json
import os
import pathlib
import sys
import tempfile
import time
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from harness import MIB, alone, answer, by_category, limit, made

import tb_memplugin
from tb_memplugin.allocator import would_fit
from tb_memplugin.analysis import device_memory
from tb_memplugin.importers import read_dump
from tb_memplugin.schema import FREE, IN_USE

LIMIT_MIB = 2048
FIRST_STEPS = (
    # fails in the optimizer of the first step, in a kernel that reports no size
    ("VGG16", "graph", 16, 3072),
    ("ResNet50", "graph", 96, 4096),
    ("ResNet50", "eager", 64, 4096),
    ("MobileNetV2", "graph", 96, 1024),
    ("ResNet50", "xla", 96, 2048),
)


def take(megabytes: int) -> Any:
    return tf.zeros([megabytes * MIB], tf.uint8)


def in_use() -> int:
    return int(tf.config.experimental.get_memory_info("GPU:0")["current"])


def small(compiled: bool) -> keras.Model:
    keras.utils.set_random_seed(1)
    layers = keras.layers
    convolutions = [
        layers.Conv2D(64, 3, activation="relu", name=name) for name in ("first", "second")
    ]
    head = [layers.GlobalAveragePooling2D(name="pool"), layers.Dense(10, name="logits")]
    model = keras.Sequential([keras.Input((64, 64, 3)), *convolutions, *head], name="net")
    model.compile(
        "adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=compiled
    )
    return model


def fragmentation(directory: str) -> None:
    """64 MiB asked for of 128 that are free in pieces of 32."""
    with tb_memplugin.MemoryRecorder(directory) as recorder:
        held: list[Any] = []
        while LIMIT_MIB * MIB - in_use() >= 33 * MIB:
            held.append(take(32))
        for place in (3, 5, 7, 9):
            held[place] = None
        with recorder.step(7):
            take(64)


def capacity(directory: str, compiled: bool = False) -> None:
    """A batch that is too large, after traced steps of a smaller one."""
    images, labels = np.ones((16 * 8, 64, 64, 3), "float32"), np.zeros(16 * 8, "int64")
    model = small(compiled)
    callback = tb_memplugin.MemoryCallback(directory, trace_steps=[2, 5])
    model.fit(images, labels, batch_size=16, verbose=0, callbacks=[callback])
    time.sleep(6)  # the driver is asked every few seconds
    large = tf.data.Dataset.from_tensors(
        (np.ones((2048, 64, 64, 3), "float32"), np.zeros(2048, "int64"))
    ).repeat(3)
    try:
        model.fit(large, verbose=0, callbacks=[callback])
    finally:
        callback.close()


def first_step(directory: str, name: str, mode: str, batch: int) -> None:
    model = made(name, mode)
    x, y = (
        np.random.random((batch * 3, 224, 224, 3)).astype("float32"),
        np.random.randint(0, 1000, batch * 3),
    )
    callback = tb_memplugin.MemoryCallback(directory)
    try:
        model.fit(x, y, batch_size=batch, verbose=0, callbacks=[callback])
    finally:
        callback.close()


def told(run: Any, dump: Any) -> dict[str, Any]:
    """What the run says of its first failure, and whether its chunks are those of TensorFlow's
    dump."""
    oom, categories = run.ooms[0], by_category(run.ooms[0].ledger)
    bar = device_memory(run, oom.device)
    names = (
        "status step phase verdict reason op layer requested_bytes free_bytes largest_free_bytes "
        "in_use_bytes"
    )
    columns = ("address", "bytes", "state")
    return {
        "failures": len(run.ooms),
        **{name: getattr(oom, name) for name in [*names.split(), "not_available"]},
        "owned_share": 1 - categories.get("unattributed", 0) / oom.in_use_bytes,
        "categories": {name: round(size / MIB, 1) for name, size in categories.items()},
        "same_chunks": dump is not None
        and all(np.array_equal(getattr(oom.map, name), getattr(dump, name)) for name in columns),
        "fixes": [[fix.kind, fix.enough, fix.sentence] for fix in oom.fixes],
        "would_fit": {}
        if oom.map is None
        else {size: would_fit(oom.map, size * MIB) for size in (1, 32, 512)},
        "maps": [
            [one.step, len(one), *(int((one.state == of).sum()) for of in (IN_USE, FREE))]
            for one in run.maps
        ],
        "device_memory": None
        if bar is None
        else {
            "total": bar.total_bytes,
            "process": bar.driver_process_bytes,
            "used": bar.driver_used_bytes,
            "segments": [
                [segment.part, segment.category, segment.bytes] for segment in bar.segments
            ],
            "notes": bar.notes,
        },
    }


def main(kind: str, *case: str) -> None:
    if kind == "first_step" and not case:
        with concurrent.futures.ThreadPoolExecutor(len(FIRST_STEPS)) as pool:
            for found, errors in pool.map(lambda each: alone(__file__, kind, *each), FIRST_STEPS):
                print(json.dumps(found) if found else errors, flush=True)
        return
    directory = tempfile.mkdtemp()
    os.environ["TF_BFC_MEMORY_DUMP"] = f"{directory}/dump"
    limit(int(case[3]) if case else LIMIT_MIB)
    error = None
    try:
        if case:
            first_step(f"{directory}/run", case[0], case[1], int(case[2]))
        elif kind == "fragmentation":
            fragmentation(f"{directory}/run")
        else:
            capacity(f"{directory}/run", compiled=kind == "compiled")
    except tf.errors.OpError as raised:
        error = f"{type(raised).__name__}: {str(raised)[-400:]}"
    paths = sorted(glob.glob(f"{directory}/dump_*"))
    dump = read_dump(pathlib.Path(paths[-1]).read_bytes(), 0.0) if paths else None
    run = tb_memplugin.load(directory)["run"]
    found = told(run, dump) if run.ooms else {}
    answer(
        {
            "case": [kind, *case],
            "error": error,
            "dumps": len(paths),
            **found,
            "notes": [*run.notes, *run.damage],
        }
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
