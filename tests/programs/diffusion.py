import keras
import numpy as np
import tensorflow as tf
from keras import layers

import tb_memplugin

BATCH = 16
TIMESTEPS = 1000
SIZE = 32


def time_embedding(t, dim=32):
    frequencies = tf.exp(-tf.math.log(10000.0) * tf.range(dim // 2, dtype=tf.float32) / (dim // 2))
    angles = tf.cast(t, tf.float32)[:, None] * frequencies[None]
    return tf.concat([tf.sin(angles), tf.cos(angles)], axis=-1)


def residual_block(x, emb, width):
    residual = x if x.shape[-1] == width else layers.Conv2D(width, 1)(x)
    x = layers.Conv2D(width, 3, padding="same", activation="swish")(layers.GroupNormalization(8)(x))
    x = layers.Add()([x, layers.Dense(width)(emb)[:, None, None, :]])
    x = layers.Conv2D(width, 3, padding="same", activation="swish")(layers.GroupNormalization(8)(x))
    return layers.Add()([x, residual])


image, t = keras.Input((SIZE, SIZE, 3)), keras.Input((32,))
x = layers.Conv2D(16, 3, padding="same")(image)
skip = residual_block(x, t, 16)
x = residual_block(layers.AveragePooling2D(2)(skip), t, 32)
x = layers.UpSampling2D(2, interpolation="nearest")(x)
x = residual_block(layers.Concatenate()([x, skip]), t, 16)
network = keras.Model(
    [image, t], layers.Conv2D(3, 1, kernel_initializer="zeros")(x), name="denoiser"
)


class DiffusionModel(keras.Model):
    def __init__(self, network):
        super().__init__()
        self.network = network
        beta = np.linspace(1e-4, 0.02, TIMESTEPS, dtype="float32")
        self.alpha_bar = tf.constant(np.cumprod(1 - beta), tf.float32)
        self.tracker = keras.metrics.Mean(name="loss")

    def train_step(self, images):
        t = tf.random.uniform((tf.shape(images)[0],), 0, TIMESTEPS, dtype=tf.int32)
        noise = tf.random.normal(tf.shape(images))
        alpha = tf.gather(self.alpha_bar, t)[:, None, None, None]
        noisy = tf.sqrt(alpha) * images + tf.sqrt(1 - alpha) * noise
        with tf.GradientTape() as tape:
            predicted = self.network([noisy, time_embedding(t)], training=True)
            loss = tf.reduce_mean(tf.square(noise - predicted))
        gradients = tape.gradient(loss, self.network.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.network.trainable_weights))
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result()}


data = np.random.rand(160, SIZE, SIZE, 3).astype("float32")
dataset = (
    tf.data.Dataset.from_tensor_slices(data)
    .cache()
    .repeat(2)
    .shuffle(64)
    .batch(BATCH, drop_remainder=True)
)
dataset = dataset.prefetch(tf.data.AUTOTUNE)

model = DiffusionModel(network)
model.compile(optimizer=keras.optimizers.AdamW(1e-3, weight_decay=1e-4))
history = model.fit(dataset, epochs=1, callbacks=[tb_memplugin.MemoryCallback("runs/exp1")])
