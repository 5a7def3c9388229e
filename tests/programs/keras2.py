import numpy as np
import tf_keras as keras
from tf_keras import layers

import tb_memplugin

BATCH = 32

x_train = np.random.rand(384, 32, 32, 3).astype("float32")
y_train = keras.utils.to_categorical(np.random.randint(0, 10, 384), 10)

model = keras.Sequential(
    [
        layers.Conv2D(32, (3, 3), padding="same", input_shape=(32, 32, 3)),
        layers.BatchNormalization(),
        layers.Activation("relu"),
        layers.MaxPooling2D((2, 2)),
        layers.Conv2D(64, (3, 3), activation="relu"),
        layers.Flatten(),
        layers.Dense(64, activation="relu"),
        layers.Dense(10, activation="softmax"),
    ]
)
model.compile(optimizer="adam", loss="categorical_crossentropy", metrics=["accuracy"])
history = model.fit(
    x_train,
    y_train,
    batch_size=BATCH,
    epochs=2,
    callbacks=[tb_memplugin.MemoryCallback("runs/exp1")],
)
