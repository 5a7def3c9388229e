import keras
import numpy as np
import tensorflow as tf
from keras import layers

import tb_memplugin

BATCH = 32
EXAMPLES = 384

features = {
    "image": np.random.rand(EXAMPLES, 32, 32, 3).astype("float32"),
    "tabular": np.random.rand(EXAMPLES, 16).astype("float32"),
}
labels = np.random.randint(0, 5, EXAMPLES)
ds = (
    tf.data.Dataset.from_tensor_slices((features, labels))
    .shuffle(1000)
    .batch(BATCH)
    .prefetch(tf.data.AUTOTUNE)
)

image = keras.Input((32, 32, 3), name="image")
tabular = keras.Input((16,), name="tabular")
x = layers.Conv2D(32, 3, padding="same", activation="relu")(image)
x = layers.MaxPooling2D()(x)
x = layers.Conv2D(64, 3, padding="same", activation="relu")(x)
x = layers.GlobalAveragePooling2D()(x)
y = layers.Dense(64, activation="relu")(tabular)
x = layers.concatenate([x, y])
outputs = layers.Dense(5)(x)
model = keras.Model(inputs=[image, tabular], outputs=outputs)

model.compile(
    "adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"]
)
history = model.fit(ds, epochs=2, callbacks=[tb_memplugin.MemoryCallback("runs/exp1")])
