"""Trains real-size models with Keras's defaults on a GPU, where most of them are compiled, and
compares the predictions for three times the batch, and for a third of it, with the peaks that these
trainings have.

Each training is a process of its own that records its run. Compiling takes a minute or two for each
of the larger models; trainings run several at a time.

With `--ask`, XLA is asked about both batch sizes after a probe, in a process for each model, one
after the other, and the answers are compared with the trainings' peaks.

usage: python tests/gpu/real_size.py [--runs DIR] [--jobs 6] [--only NAME …] [--ask]
       python tests/gpu/real_size.py train NAME BATCH DIR
       python tests/gpu/real_size.py ask NAME
"""

import argparse
import concurrent.futures
import pathlib
import statistics
import sys
import tempfile
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent.parent))

from harness import alone, answer, limit, on_next_card

SMALLER = {
    "BERT-base": 16,
    "GPT-2": 8,
    "ViT-B": 32,
    "Gemma, LoRA": 4,
    "ResNet50": 32,
    "EfficientNetB0": 32,
    "U-Net": 16,
    "LSTM": 64,
}
"""Model to the smaller batch size; the larger one is three times as large."""
LENGTH, CLASSES, STEPS, SETTLED = 256, 10, 8, 4
CAPACITY_MIB = 20_000


def made(name: str) -> tuple[Any, Any, Any]:
    """The compiled model, and functions of a batch size that make its inputs and its targets."""
    import keras
    import numpy as np

    keras.utils.set_random_seed(1)
    loss, rng = (
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        np.random.default_rng(1),
    )

    def images(size: int) -> Any:
        return lambda count: rng.random((count, size, size, 3), dtype="float32")

    def classes(count: int) -> Any:
        return rng.integers(0, CLASSES, count)

    def tokens(count: int) -> Any:
        ids, ones = rng.integers(0, 8000, (count, LENGTH)), np.ones((count, LENGTH), "int32")
        segments = {"segment_ids": 0 * ones} if name == "BERT-base" else {}
        return {"token_ids": ids, "padding_mask": ones, **segments}

    def next_tokens(count: int) -> Any:
        return rng.integers(0, 8000, (count, LENGTH))

    if name in ("ResNet50", "EfficientNetB0"):
        model = getattr(keras.applications, name)(
            weights=None, classes=CLASSES, classifier_activation=None
        )
        model.compile("adam", loss)
        return model, images(224), classes
    if name == "U-Net":
        model = unet()
        model.compile("adam", loss)
        return model, images(256), lambda count: rng.integers(0, CLASSES, (count, 256, 256))
    if name == "LSTM":
        layers = keras.layers
        inputs = keras.Input((LENGTH,), dtype="int32")
        hidden = layers.LSTM(512, return_sequences=True)(layers.Embedding(8000, 256)(inputs))
        model = keras.Model(inputs, layers.Dense(CLASSES)(layers.LSTM(512)(hidden)))
        model.compile("adam", loss)
        return model, next_tokens, classes
    import keras_hub

    models = keras_hub.models
    if name == "BERT-base":
        backbone = models.BertBackbone(30_522, 12, 12, 768, 3072, max_sequence_length=512)
        model = models.BertTextClassifier(backbone=backbone, num_classes=CLASSES, preprocessor=None)
    elif name == "GPT-2":
        backbone = models.GPT2Backbone(50_257, 12, 12, 768, 3072, max_sequence_length=1024)
        model = models.GPT2CausalLM(backbone=backbone, preprocessor=None)
    elif name == "Gemma, LoRA":
        backbone = models.GemmaBackbone(256_000, 6, 8, 1, 2048, 16_384, 256)
        model = models.GemmaCausalLM(backbone=backbone, preprocessor=None)
        backbone.enable_lora(rank=4)
    else:
        backbone = models.ViTBackbone((224, 224, 3), 16, 12, 12, 768, 3072)
        model = models.ViTImageClassifier(backbone=backbone, num_classes=CLASSES, preprocessor=None)
    model.compile("adam", loss)
    of_images = name == "ViT-B"
    generates = name in ("GPT-2", "Gemma, LoRA")
    return model, images(224) if of_images else tokens, next_tokens if generates else classes


def unet() -> Any:
    import keras

    layers = keras.layers
    inputs = tensor = keras.Input((256, 256, 3))
    skipped = []

    def twice(tensor: Any, filters: int) -> Any:
        for _ in range(2):
            tensor = layers.Conv2D(filters, 3, padding="same")(tensor)
            tensor = layers.Activation("relu")(layers.BatchNormalization()(tensor))
        return tensor

    for filters in (32, 64, 128, 256):
        skipped.append(twice(tensor, filters))
        tensor = layers.MaxPooling2D()(skipped[-1])
    tensor = twice(tensor, 512)
    for filters in (256, 128, 64, 32):
        tensor = layers.Concatenate()(
            [layers.Conv2DTranspose(filters, 2, 2)(tensor), skipped.pop()]
        )
        tensor = twice(tensor, filters)
    return keras.Model(inputs, layers.Conv2D(CLASSES, 1)(tensor))


