import sys

import keras
import numpy as np
import tensorflow as tf

import tb_memplugin

B = int(sys.argv[1])
q = keras.Sequential(
    [
        keras.Input((64,)),
        keras.layers.Dense(512, "relu"),
        keras.layers.Dense(512, "relu"),
        keras.layers.Dense(4),
    ],
    name="q",
)
opt = keras.optimizers.Adam(1e-3)
opt.build(q.trainable_variables)
rng = np.random.default_rng(0)


@tf.function
def learn(x, y):
    with tf.GradientTape() as t:
        loss = tf.reduce_mean((q(x) - y) ** 2)
    opt.apply(t.gradient(loss, q.trainable_variables), q.trainable_variables)
    return loss


with tb_memplugin.MemoryRecorder(sys.argv[2], model=q, optimizer=opt, trace_steps=[3, 5, 7]) as r:
    for i in range(10):
        with r.step(i):
            q(tf.constant(rng.random((1, 64)).astype("f")))  # the policy acts
            learn(
                tf.constant(rng.random((B, 64)).astype("f")),
                tf.constant(rng.random((B, 4)).astype("f")),
            )
