# a replay buffer of 40 MiB in variables that belong to no model
import keras
import numpy as np
import tensorflow as tf

import tb_memplugin

q = keras.Sequential(
    [keras.Input((64,)), keras.layers.Dense(256, "relu"), keras.layers.Dense(4)], name="q"
)
opt = keras.optimizers.Adam()
opt.build(q.trainable_variables)
buf = tf.Variable(tf.zeros((160000, 64)), trainable=False, name="replay_obs")
rng = np.random.default_rng(0)


@tf.function
def learn(rows):
    with tf.GradientTape() as t:
        loss = tf.reduce_mean(q(tf.gather(buf, rows)) ** 2)
    opt.apply(t.gradient(loss, q.trainable_variables), q.trainable_variables)
    return loss


with tb_memplugin.MemoryRecorder("rbuf/run", model=q, optimizer=opt, trace_steps=[3, 5]) as r:
    for i in range(8):
        with r.step(i):
            buf.scatter_nd_update([[i]], [rng.random(64).astype("f")])
            learn(tf.constant(rng.integers(0, 160000, 64)))
