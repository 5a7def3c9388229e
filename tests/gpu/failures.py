"""Both kinds of out-of-memory failure, the memory map and the bar of the device's memory, on a real GPU.

A logical device limits the GPU's memory. Run on a machine with one GPU; prints one JSON object. The recorded figures
are compared with TensorFlow's own dump.
"""

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

import tb_memplugin
from tb_memplugin.allocator.fit import would_fit
from tb_memplugin.analysis.devices.device_memory import device_memory
from tb_memplugin.importers.allocator.memory_dump import read_dump
from tb_memplugin.model import FREE, IN_USE

MIB = 1 << 20
LIMIT_MIB = 2048


def take(megabytes: int) -> Any:
    return tf.zeros([megabytes * MIB], tf.uint8)


def in_use() -> int:
    return int(tf.config.experimental.get_memory_info("GPU:0")["current"])


def model(compiled: bool) -> keras.Model:
    keras.utils.set_random_seed(1)
    made = keras.Sequential(
        [
            keras.Input((64, 64, 3)),
            keras.layers.Conv2D(64, 3, activation="relu", name="first"),
            keras.layers.Conv2D(64, 3, activation="relu", name="second"),
            keras.layers.GlobalAveragePooling2D(name="pool"),
            keras.layers.Dense(10, name="logits"),
        ],
        name="net",
    )
    made.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=compiled)
    return made


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
    made = model(compiled)
    callback = tb_memplugin.MemoryCallback(directory, trace_steps=[2, 5])
    made.fit(images, labels, batch_size=16, verbose=0, callbacks=[callback])
    time.sleep(6)  # the driver is asked every few seconds
    large = tf.data.Dataset.from_tensors((np.ones((2048, 64, 64, 3), "float32"), np.zeros(2048, "int64"))).repeat(3)
    try:
        made.fit(large, verbose=0, callbacks=[callback])
    finally:
        callback.close()


def compiled(directory: str) -> None:
    """`capacity` of a model that XLA compiled."""
    capacity(directory, compiled=True)


def told(run: Any, dump: Any) -> dict[str, Any]:
    """What the run says, and whether its chunks are those of TensorFlow's dump."""
    oom = run.ooms[0]
    owned = sum(row.bytes for row in oom.ledger if row.category != "unattributed")
    bar = device_memory(run, oom.device)
    return {
        "failures": len(run.ooms),
        "notes": [*run.notes, *run.damage],
        "step": oom.step,
        "phase": oom.phase,
        "verdict": oom.verdict,
        "reason": oom.reason,
        "op": oom.op,
        "layer": oom.layer,
        "requested_bytes": oom.requested_bytes,
        "free_bytes": oom.free_bytes,
        "largest_free_bytes": oom.largest_free_bytes,
        "in_use_bytes": oom.in_use_bytes,
        "owned_share": owned / oom.in_use_bytes,
        "same_chunks": bool(
            dump is not None
            and np.array_equal(oom.map.address, dump.address)
            and np.array_equal(oom.map.bytes, dump.bytes)
            and np.array_equal(oom.map.state, dump.state)
        ),
        "fixes": [[fix.kind, fix.enough, fix.sentence] for fix in oom.fixes],
        "not_available": oom.not_available,
        "would_fit": {size: would_fit(oom.map, size * MIB).fits for size in (1, 16, 32, 33, 64, 512)},
        "maps": [
            [
                memory_map.step,
                len(memory_map),
                int((memory_map.state == IN_USE).sum()),
                int((memory_map.state == FREE).sum()),
            ]
            for memory_map in run.maps
        ],
        "device_memory": None
        if bar is None
        else {
            "total": bar.total_bytes,
            "process": bar.driver_process_bytes,
            "used": bar.driver_used_bytes,
            "segments": [[segment.part, segment.category, segment.bytes] for segment in bar.segments],
            "notes": bar.notes,
        },
    }


def main(kind: str) -> None:
    directory = tempfile.mkdtemp()
    os.environ["TF_BFC_MEMORY_DUMP"] = f"{directory}/dump"
    gpu = tf.config.list_physical_devices("GPU")[0]
    tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=LIMIT_MIB)])
    error = None
    try:
        {"fragmentation": fragmentation, "capacity": capacity, "compiled": compiled}[kind](f"{directory}/run")
    except tf.errors.ResourceExhaustedError as raised:
        error = str(raised)[-400:]
    paths = sorted(glob.glob(f"{directory}/dump_*"))
    dump = read_dump(pathlib.Path(paths[-1]).read_bytes(), 0.0) if paths else None
    run = tb_memplugin.load(directory)["run"]
    answer = told(run, dump) if run.ooms else {"notes": [*run.notes, *run.damage]}
    print(json.dumps({"kind": kind, "error": error, "dumps": len(paths), **answer}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
