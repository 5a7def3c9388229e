import os

import tb_memplugin

os.environ["TF_CPU_BFC_MEM_LIMIT_IN_MB"] = "200"
import sys

import keras
import numpy as np
import tensorflow as tf

where = sys.argv[1]
xv = np.random.rand(8192, 64).astype("float32")


class WholeSet(keras.callbacks.Callback):
    def f(self):
        return self.model(xv)

    def on_epoch_end(self, epoch, logs=None):
        if where == "epoch":
            self.f()

    def on_train_batch_end(self, batch, logs=None):
        if where == "batch" and batch == 30:
            self.f()

    def on_train_end(self, logs=None):
        if where == "end":
            self.f()

    def on_train_begin(self, logs=None):
        if where == "begin":
            self.f()


m = keras.Sequential(
    [
        keras.Input((64,)),
        keras.layers.Dense(4096, activation="relu", name="wide"),
        keras.layers.Dense(1, name="out"),
    ]
)
m.compile("sgd", "mse")
cbs = [WholeSet(), tb_memplugin.MemoryCallback(f"runs/cb_oom_{where}{sys.argv[2]}/r")]
if sys.argv[2] == "1":
    cbs.reverse()
try:
    m.fit(
        np.random.rand(640, 64),
        np.random.rand(640, 1),
        batch_size=16,
        epochs=2,
        verbose=0,
        callbacks=cbs,
    )
    if where == "after":
        m(xv)
except tf.errors.ResourceExhaustedError:
    if sys.argv[3:] != ["catch"]:
        raise
    print("caught")