def train(name: str, batch: int, directory: str) -> None:
    """Trains a model for some steps, records the run and answers with the peaks of its later
    steps."""
    limit(CAPACITY_MIB)
    import keras
    import tensorflow as tf

    import tb_memplugin

    model, inputs, targets = made(name)
    recorder, peaks = tb_memplugin.MemoryCallback(directory, trace_steps=[2, 3]), []
    watch = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda step, logs: tf.config.experimental.reset_memory_stats("GPU:0"),
        on_train_batch_end=lambda step, logs: peaks.append(
            tf.config.experimental.get_memory_info("GPU:0")["peak"]
        ),
    )
    # the data set is in the device's memory: as large for both batch sizes
    count = 3 * SMALLER[name] * STEPS
    model.fit(
        inputs(count), targets(count), batch_size=batch, verbose=0, callbacks=[recorder, watch]
    )
    recorder.close()
    answer({"compiled": bool(model.jit_compile), "peak": int(statistics.median(peaks[SETTLED:]))})


def ask(name: str) -> None:
    """Asks XLA about both batch sizes of a model, with the data of the trainings."""
    limit(CAPACITY_MIB)
    import time

    import tensorflow as tf

    import tb_memplugin

    model, inputs, targets = made(name)
    sizes = (SMALLER[name], 3 * SMALLER[name])
    count = 3 * SMALLER[name] * STEPS
    x, y = inputs(count), targets(count)
    start = time.perf_counter()
    run = tb_memplugin.probe(model, (x, y))
    found = {
        "compiled": bool(model.jit_compile),
        "probe_s": round(time.perf_counter() - start, 1),
        "sizes": [],
    }
    for size in sizes:
        start, before = (
            time.perf_counter(),
            tf.config.experimental.get_memory_info("GPU:0")["current"],
        )
        tf.config.experimental.reset_memory_stats("GPU:0")
        asked = tb_memplugin.what_if(run, batch_size=size).prediction
        seconds = round(time.perf_counter() - start, 1)
        taken = tf.config.experimental.get_memory_info("GPU:0")["peak"] - before
        found["sizes"].append(
            [size, asked.method, asked.peak_bytes, seconds, taken, asked.assumptions[:1]]
        )
    answer(found)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", default=tempfile.mkdtemp())
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--only", nargs="*", choices=SMALLER, default=list(SMALLER))
    parser.add_argument("--ask", action="store_true")
    options = parser.parse_args()
    root = pathlib.Path(options.runs)

    def trained(name: str, batch: int) -> Any:
        found, fault = alone(
            __file__, "train", name, batch, root / f"{name}-{batch}", environment=on_next_card()
        )
        print(f"<!-- {name} {batch}: {found or fault} -->", flush=True)
        return found

    pairs = [(name, SMALLER[name] * factor) for name in options.only for factor in (1, 3)]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        found = dict(zip(pairs, pool.map(lambda pair: trained(*pair), pairs), strict=True))
    print(table(root, {pair: one for pair, one in found.items() if one}))
    if options.ask:
        print(asked_table(options.only, found))


def asked_table(names: list[str], measured: dict[tuple[str, int], Any]) -> str:
    """What XLA answered beside the measured peaks."""
    lines = [
        "| model | batch | method | asked MB | measured MB | error | seconds | device memory "
        "taken MB |",
        "|---|---|---|---:|---:|---:|---:|---:|",
    ]
    for name in names:
        found, fault = alone(__file__, "ask", name)
        print(f"<!-- asked {name}: {found or fault} -->", flush=True)
        for size, method, peak, seconds, taken, _ in (found or {}).get("sizes", []):
            real = (measured.get((name, size)) or {}).get("peak")
            if peak is None or real is None:
                lines.append(
                    f"| {name} | {size} | {method} | | | | {seconds} | {taken / 1e6:,.0f} |"
                )
                continue
            figures = f"{peak / 1e6:,.0f} | {real / 1e6:,.0f} | {100 * (peak / real - 1):+.1f} %"
            lines.append(
                f"| {name} | {size} | {method} | {figures} | {seconds} | {taken / 1e6:,.0f} |"
            )
    return "\n".join(lines)


def table(root: pathlib.Path, measured: dict[tuple[str, int], dict[str, Any]]) -> str:
    """Predictions from each run for the other batch size, beside the measured peaks."""
    import tb_memplugin
    from tb_memplugin.fit import Conditions, Predictor

    lines = [
        "| model | step | recorded | asked | predicted MB | range MB | measured MB | error | in "
        "range |",
        "|---|---|---:|---:|---:|---|---:|---:|---|",
    ]
    for name, batch in measured:
        other = batch * 3 if batch == SMALLER[name] else batch // 3
        if (name, other) not in measured:
            continue
        (run,) = tb_memplugin.load(root / f"{name}-{batch}").values()
        asked = Predictor.of(run, "GPU:0").predict(Conditions(batch_size=other))
        real = measured[name, other]["peak"]
        step = "compiled" if measured[name, batch]["compiled"] else "graph"
        if asked.peak_bytes is None or asked.low_bytes is None or asked.high_bytes is None:
            lines.append(
                f"| {name} | {step} | {batch} | {other} | {asked.assumptions[0]} | | "
                f"{real / 1e6:,.0f} | | |"
            )
            continue
        inside = "yes" if asked.low_bytes <= real <= asked.high_bytes else "no"
        peak, low, high = asked.peak_bytes, asked.low_bytes, asked.high_bytes
        figures = f"{peak / 1e6:,.0f} | {low / 1e6:,.0f} to {high / 1e6:,.0f} | {real / 1e6:,.0f}"
        error = f"{100 * (peak / real - 1):+.1f} %"
        lines.append(f"| {name} | {step} | {batch} | {other} | {figures} | {error} | {inside} |")
    return "\n".join(lines)


if __name__ == "__main__":
    if sys.argv[1:2] == ["train"]:
        train(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    elif sys.argv[1:2] == ["ask"]:
        ask(sys.argv[2])
    else:
        main()
