import sys

import keras
import numpy as np
import tensorflow as tf

import tb_memplugin

B, kind, log = int(sys.argv[1]), sys.argv[2], sys.argv[3]
L = keras.layers
if kind == "boxes":
    m = keras.Sequential(
        [
            keras.Input((32, 32, 3)),
            L.Conv2D(32, 3, activation="relu"),
            L.Conv2D(32, 3, activation="relu"),
            L.GlobalAveragePooling2D(),
            L.Dense(4),
        ],
        name="detector",
    )
else:
    m = keras.Sequential(
        [keras.Input((32,)), L.Dense(256, "relu"), L.Dense(256, "relu"), L.Dense(4)], name="policy"
    )
opt = keras.optimizers.SGD(0.01)
opt.build(m.trainable_variables)


@tf.function
def step(x, targets):
    with tf.GradientTape() as t:
        if kind == "boxes":
            p = m(x)
            loss = tf.add_n(
                [tf.reduce_mean((b - p[i]) ** 2) for i, b in enumerate(targets)]
            )  # a list of boxes for each image, as TF's object detection API
        else:
            loss = tf.reduce_mean(
                (m(tf.reshape(x, (-1, 32))) - tf.reshape(targets, (-1, 4))) ** 2
            )  # time-major rollouts (T, B, ...)
    opt.apply(t.gradient(loss, m.trainable_variables), m.trainable_variables)
    return loss


rng = np.random.default_rng(0)


def r4(*s):
    return tf.constant(rng.random(s).astype("f"))


with tb_memplugin.MemoryRecorder(log, model=m, optimizer=opt, trace_steps=[3, 5, 7]) as r:
    for i in range(10):
        with r.step(i):
            step(
                *(
                    (r4(B, 32, 32, 3), [r4(6, 4) for _ in range(B)])
                    if kind == "boxes"
                    else (r4(20, B, 32), r4(20, B, 4))
                )
            )
