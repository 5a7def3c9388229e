"""Measures `remat` on a GPU: peak and time of a step with and without it, in graph mode and
compiled. Prints Markdown.

Each training has a process of its own with memory growth.

usage: python tests/gpu/recomputation.py [MODEL ...]
"""

import sys
import time
from typing import Any

from harness import alone, answer

# Size of the images, batch size, and one cut in so many.
MODELS = {
    "ResNet50": (224, 64, 6),
    "MobileNetV2": (224, 64, 9),
    "DenseNet121": (224, 32, 8),
    "Transformer": (0, 32, 1),
}
MODES = ("graph", "xla")
STEPS = 12


def train(name: str, kind: str, mode: str) -> None:
    """Trains in this process and prints losses, peak and time as JSON."""
    import keras
    import numpy as np
    import tensorflow as tf

    from tb_memplugin import cut_points, remat

    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
    if mode == "graph":
        tf.config.experimental.enable_op_determinism()
    keras.utils.set_random_seed(1)
    side, batch, every = MODELS[name]
    layers = keras.layers
    if name == "Transformer":
        tensor = inputs = keras.Input((512, 512))
        for _ in range(8):
            tensor = tensor + layers.MultiHeadAttention(8, 64, dropout=0.1)(tensor, tensor)
            tensor = layers.LayerNormalization()(tensor)
            wide = layers.Dropout(0.1)(layers.Dense(2048, "gelu")(tensor))
            tensor = layers.LayerNormalization()(tensor + layers.Dense(512)(wide))
        plain = keras.Model(inputs, layers.Dense(5)(layers.GlobalAveragePooling1D()(tensor)))
    else:
        arguments = {
            "weights": None,
            "input_shape": (side, side, 3),
            "classes": 5,
            "classifier_activation": None,
        }
        plain = getattr(keras.applications, name)(**arguments)
    model = remat(plain, cut_points(plain)[::every]) if kind == "remat" else plain
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, jit_compile=mode == "xla")
    random = np.random.default_rng(0)
    losses, times = [], []
    for step in range(STEPS):
        if step == 3:
            tf.config.experimental.reset_memory_stats("GPU:0")
        x = random.normal(size=(batch, *plain.input_shape[1:])).astype("float32")
        start = time.perf_counter()
        losses.append(float(model.train_on_batch(x, random.integers(0, 5, batch))))
        times.append(time.perf_counter() - start)
    peak = tf.config.experimental.get_memory_info("GPU:0")["peak"]
    answer({"losses": losses, "peak": peak, "step": sorted(times[3:])[len(times[3:]) // 2]})


def measured(name: str, kind: str, mode: str) -> Any:
    found, errors = alone(__file__, name, kind, mode)
    return found or {"fault": errors.splitlines()[-1][:200]}


def row(name: str, mode: str) -> str:
    plain, remat = (measured(name, kind, mode) for kind in ("plain", "remat"))
    fault = plain.get("fault") or remat.get("fault")
    if fault:
        return f"| {name} | {mode} | failed: {fault} | | |"
    peaks = f"{plain['peak'] / 2**20:,.0f} → {remat['peak'] / 2**20:,.0f} MiB"
    times = f"{1000 * plain['step']:.1f} → {1000 * remat['step']:.1f} ms"
    losses = "bit-identical"
    if plain["losses"] != remat["losses"]:
        again = measured(name, "plain", mode)
        losses = (
            f"differ by {apart(plain, remat):.1e}, those of two plain trainings by "
            f"{apart(plain, again):.1e}"
        )
    return f"| {name} | {mode} | {peaks} | {times} | {losses} |"


def apart(one: Any, other: Any) -> float:
    return max(abs(a - b) / abs(a) for a, b in zip(one["losses"], other["losses"], strict=True))


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[3] in MODES:
        train(*sys.argv[1:])
    elif {"-h", "--help"} & {*sys.argv} or not {*sys.argv[1:]} <= {*MODELS}:
        print(__doc__)
    else:
        print("| model | mode | peak | step | losses |\n|---|---|---|---|---|")
        for model in sys.argv[1:] or MODELS:
            for mode in MODES:
                print(row(model, mode), flush=True)
