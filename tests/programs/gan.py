import keras
import numpy as np
import tensorflow as tf
from keras import layers

import tb_memplugin

BATCH = 32
LATENT = 64

discriminator = keras.Sequential(
    [
        keras.Input((28, 28, 1)),
        layers.Conv2D(64, 3, strides=2, padding="same"),
        layers.LeakyReLU(negative_slope=0.2),
        layers.Conv2D(128, 3, strides=2, padding="same"),
        layers.LeakyReLU(negative_slope=0.2),
        layers.GlobalMaxPooling2D(),
        layers.Dense(1),
    ],
    name="discriminator",
)
generator = keras.Sequential(
    [
        keras.Input((LATENT,)),
        layers.Dense(7 * 7 * 64),
        layers.LeakyReLU(negative_slope=0.2),
        layers.Reshape((7, 7, 64)),
        layers.Conv2DTranspose(64, 4, strides=2, padding="same"),
        layers.LeakyReLU(negative_slope=0.2),
        layers.Conv2DTranspose(64, 4, strides=2, padding="same"),
        layers.LeakyReLU(negative_slope=0.2),
        layers.Conv2D(1, 7, padding="same", activation="sigmoid"),
    ],
    name="generator",
)


class GAN(keras.Model):
    def __init__(self, discriminator, generator):
        super().__init__()
        self.discriminator = discriminator
        self.generator = generator
        self.seed_generator = keras.random.SeedGenerator(1337)

    def compile(self, d_optimizer, g_optimizer, loss_fn):
        super().compile()
        self.d_optimizer = d_optimizer
        self.g_optimizer = g_optimizer
        self.loss_fn = loss_fn

    def train_step(self, real):
        noise = keras.random.normal((BATCH, LATENT), seed=self.seed_generator)
        fake = self.generator(noise)
        labels = tf.concat([tf.ones((BATCH, 1)), tf.zeros((BATCH, 1))], axis=0)
        with tf.GradientTape() as tape:
            d_loss = self.loss_fn(labels, self.discriminator(tf.concat([fake, real], axis=0)))
        grads = tape.gradient(d_loss, self.discriminator.trainable_weights)
        self.d_optimizer.apply(grads, self.discriminator.trainable_weights)

        noise = keras.random.normal((BATCH, LATENT), seed=self.seed_generator)
        with tf.GradientTape() as tape:
            g_loss = self.loss_fn(tf.zeros((BATCH, 1)), self.discriminator(self.generator(noise)))
        grads = tape.gradient(g_loss, self.generator.trainable_weights)
        self.g_optimizer.apply(grads, self.generator.trainable_weights)
        return {"d_loss": d_loss, "g_loss": g_loss}


digits = np.random.rand(320, 28, 28, 1).astype("float32")
dataset = tf.data.Dataset.from_tensor_slices(digits).shuffle(1024).batch(BATCH, drop_remainder=True)

d_optimizer = keras.optimizers.Adam(3e-4)
g_optimizer = keras.optimizers.Adam(3e-4)
model = GAN(discriminator, generator)
model.compile(d_optimizer, g_optimizer, keras.losses.BinaryCrossentropy(from_logits=True))
history = model.fit(dataset, epochs=2, callbacks=[tb_memplugin.MemoryCallback("runs/exp1")])
