# run_eagerly with objects in reference cycles: memory rises until Python's collector runs

import keras
import numpy as np
import tensorflow as tf


class Node:
    def __init__(self, t):
        self.t, self.me = t, self


class LossWithCycle(keras.losses.Loss):
    def call(self, y, p):
        d = tf.abs(y - p)
        Node(tf.identity(d))  # dropped at once, but in a cycle
        return tf.reduce_mean(d, -1)


x = np.random.rand(4096, 64).astype("float32")
y = np.random.rand(4096, 4096).astype("float32")
m = keras.Sequential([keras.Input((64,)), keras.layers.Dense(4096)])
m.compile("sgd", LossWithCycle(), run_eagerly=True)
m.fit(x, y, batch_size=64, epochs=2, verbose=0)
