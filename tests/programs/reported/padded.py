import sys

import keras
import numpy as np
import tensorflow as tf

import tb_memplugin

B, T, log = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
L = keras.layers
m = keras.Sequential(
    [
        keras.Input((None,), dtype="int32"),
        L.Embedding(1000, 64),
        L.Conv1D(64, 3, padding="same", activation="relu"),
        L.Dense(128, "relu"),
        L.GlobalMaxPooling1D(),
        L.Dense(2),
    ],
    name="net",
)
m.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))


def texts():
    rng = np.random.default_rng(0)
    while True:
        yield rng.integers(1, 1000, T), rng.integers(0, 2)


ds = (
    tf.data.Dataset.from_generator(
        texts, output_signature=(tf.TensorSpec((None,), tf.int32), tf.TensorSpec((), tf.int32))
    )
    .padded_batch(B, drop_remainder=False)
    .take(12)
)
m.fit(ds, verbose=0, callbacks=[tb_memplugin.MemoryCallback(log, trace_steps=[3, 5, 7])])
