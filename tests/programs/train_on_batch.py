import keras
import numpy as np

import tb_memplugin

BATCH = 32

model = keras.Sequential(
    [
        keras.Input((8,)),
        keras.layers.Dense(128, activation="relu"),
        keras.layers.Dense(128, activation="relu"),
        keras.layers.Dense(2),
    ]
)
model.compile(optimizer="adam", loss="mse")
losses = []

with tb_memplugin.MemoryRecorder("runs/exp1", model=model) as recorder:
    for step in range(40):
        states = np.random.rand(BATCH, 8).astype("float32")
        targets = model.predict_on_batch(states) + 0.1
        with recorder.step(step):
            losses.append(float(model.train_on_batch(states, targets)))
