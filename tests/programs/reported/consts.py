# a training loop in one tf.function closes over the data: every batch becomes a constant of the
# graph
import keras
import numpy as np
import tensorflow as tf

model = keras.Sequential(
    [keras.Input((512,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(1)]
)
opt = keras.optimizers.SGD(0.01)
opt.build(model.trainable_variables)
batches = [
    (np.random.rand(512, 512).astype("float32"), np.random.rand(512, 1).astype("float32"))
    for _ in range(20)
]


@tf.function
def fit():
    for x, y in batches:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - y) ** 2)
        opt.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    return loss


for _ in range(40):
    fit()
