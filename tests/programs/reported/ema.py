import keras
import numpy as np
import tensorflow as tf

import tb_memplugin

L = keras.layers


def net(name):
    return keras.Sequential(
        [keras.Input((256,)), L.Dense(2048, "relu"), L.Dense(512), L.Dense(1)], name=name
    )


class MeanTeacher(keras.Model):
    def __init__(self):
        super().__init__()
        self.student, self.teacher = net("student"), net("teacher")
        self.teacher.trainable = False
        self.built = True

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as t:
            loss = tf.reduce_mean((self.student(x) - y) ** 2) + tf.reduce_mean(
                (self.student(x) - self.teacher(x)) ** 2
            )
        self.optimizer.apply(
            t.gradient(loss, self.student.trainable_variables), self.student.trainable_variables
        )
        for e, w in zip(self.teacher.weights, self.student.weights):
            e.assign(0.99 * e + 0.01 * w)
        return {"loss": loss}


m = MeanTeacher()
m.compile("sgd")
m.fit(
    np.random.rand(160, 256).astype("f"),
    np.random.rand(160, 1).astype("f"),
    batch_size=16,
    verbose=0,
    callbacks=[tb_memplugin.MemoryCallback("ema/run", trace_steps=[3, 5, 7])],
)
