# fit on a NumPy array puts the whole array on the device
import keras
import numpy as np

n, d = 4000, 2048
x = np.zeros((n, d), "float32")
m = keras.Sequential([keras.Input((d,)), keras.layers.Dense(64), keras.layers.Dense(d)])
m.compile("adam", "mse")
m.fit(x, x, batch_size=32, epochs=1, steps_per_epoch=60, verbose=0)
