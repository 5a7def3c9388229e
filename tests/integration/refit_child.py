"""Runs out of memory for real with a large batch after a small one, or trains the large batch with
lines of advice.

usage: python refit_child.py record RUN_DIR | train CODE
"""

import json
import sys

import keras
import numpy as np
import tensorflow as tf

import tb_memplugin

L = keras.layers
SMALL, LARGE = 8, 48


def made():
    """Blocks without convolutions, which crash on the CPU when memory is short; with batch norm and
    dropout."""
    tensor = inputs = keras.Input((64, 32))
    for _ in range(8):
        wide = L.BatchNormalization()(L.Dense(128, "gelu")(tensor))
        tensor = L.Add()([tensor, L.Dropout(0.1)(L.Dense(32)(wide))])
    return keras.Model(inputs, L.Dense(5)(L.GlobalAveragePooling1D()(tensor)), name="net")


def compiled(model):
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def batch(size):
    random = np.random.default_rng(0)
    return random.normal(size=(size, 64, 32)).astype("float32"), random.integers(0, 5, size)


def record(directory):
    model = compiled(made())
    with tb_memplugin.MemoryRecorder(directory, model=model) as recorder:
        for step in range(8):
            with recorder.step(step):
                model.train_on_batch(*batch(SMALL))
        try:
            with recorder.step(8):
                model.train_on_batch(*batch(LARGE))
        except tf.errors.ResourceExhaustedError:
            return "ran out of memory"


def train(code):
    names = {"model": compiled(made())}
    exec(code, names)
    model = names["model"]
    try:
        for _ in range(8):
            loss = float(model.train_on_batch(*batch(LARGE)))
    except tf.errors.ResourceExhaustedError:
        return "ran out of memory"
    return f"loss {loss}"


if __name__ == "__main__":
    keras.utils.set_random_seed(1)
    print("ANSWER " + json.dumps({"record": record, "train": train}[sys.argv[1]](sys.argv[2])))
