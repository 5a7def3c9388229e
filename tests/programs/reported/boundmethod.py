# a tf.function of a whole epoch takes the step as a bound method; each call makes a new method and
# is traced again
import keras
import numpy as np
import tensorflow as tf


class Trainer:
    def __init__(self):
        self.model = keras.Sequential(
            [keras.Input((32,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(1)]
        )
        self.opt = keras.optimizers.Adam()

    def step(self, x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self.model(x) - y) ** 2)
        g = tape.gradient(loss, self.model.trainable_variables)
        self.opt.apply(g, self.model.trainable_variables)
        return loss


@tf.function
def epoch(step, ds):
    total = 0.0
    for x, y in ds:
        total += step(x, y)
    return total


t = Trainer()
t.opt.build(t.model.trainable_variables)
ds = tf.data.Dataset.from_tensor_slices(
    (np.random.rand(256, 32).astype("float32"), np.random.rand(256, 1).astype("float32"))
).batch(32)
for _ in range(60):
    epoch(lambda x, y: t.step(x, y), ds)  # a new callable for each call, as a bound method was then
