import keras
import numpy as np
import tensorflow as tf
from keras import layers

import tb_memplugin

BATCH = 32
LATENT = 8


class Sampling(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.seed_generator = keras.random.SeedGenerator(1337)

    def call(self, inputs):
        mean, log_var = inputs
        noise = keras.random.normal(tf.shape(mean), seed=self.seed_generator)
        return mean + tf.exp(0.5 * log_var) * noise


inputs = keras.Input((28, 28, 1))
x = layers.Conv2D(32, 3, activation="relu", strides=2, padding="same")(inputs)
x = layers.Conv2D(64, 3, activation="relu", strides=2, padding="same")(x)
x = layers.Dense(16, activation="relu")(layers.Flatten()(x))
mean, log_var = layers.Dense(LATENT)(x), layers.Dense(LATENT)(x)
encoder = keras.Model(inputs, [mean, log_var, Sampling()([mean, log_var])], name="encoder")

latent = keras.Input((LATENT,))
x = layers.Reshape((7, 7, 64))(layers.Dense(7 * 7 * 64, activation="relu")(latent))
x = layers.Conv2DTranspose(64, 3, activation="relu", strides=2, padding="same")(x)
x = layers.Conv2DTranspose(32, 3, activation="relu", strides=2, padding="same")(x)
decoder = keras.Model(
    latent, layers.Conv2DTranspose(1, 3, activation="sigmoid", padding="same")(x), name="decoder"
)


class VAE(keras.Model):
    def __init__(self, encoder, decoder):
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.loss_tracker = keras.metrics.Mean(name="loss")

    @property
    def metrics(self):
        return [self.loss_tracker]

    def train_step(self, data):
        with tf.GradientTape() as tape:
            mean, log_var, z = self.encoder(data)
            reconstruction = self.decoder(z)
            error = keras.losses.binary_crossentropy(data, reconstruction)
            kl = -0.5 * (1 + log_var - tf.square(mean) - tf.exp(log_var))
            loss = tf.reduce_mean(tf.reduce_sum(error, axis=(1, 2))) + tf.reduce_mean(
                tf.reduce_sum(kl, axis=1)
            )
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights))
        self.loss_tracker.update_state(loss)
        return {"loss": self.loss_tracker.result()}


digits = np.random.rand(384, 28, 28, 1).astype("float32")
model = VAE(encoder, decoder)
model.compile(optimizer=keras.optimizers.Adam())
history = model.fit(
    digits, epochs=2, batch_size=BATCH, callbacks=[tb_memplugin.MemoryCallback("runs/exp1")]
)
