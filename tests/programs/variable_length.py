import keras
import numpy as np
import tensorflow as tf
from keras import layers

import tb_memplugin

BATCH = 16


def sentences():
    for _ in range(192):
        length = np.random.randint(10, 60)
        yield np.random.randint(1, 5000, length).astype("int32"), np.random.randint(0, 2)


signature = (tf.TensorSpec((None,), tf.int32), tf.TensorSpec((), tf.int32))
ds = (
    tf.data.Dataset.from_generator(sentences, output_signature=signature)
    .padded_batch(BATCH)
    .prefetch(1)
)

model = keras.Sequential(
    [
        keras.Input((None,), dtype="int32"),
        layers.Embedding(5000, 64, mask_zero=True),
        layers.Bidirectional(layers.GRU(64, return_sequences=True)),
        layers.LSTM(32),
        layers.Dense(1, activation="sigmoid"),
    ]
)
model.compile("adam", "binary_crossentropy")
history = model.fit(ds, epochs=2, callbacks=[tb_memplugin.MemoryCallback("runs/exp1")])
