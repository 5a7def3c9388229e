"""What the scripts of this directory share: processes of their own, models, and a breakdown beside
Keras's counts."""

import collections
import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

ROW = "ROW "
MIB = 1 << 20


def alone(
    file: str, *arguments: object, environment: Mapping[str, str] | None = None
) -> tuple[Any, str]:
    """What `file` answered in a process of its own with these arguments, or None; and the end of
    its standard error."""
    command = [sys.executable, file, *map(str, arguments)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=environment or os.environ,
        timeout=1200,
        check=False,
    )
    rows = [line for line in done.stdout.splitlines() if line.startswith(ROW)]
    return json.loads(rows[-1][len(ROW) :]) if rows else None, done.stderr.strip()[-12_000:]


_cards: Iterator[str] = iter(())
_card_lock = threading.Lock()


def on_next_card() -> dict[str, str]:
    """The environment of a process that sees one card only, each in turn of those that this process
    sees."""
    global _cards
    with _card_lock:
        card = next(_cards, None)
        if card is None:
            listed = subprocess.run(
                ["nvidia-smi", "-L"], capture_output=True, text=True, check=True
            ).stdout
            seen = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(
                map(str, range(len(listed.splitlines())))
            )
            _cards = itertools.cycle(seen.split(","))
            card = next(_cards)
    return {**os.environ, "CUDA_VISIBLE_DEVICES": card}


def answer(value: Any) -> None:
    print(ROW + json.dumps(value), flush=True)


def limit(mib: int) -> None:
    """Give the first GPU a logical device of this size."""
    import tensorflow as tf

    card = tf.config.list_physical_devices("GPU")[0]
    tf.config.set_logical_device_configuration(
        card, [tf.config.LogicalDeviceConfiguration(memory_limit=mib)]
    )


def transformer() -> Any:
    import keras

    layers = keras.layers
    inputs = keras.Input((256,), dtype="int32")
    hidden = layers.Embedding(8000, 512)(inputs)
    for _ in range(6):
        attended = layers.MultiHeadAttention(8, 64)(hidden, hidden)
        hidden = layers.LayerNormalization()(layers.Add()([hidden, attended]))
        inner = layers.Dropout(0.1)(
            layers.Dense(512)(layers.Dense(2048, activation="gelu")(hidden))
        )
        hidden = layers.LayerNormalization()(layers.Add()([hidden, inner]))
    model = keras.Model(inputs, layers.Dense(1000)(layers.GlobalAveragePooling1D()(hidden)))
    model.layers[1].trainable = False
    return model


def made(name: str, mode: str, frozen: float = 0.0, image: int = 224) -> Any:
    """A compiled model without weights; `frozen` is the share of its layers that are."""
    import keras

    keras.utils.set_random_seed(1)
    if name == "Transformer":
        model = transformer()
    else:
        model = getattr(keras.applications, name)(weights=None, input_shape=(image, image, 3))
        for layer in model.layers[: int(len(model.layers) * frozen)]:
            layer.trainable = False
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=name == "Transformer")
    model.compile("adam", loss, jit_compile=mode == "xla", run_eagerly=mode == "eager")
    return model


def counted(model: Any) -> dict[str, tuple[int, int]]:
    """The bytes of weights and of Adam's slots by layer, as Keras counts them."""
    import numpy as np

    from tb_memplugin.recorder.watch.layers import own_variables, walk

    def size(weights: Iterable[Any]) -> int:
        return sum(4 * int(np.prod(weight.shape)) for weight in weights)

    trainable = {id(weight) for weight in model.trainable_weights}
    return {
        path: (size(weights), 2 * size(weight for weight in weights if id(weight) in trainable))
        for path, weights in own_variables(walk(model)).items()
    }


def by_category(ledger: Iterable[Any]) -> dict[str, int]:
    sums: collections.Counter[str] = collections.Counter()
    for row in ledger:
        sums[row.category] += row.bytes
    return dict(sums)


def compared(
    run: Any, snapshot: Any, truth: Mapping[str, tuple[int, int]], key: Callable[[str], str] = str
) -> dict[str, Any]:
    """A traced step's breakdown beside the allocator's peak, and the layers with other weights or
    slots than Keras's.

    Layers are the same that have the same `key`.
    """
    figures, samples = run.samples.devices[snapshot.device], run.samples
    sums: collections.Counter[tuple[str, str]] = collections.Counter()
    for row in snapshot.ledger:
        sums[row.category, key(row.layer or "")] += row.bytes
    categories = by_category(snapshot.ledger)
    return {
        "step": snapshot.step,
        "device": snapshot.device,
        "mode": snapshot.mode,
        "peak": int(
            figures.peak_bytes[(samples.step == snapshot.step) & (samples.phase == 0)].max()
        ),
        "ledger": sum(categories.values()),
        "unattributed": categories.get("unattributed", 0),
        "saved": sum(row.bytes for row in snapshot.saved_for_backward),
        "replay": None if snapshot.replay is None else vars(snapshot.replay),
        "wrong": [
            path
            for path, expected in truth.items()
            if expected != (sums["weights", key(path)], sums["optimizer_state", key(path)])
        ],
        "categories": {name: round(size / MIB, 1) for name, size in categories.items()},
        "pool": snapshot.pool_bytes,
        "notes": list(snapshot.not_available),
    }


def told(row: Mapping[str, Any]) -> str:
    """The line of a traced step."""
    ledger, unattributed = row["ledger"], row["unattributed"]
    return (
        f"  step {row['step']} {row['device']} {row['mode']}: ledger {ledger:,} = peak "
        f"{row['peak']:,} {ledger - row['peak']:+}, unattributed {unattributed:,} "
        f"({100 * unattributed / ledger:.4f} %), saved {row['saved']:,}, replay {row['replay']}, "
        f"layers with other weights or slots: {row['wrong']}, pool {row['pool']} "
        f"{row['categories']} {row['notes']}"
    )
