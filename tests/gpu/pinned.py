"""The pool of pinned host memory that a recording names, against the kernel's own figure for those
addresses.

Trains on a GPU with batches that the host prepares, loads the run and prints the recorded pool, the
last map of it, and the resident bytes that /proc/self/smaps states for its regions.

usage: python tests/gpu/pinned.py
"""

import re
import tempfile

STEPS = 300


def ranges_of(dump: bytes) -> list[tuple[int, int]]:
    """The address ranges of a memory map's chunks, those that touch each other together."""
    from tb_memplugin.importers import read_dump

    chunks = read_dump(dump, 0.0)
    ranges: list[tuple[int, int]] = []
    for begin, size in sorted(zip(chunks.address.tolist(), chunks.bytes.tolist(), strict=True)):
        if ranges and ranges[-1][1] == begin:
            ranges[-1] = ranges[-1][0], begin + size
        else:
            ranges.append((begin, begin + size))
    return ranges


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
    from tb_memplugin.analysis import host_summary
    from tb_memplugin.importers import summarize_dump
    from tb_memplugin.recorder.devices import PINNED

    model = keras.Sequential(
        [keras.Input((4096,)), keras.layers.Dense(1024), keras.layers.Dense(10)]
    )
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    examples = (np.ones((1024, 4096), "float32"), np.zeros(1024, "int64"))
    data = tf.data.Dataset.from_tensors(examples).repeat(STEPS).prefetch(4)
    with tempfile.TemporaryDirectory() as directory:
        callback = tb_memplugin.MemoryCallback(f"{directory}/run")
        model.fit(data, verbose=0, callbacks=[callback])
        dump = callback._recording.sender.steps.windows._maps.read(PINNED)
        callback.close()
        run = tb_memplugin.load(directory)["run"]
    print(list(run.notes))
    print("map", None if dump is None else summarize_dump(dump))
    print("smaps", None if dump is None else resident_in_smaps(ranges_of(dump)))
    pinned = run.samples.pinned_pool_bytes
    print("recorded", pinned[pinned >= 0][-1:], "state", host_summary(run))


if __name__ == "__main__":
    main()
