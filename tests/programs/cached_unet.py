import keras
import numpy as np
import tensorflow as tf
from keras import layers

import tb_memplugin

BATCH = 8
IMAGES = 80


def load(index):
    image = tf.random.uniform((64, 64, 3))
    mask = tf.cast(image[..., :1] > 0.5, tf.float32)
    return image, mask


def augment(image, mask):
    return tf.image.adjust_brightness(image, 0.1), mask


train_ds = (
    tf.data.Dataset.from_tensor_slices(np.arange(IMAGES))
    .map(load, num_parallel_calls=tf.data.AUTOTUNE)
    .cache()
    .shuffle(IMAGES)
    .map(augment, num_parallel_calls=tf.data.AUTOTUNE)
    .batch(BATCH, drop_remainder=True)
    .prefetch(tf.data.AUTOTUNE)
)


def double_conv(x, filters):
    x = layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
    return layers.Conv2D(filters, 3, padding="same", activation="relu")(x)


inputs = x = keras.Input((64, 64, 3))
skips = []
for filters in (16, 32):
    x = double_conv(x, filters)
    skips.append(x)
    x = layers.MaxPool2D()(x)
x = double_conv(x, 64)
for filters, skip in zip((32, 16), reversed(skips)):
    x = layers.Conv2DTranspose(filters, 2, strides=2)(x)
    x = double_conv(layers.Concatenate()([x, skip]), filters)
model = keras.Model(inputs, layers.Conv2D(1, 1, activation="sigmoid")(x))

model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
history = model.fit(train_ds, epochs=3, callbacks=[tb_memplugin.MemoryCallback("runs/exp1")])
