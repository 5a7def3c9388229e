import keras
import numpy as np
from keras import layers

import tb_memplugin

BATCH = 16

x = np.random.rand(160, 48, 48, 3).astype("float32")
y = np.random.randint(0, 10, 160)


def build(filters):
    model = keras.Sequential(
        [
            keras.Input((48, 48, 3)),
            layers.Conv2D(filters, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(2 * filters, 3, activation="relu"),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(10),
        ]
    )
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


losses = []
for filters in (16, 24):
    model = build(filters)
    callback = tb_memplugin.MemoryCallback(f"runs/filters_{filters}")
    history = model.fit(x, y, batch_size=BATCH, epochs=2, callbacks=[callback])
    losses += history.history["loss"]
