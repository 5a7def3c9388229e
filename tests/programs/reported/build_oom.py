# OOM while the model is built, before any fit: the kernel of the first dense layer does not fit
import os

os.environ["TF_CPU_BFC_MEM_LIMIT_IN_MB"] = "250"
import keras
import numpy as np

m = keras.Sequential(
    [
        keras.Input((7, 7, 512)),
        keras.layers.Flatten(),
        keras.layers.Dense(4096, activation="relu", name="fc1"),
        keras.layers.Dense(10, name="out"),
    ]
)
m.compile("adam", "mse")
m.fit(np.random.rand(8, 7, 7, 512), np.random.rand(8, 10), verbose=0)
