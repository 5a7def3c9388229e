"""The pool of pinned host memory that a recording names, against the kernel's own figure for those addresses.

Trains on a GPU with batches that the host prepares, loads the run and prints the parts of host memory at its last
measured step, their sum and RSS, and the resident bytes that /proc/self/smaps states for the pool's regions.

usage: python tests/gpu/pinned.py
"""

import re
import tempfile

STEPS = 300


def resident_in_smaps(ranges: list[tuple[int, int]]) -> int:
    """Resident bytes of the mappings that lie in the ranges."""
    with open("/proc/self/smaps", encoding="utf-8", errors="replace") as file:
        text = file.read()
    total = 0
    for mapping in re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", text):
        begin, end = (int(address, 16) for address in mapping.split(None, 1)[0].split("-"))
        resident = re.search(r"^Rss:\s+(\d+) kB", mapping, re.MULTILINE)
        if resident is not None and any(first <= begin and end <= last for first, last in ranges):
            total += int(resident[1]) << 10
    return total


def main() -> None:
    import keras
    import numpy as np
    import tensorflow as tf

    import tb_memplugin
    from tb_memplugin.analysis.host.host_memory import host_summaries
    from tb_memplugin.importers.allocator.memory_dump import pool_ranges, summarize_dump
    from tb_memplugin.recorder.native.memory_maps import PINNED

    model = keras.Sequential([keras.Input((4096,)), keras.layers.Dense(1024), keras.layers.Dense(10)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    examples = (np.ones((1024, 4096), "float32"), np.zeros(1024, "int64"))
    data = tf.data.Dataset.from_tensors(examples).repeat(STEPS).prefetch(4)
    with tempfile.TemporaryDirectory() as directory:
        callback = tb_memplugin.MemoryCallback(f"{directory}/run")
        model.fit(data, verbose=0, callbacks=[callback])
        dump = callback._session.recording._maps.read(PINNED)
        callback.close()
        run = tb_memplugin.load(directory)["run"]
    (summary,) = host_summaries(run).values()
    print(summary.sentence(), list(run.notes))
    print("map", None if dump is None else summarize_dump(dump))
    print("smaps", None if dump is None else resident_in_smaps(pool_ranges(dump)))
    print("state", summary.state)
    if summary.state is not None:
        print("sum of the parts − RSS", sum(summary.state.parts.values()) - summary.state.resident_bytes)


if __name__ == "__main__":
    main()
