import keras
import numpy as np
import tensorflow as tf

import tb_memplugin

BATCH = 64

x = np.random.rand(2048, 20).astype("float32")
y = (x.sum(axis=1) > 10).astype("float32")
ds = (
    tf.data.Dataset.from_tensor_slices((x, y))
    .cache()
    .shuffle(2048)
    .batch(BATCH, drop_remainder=True)
)

model = keras.Sequential(
    [keras.layers.Dense(256, activation="relu") for _ in range(4)]
    + [keras.layers.Dense(1, activation="sigmoid")]
)
model.compile("rmsprop", "binary_crossentropy", metrics=["AUC"], steps_per_execution=4)
history = model.fit(ds, epochs=2, callbacks=[tb_memplugin.MemoryCallback("runs/exp1")])
