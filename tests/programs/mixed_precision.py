import keras
import numpy as np
import tensorflow as tf
from keras import layers

import tb_memplugin

BATCH = 32

keras.mixed_precision.set_global_policy("mixed_float16")

x = np.random.rand(320, 32, 32, 3).astype("float32")
y = np.random.randint(0, 10, 320)
ds = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x)).batch(BATCH).prefetch(2)

inputs = keras.Input((32, 32, 3))
h = layers.Conv2D(32, 3, padding="same", activation="relu")(inputs)
h = layers.Conv2D(32, 3, padding="same", activation="relu", strides=2)(h)
h = layers.LayerNormalization()(h)
h = layers.Conv2D(64, 3, padding="same", activation="relu", strides=2)(h)
h = layers.Dense(256, activation="relu")(layers.Flatten()(h))
outputs = layers.Dense(10, dtype="float32")(h)
model = keras.Model(inputs, outputs)

model.compile(
    "adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"]
)
history = model.fit(ds, epochs=2, callbacks=[tb_memplugin.MemoryCallback("runs/exp1")])
