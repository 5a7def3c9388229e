"""Compares predictions for models fed with arrays, whose batches have static shapes, with real trainings on a GPU.

Every training runs in a process of its own with memory growth, several at a time, on a data set of 1,536 examples,
which lies on the GPU as a whole. Prints Markdown. Takes about nine minutes on a machine with 16 cores.

usage: python tests/gpu/arrays.py [--jobs 6] [MODEL …]
"""

import argparse
import concurrent.futures
import json
import os
import statistics
import subprocess
import sys
import tempfile
from typing import Any

SIZES = {
    "EfficientNetB0": (64, 128),
    "MobileNetV3Large": (64, 128),
    "InceptionV3": (64, 128),
    "Xception": (32, 64),
    "ConvNeXtTiny": (32, 64),
    "BERT": (16, 48),
    "LSTM": (64, 192),
}
EXAMPLES = 1536
STEPS = 12
MIB = 1 << 20


def made(name: str) -> tuple[Any, Any]:
    """A model and its inputs."""
    import keras
    import numpy as np

    random = np.random.default_rng(1)
    if name == "BERT":
        import keras_hub

        backbone = keras_hub.models.BertBackbone(30522, 12, 12, 768, 3072, max_sequence_length=512)
        model = keras_hub.models.BertTextClassifier(backbone, num_classes=4, preprocessor=None)
        tokens = random.integers(0, 30522, (EXAMPLES, 128))
        return model, {"token_ids": tokens, "segment_ids": 0 * tokens, "padding_mask": 0 * tokens + 1}
    if name == "LSTM":
        inputs = keras.Input((200,), dtype="int32")
        hidden = keras.layers.LSTM(256, return_sequences=True)(keras.layers.Embedding(20000, 256)(inputs))
        model = keras.Model(inputs, keras.layers.Dense(1000)(keras.layers.LSTM(256)(hidden)))
        return model, random.integers(0, 20000, (EXAMPLES, 200))
    model = getattr(keras.applications, name)(weights=None, input_shape=(224, 224, 3), classifier_activation=None)
    return model, random.random((EXAMPLES, 224, 224, 3), "float32")


def train(name: str, batch: int, directory: str) -> None:
    """Record a training of some steps in graph mode."""
    import tb_memplugin  # isort: skip
    import keras
    import numpy as np

    keras.utils.set_random_seed(1)
    model, x = made(name)
    y = np.random.default_rng(2).integers(0, 4, EXAMPLES)
    # Predictions for compiled steps need two recorded sizes.
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    callback = tb_memplugin.MemoryCallback(directory + "/run", trace_steps=[3, 5, 7])
    model.fit(x, y, batch_size=batch, steps_per_epoch=STEPS, verbose=0, callbacks=[callback])


def peaks(name: str, directory: str) -> list[dict[str, Any]]:
    """The predicted and the real peak for each of a model's batch sizes, from the other one."""
    import tb_memplugin

    runs = {}
    for batch in SIZES[name]:
        place = f"{directory}/{name}/{batch}"
        command = [sys.executable, __file__, "--train", name, str(batch), place]
        subprocess.run(command, check=True, env={**os.environ, "TF_FORCE_GPU_ALLOW_GROWTH": "true"})
        runs[batch] = tb_memplugin.load(place)["run"]
    found = []
    for recorded, asked in (SIZES[name], SIZES[name][::-1]):
        answer = tb_memplugin.what_if(runs[recorded], batch_size=asked)
        real = statistics.median(runs[asked].samples.devices["GPU:0"].peak_bytes[3:].tolist())
        one = {"model": name, "sizes": [recorded, asked], "real": real, "peak": answer.peak_bytes}
        found.append({**one, "low": answer.prediction.low_bytes, "high": answer.prediction.high_bytes})
    return found


def row(one: dict[str, Any]) -> str:
    head = f"| {one['model']} | {one['sizes'][0]} → {one['sizes'][1]} | {one['real'] / MIB:,.0f}"
    if one["peak"] is None:
        return f"{head} | withheld | | |"
    inside = "yes" if one["low"] <= one["real"] <= one["high"] else "**no**"
    low, peak, high = (one[name] / MIB for name in ("low", "peak", "high"))
    return (
        f"{head} | {peak:,.0f} [{low:,.0f}, {high:,.0f}] | {100 * (one['peak'] / one['real'] - 1):+.1f} % | {inside} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(SIZES))
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--train", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        train(options.train[0], int(options.train[1]), options.train[2])
        return
    with tempfile.TemporaryDirectory() as directory, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for found in pool.map(lambda name: peaks(name, directory), options.models or list(SIZES)):
            print("\n".join([json.dumps(found), *map(row, found)]), flush=True)


if __name__ == "__main__":
    main()
