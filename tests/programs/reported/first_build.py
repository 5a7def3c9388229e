# OOM in fit before its first batch: fit builds the model, whose first kernel [25088, 4096] does not
# fit
import os

os.environ["TF_CPU_BFC_MEM_LIMIT_IN_MB"] = "250"
import keras
import numpy as np

x = np.random.rand(16, 25088).astype("float32")
m = keras.Sequential(
    [keras.layers.Dense(4096, activation="relu", name="fc1"), keras.layers.Dense(10, name="out")]
)
m.compile("adam", "mse")
m.fit(x, np.zeros((16, 10), "float32"), batch_size=8, epochs=1, verbose=0)
