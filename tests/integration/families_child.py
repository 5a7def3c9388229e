"""Trains one model on a real BFC allocator with `MemoryCallback`, and prints what it recorded and what it has to be.

Run as ``python families_child.py MODEL PIPELINE``. MODEL is ``NAME:SIZE:BATCH`` of `keras.applications`, or
``random:SEED``. PIPELINE is ``cached``, ``batched`` or ``arrays``. A process of its own: the allocator is chosen when
TensorFlow starts.
"""

import dataclasses
import json
import os
import sys
import tempfile
from typing import Any

os.environ["TF_CPU_ALLOCATOR_USE_BFC"] = "1"
os.environ.setdefault("TF_CPU_BFC_MEM_LIMIT_IN_MB", "6144")
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np
import tensorflow as tf
from random_model import RandomModel

import tb_memplugin
from tb_memplugin.analysis.fit.what_if_evidence import recorded_program
from tb_memplugin.prediction.conditions import RECORDED
from tb_memplugin.prediction.prediction import reproduce
from tb_memplugin.prediction.predictor import Predictor
from tb_memplugin.recorder.observe.model.layers import own_variables, walk

L = keras.layers
STEPS = (3, 5)


def application(name: str, size: int, batch: int) -> tuple[Any, Any, Any, Any]:
    """(model, optimizer, examples, labels): the first 70 % of a backbone's layers are frozen."""
    shape = (size, size, 3)
    backbone = getattr(keras.applications, name)(weights=None, include_top=False, input_shape=shape)
    for layer in backbone.layers[: int(0.7 * len(backbone.layers))]:
        layer.trainable = False
    model = keras.Sequential([keras.Input(shape), backbone, L.GlobalAveragePooling2D(), L.Dense(10)], name="model")
    generator, count = np.random.default_rng(0), 7 * batch - batch // 2
    x = generator.random((count, *shape), dtype=np.float32)
    return model, keras.optimizers.Adam(), x, generator.integers(0, 10, count)


def drawn(seed: int) -> tuple[Any, Any, Any, Any, int]:
    made = RandomModel(seed)
    x, y = made.data(7 * made.batch - made.batch // 2)
    return made.model, made.optimizer, x, y, made.batch


def fit(model: Any, x: Any, y: Any, batch: int, pipeline: str, directory: str) -> None:
    callback = tb_memplugin.MemoryCallback(directory, trace_steps=STEPS)
    if pipeline == "arrays":
        model.fit(x, y, batch_size=batch, verbose=0, callbacks=[callback])
    else:
        data = tf.data.Dataset.from_tensor_slices((x, y))
        if pipeline == "cached":
            data = data.cache().shuffle(len(x)).batch(batch).prefetch(tf.data.AUTOTUNE)
        else:
            data = data.batch(batch)
        model.fit(data, verbose=0, callbacks=[callback])
    callback.close()


def truth(model: Any) -> dict[str, dict[str, int]]:
    """Bytes of weights and of optimizer slots by layer path, from Keras."""
    trainable = {id(weight) for weight in model.trainable_weights}
    optimizer = model.optimizer
    total = sum(weight.numpy().nbytes for weight in model.trainable_weights)
    kept = sum(
        variable.numpy().nbytes
        for variable in optimizer.variables
        if variable is not optimizer.iterations and variable is not optimizer._learning_rate
    )
    slots, rest = divmod(kept, total)
    assert rest == 0, (kept, total)
    return {
        path: {
            "weights": sum(weight.numpy().nbytes for weight in weights),
            "slots": slots * sum(weight.numpy().nbytes for weight in weights if id(weight) in trainable),
        }
        for path, weights in own_variables(walk(model)).items()
    }


def main() -> None:
    name, pipeline = sys.argv[1], sys.argv[2]
    keras.utils.set_random_seed(0)
    if name.startswith("random:"):
        model, optimizer, x, y, batch = drawn(int(name.removeprefix("random:")))
    else:
        family, size, text = name.split(":")
        batch = int(text)
        model, optimizer, x, y = application(family, int(size), batch)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, jit_compile=False)
    with tempfile.TemporaryDirectory() as directory:
        fit(model, x, y, batch, pipeline, directory + "/run")
        (run,) = tb_memplugin.load(directory).values()
    samples = run.samples
    answer = {
        "layers": truth(model),
        "optimizer": type(optimizer).__name__,
        "batch": batch,
        "peaks": dict(zip(samples.step.tolist(), samples.devices["CPU:0"].peak_bytes.tolist(), strict=True)),
        "notes": run.notes,
        "requests": [
            {"step": one.step, "first": one.first, "batch": one.batch_size, **dataclasses.asdict(reproduce(one))}
            for one in run.requests
        ],
        "as_recorded": dataclasses.asdict(Predictor(recorded_program(run.requests, "CPU:0")).predict(RECORDED)),
        "snapshots": [dataclasses.asdict(snapshot) for snapshot in run.snapshots],
    }
    print("ANSWER " + json.dumps(answer))


if __name__ == "__main__":
    main()
