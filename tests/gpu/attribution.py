"""What the ledgers of traced steps say on a GPU: bytes without an owner, replay, weights and slots against Keras.

Every configuration trains in a process of its own: graph, XLA and eager mode, with memory growth and without.

usage: python tests/gpu/attribution.py [--growth 0|1|both] [--modes graph,xla,eager] [--models VGG16,...] [--on-device]
"""

import argparse
import collections
import json
import os
import subprocess
import sys
import tempfile
import time

MODELS = ("VGG16", "ResNet50", "DenseNet121", "MobileNetV2", "Transformer")
MODES = ("graph", "xla", "eager")
TRACED = (3, 6, 12)


def transformer() -> "keras.Model":  # noqa: F821
    import keras

    layers = keras.layers
    inputs = keras.Input((256,), dtype="int32")
    hidden = layers.Embedding(8000, 512)(inputs)
    for _ in range(6):
        attended = layers.MultiHeadAttention(8, 64)(hidden, hidden)
        hidden = layers.LayerNormalization()(layers.Add()([hidden, attended]))
        inner = layers.Dropout(0.1)(layers.Dense(512)(layers.Dense(2048, activation="gelu")(hidden)))
        hidden = layers.LayerNormalization()(layers.Add()([hidden, inner]))
    model = keras.Model(inputs, layers.Dense(1000)(layers.GlobalAveragePooling1D()(hidden)))
    model.layers[1].trainable = False
    return model


def data(name: str, batch: int, on_device: bool) -> "tf.data.Dataset":  # noqa: F821
    import numpy as np
    import tensorflow as tf

    random = np.random.default_rng(1)
    examples = batch * 8 + batch // 2
    if name == "Transformer":
        x = random.integers(0, 8000, (examples, 256)).astype("int32")
    else:
        x = random.random((examples, 224, 224, 3), "float32")
    y = random.integers(0, 1000, examples)
    # The pipeline of most users; a partial last batch is part of it.
    batches = tf.data.Dataset.from_tensor_slices((x, y)).cache().shuffle(examples).batch(batch)
    return batches.apply(tf.data.experimental.prefetch_to_device("/GPU:0", 2)) if on_device else batches.prefetch(2)


def one(name: str, mode: str, growth: bool, batch: int, on_device: bool) -> dict:
    import keras
    import tensorflow as tf

    import tb_memplugin
    from tb_memplugin.recorder.observe.model.layers import own_variables, walk

    for card in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(card, growth)
    keras.utils.set_random_seed(1)
    if name == "Transformer":
        model = transformer()
    else:
        model = getattr(keras.applications, name)(weights=None, input_shape=(224, 224, 3))
        for layer in model.layers[: len(model.layers) // 2]:
            layer.trainable = False
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=name == "Transformer")
    model.compile("adam", loss, jit_compile=mode == "xla", run_eagerly=mode == "eager")
    with tempfile.TemporaryDirectory() as directory:
        callback = tb_memplugin.MemoryCallback(directory + "/run", trace_steps=TRACED)
        model.fit(data(name, batch, on_device), epochs=2, verbose=0, callbacks=[callback])
        maps = callback._session.recording._maps
        began = time.perf_counter()
        dump = maps.read("GPU:0")
        read_seconds = time.perf_counter() - began
        callback.close()
        run = tb_memplugin.load(directory)["run"]
    trainable = {id(weight) for weight in model.trainable_weights}
    truth = {
        path: (
            sum(weight.numpy().nbytes for weight in weights),
            2 * sum(weight.numpy().nbytes for weight in weights if id(weight) in trainable),
        )
        for path, weights in own_variables(walk(model)).items()
    }
    rows = []
    for snapshot in run.snapshots:
        categories: dict = collections.Counter()
        weights: dict = collections.Counter()
        slots: dict = collections.Counter()
        for row in snapshot.ledger:
            categories[row.category] += row.bytes
            asked = row.bytes
            if row.category == "weights":
                weights[row.layer] += asked
            if row.category == "optimizer_state":
                slots[row.layer] += asked
        figures = run.samples.devices[snapshot.device]
        same = (run.samples.step == snapshot.step) & (run.samples.phase == 0)
        rows.append(
            {
                "step": snapshot.step,
                "mode": snapshot.mode,
                "peak": int(figures.peak_bytes[same][0]),
                "in_use": snapshot.in_use_bytes,
                "unattributed": categories["unattributed"],
                "pool": snapshot.pool_bytes,
                "replay": None if snapshot.replay is None else vars(snapshot.replay),
                "wrong_weights": sum(weights[path] != size for path, (size, _) in truth.items()),
                "wrong_slots": sum(slots[path] != size for path, (_, size) in truth.items()),
                "categories": {name: round(size / 2**20, 1) for name, size in categories.items()},
                "notes": list(snapshot.not_available),
            }
        )
    return {"rows": rows, "notes": list(run.notes), "map_ms": 1000 * read_seconds, "map_bytes": len(dump or b"")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--growth", default="both")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--on-device", action="store_true", help="prefetch batches to the GPU")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        name, mode, growth = arguments.one
        print("ROW " + json.dumps(one(name, mode, growth == "1", arguments.batch, arguments.on_device)), flush=True)
        return
    for growth in ("0", "1") if arguments.growth == "both" else (arguments.growth,):
        for name in arguments.models.split(","):
            for mode in arguments.modes.split(","):
                command = [sys.executable, __file__, "--batch", str(arguments.batch), "--one", name, mode, growth]
                command += ["--on-device"] * arguments.on_device
                done = subprocess.run(command, capture_output=True, text=True, env={**os.environ})
                found = [line[4:] for line in done.stdout.splitlines() if line.startswith("ROW ")]
                if not found:
                    print(f"{name} {mode} growth={growth} FAILED: {done.stderr.strip()[-1500:]}", flush=True)
                    continue
                answer = json.loads(found[0])
                print(f"{name} {mode} growth={growth} map {answer['map_ms']:.2f} ms {answer['notes']}", flush=True)
                for row in answer["rows"]:
                    share = 100 * row["unattributed"] / row["in_use"]
                    print(
                        f"  step {row['step']} {row['mode']} {row['in_use']:,} {row['in_use'] - row['peak']:+} "
                        f"unattributed {share:.4f} % weights {row['wrong_weights']} slots {row['wrong_slots']} wrong, "
                        f"replay {row['replay']} pool {row['pool']} {row['categories']} {row['notes']}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
