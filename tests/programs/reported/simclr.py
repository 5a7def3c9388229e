import sys

import keras
import numpy as np
import tensorflow as tf

import tb_memplugin

B, views, static, log = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "static", sys.argv[4]
L = keras.layers
enc = keras.Sequential([keras.Input((64,)), L.Dense(128, "relu"), L.Dense(48)], name="encoder")


class Contrastive(keras.Model):
    def __init__(self):
        super().__init__()
        self.enc = enc
        self.built = True

    def call(self, x):
        return self.enc(x)

    def compute_loss(self, x, y, y_pred, sample_weight=None, **kw):
        z = (
            tf.math.l2_normalize(y_pred, 1)
            if views == 1
            else tf.math.l2_normalize(tf.concat([y_pred, self.enc(y)], 0), 1)
        )  # one or two views
        n = tf.shape(z)[0]
        s = tf.matmul(z, z, transpose_b=True) / 0.1
        return tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits((tf.range(n) + n // 2) % n, s)
        )


m = Contrastive()
m.compile("sgd")
x = np.random.rand(1000, 64).astype("f")
ds = (
    tf.data.Dataset.from_tensor_slices((x, x + 0.1))
    .repeat()
    .batch(B, drop_remainder=static)
    .take(12)
)
m.fit(ds, verbose=0, callbacks=[tb_memplugin.MemoryCallback(log, trace_steps=[3, 5, 7])])
