"""Failed allocations on a real GPU, in the very first step and later: what the post-mortem says of each.

usage: python tests/gpu/oom.py [MODEL MODE BATCH LIMIT_MIB]
"""

import collections
import json
import subprocess
import sys
import tempfile

CASES = (
    ("VGG16", "graph", 16, 3072),  # fails in the optimizer of the first step, in a kernel that reports no size
    ("ResNet50", "graph", 96, 4096),
    ("ResNet50", "eager", 64, 4096),
    ("MobileNetV2", "graph", 96, 1024),
    ("ResNet50", "xla", 96, 2048),
)


def one(name: str, mode: str, batch: int, limit: int) -> dict:
    import keras
    import numpy as np
    import tensorflow as tf

    import tb_memplugin

    card = tf.config.list_physical_devices("GPU")[0]
    tf.config.set_logical_device_configuration(card, [tf.config.LogicalDeviceConfiguration(memory_limit=limit)])
    keras.utils.set_random_seed(1)
    model = getattr(keras.applications, name)(weights=None, input_shape=(224, 224, 3))
    model.compile(
        "adam", keras.losses.SparseCategoricalCrossentropy(), jit_compile=mode == "xla", run_eagerly=mode == "eager"
    )
    x, y = np.random.random((batch * 3, 224, 224, 3)).astype("float32"), np.random.randint(0, 1000, batch * 3)
    error = None
    with tempfile.TemporaryDirectory() as directory:
        callback = tb_memplugin.MemoryCallback(directory + "/run")
        try:
            model.fit(x, y, batch_size=batch, verbose=0, callbacks=[callback])
        except tf.errors.OpError as raised:
            error = f"{type(raised).__name__}: {str(raised)[:2000]}"
        callback.close()
        run = tb_memplugin.load(directory)["run"]
    told = []
    for oom in run.ooms:
        categories: dict = collections.Counter()
        for row in oom.ledger:
            categories[row.category] += row.bytes
        told.append(
            {
                "status": oom.status,
                "step": oom.step,
                "op": oom.op,
                "layer": oom.layer,
                "requested": oom.requested_bytes,
                "free": oom.free_bytes,
                "largest": oom.largest_free_bytes,
                "in_use": oom.in_use_bytes,
                "verdict": oom.verdict,
                "unattributed": categories["unattributed"],
                "categories": {name: round(size / 2**20, 1) for name, size in categories.items()},
                "notes": list(oom.not_available),
            }
        )
    return {"case": [name, mode, batch, limit], "error": error, "ooms": told, "notes": list(run.notes)}


def main() -> None:
    if len(sys.argv) == 5:
        print("ROW " + json.dumps(one(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))), flush=True)
        return
    children = [
        subprocess.Popen(
            [sys.executable, __file__, *map(str, case)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for case in CASES
    ]
    for case, child in zip(CASES, children, strict=True):
        output, errors = child.communicate()
        rows = [line for line in output.splitlines() if line.startswith("ROW ")]
        print(rows[0] if rows else f"{case} failed: {errors[-1500:]}", flush=True)


if __name__ == "__main__":
    main()
