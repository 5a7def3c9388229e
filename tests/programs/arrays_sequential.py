import keras
import numpy as np

import tb_memplugin

BATCH = 64
EXAMPLES = 768

x_train = np.random.rand(EXAMPLES, 28, 28).astype("float32")
y_train = np.random.randint(0, 10, EXAMPLES)

model = keras.Sequential(
    [
        keras.layers.Flatten(input_shape=(28, 28)),
        keras.layers.Dense(512, activation="relu"),
        keras.layers.Dropout(0.2),
        keras.layers.Dense(256, activation="relu"),
        keras.layers.Dense(10, activation="softmax"),
    ]
)
model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
history = model.fit(
    x_train,
    y_train,
    batch_size=BATCH,
    epochs=2,
    callbacks=[tb_memplugin.MemoryCallback("runs/exp1")],
)
