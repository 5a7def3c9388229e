import sys

import keras
import numpy as np
import tensorflow as tf

import tb_memplugin

B, mask, log = int(sys.argv[1]), sys.argv[2] == "mask", sys.argv[3]
L = keras.layers
m = keras.Sequential(
    [keras.Input((200,)), *[L.Dense(500, "gelu") for _ in range(6)], L.Dense(8)], name="net"
)


def loss(t, p):
    error = tf.square(t - p)
    return tf.reduce_mean(tf.boolean_mask(error, t > 0.1) if mask else error)


m.compile("sgd", loss)
x, y = np.random.rand(2048, 200).astype("f"), np.random.rand(2048, 8).astype("f")
ds = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(B, drop_remainder=True).take(12)
m.fit(ds, verbose=0, callbacks=[tb_memplugin.MemoryCallback(log, trace_steps=[3, 5, 7])])
