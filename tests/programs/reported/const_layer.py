# a layer multiplies by a NumPy matrix: a constant of the graph (a fixed projection, filter bank or
# position table)
import keras
import numpy as np
import tensorflow as tf

P = np.random.rand(2048, 2048).astype("float32")  # 16 MiB


class Project(keras.layers.Layer):
    def call(self, x):
        return tf.matmul(x, P)


m = keras.Sequential(
    [keras.Input((2048,)), Project(name="project"), keras.layers.Dense(1, name="out")]
)
m.compile("sgd", "mse")
m.fit(
    np.random.rand(640, 2048).astype("float32"),
    np.zeros((640, 1), "float32"),
    batch_size=16,
    epochs=2,
    verbose=0,
)
