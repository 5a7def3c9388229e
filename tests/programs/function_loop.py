import keras
import numpy as np
import tensorflow as tf
from keras import layers

import tb_memplugin

BATCH = 32
EPOCHS = 2

images = np.random.rand(320, 32, 32, 3).astype("float32")
labels = np.random.randint(0, 10, 320)
dataset = (
    tf.data.Dataset.from_tensor_slices((images, labels))
    .shuffle(1000)
    .batch(BATCH)
    .prefetch(tf.data.AUTOTUNE)
)

inputs = keras.Input((32, 32, 3))
x = layers.Conv2D(32, 3, padding="same", activation="relu")(inputs)
for _ in range(2):
    y = layers.Conv2D(32, 3, padding="same")(x)
    y = layers.BatchNormalization()(y)
    x = layers.ReLU()(layers.Add()([x, y]))
x = layers.GlobalAveragePooling2D()(x)
model = keras.Model(inputs, layers.Dense(10)(x))

optimizer = keras.optimizers.SGD(1e-2, momentum=0.9)
loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
train_acc_metric = keras.metrics.SparseCategoricalAccuracy()
losses = []


@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        logits = model(x, training=True)
        loss_value = loss_fn(y, logits)
    grads = tape.gradient(loss_value, model.trainable_weights)
    optimizer.apply(grads, model.trainable_weights)
    train_acc_metric.update_state(y, logits)
    return loss_value


step = 0
with tb_memplugin.MemoryRecorder("runs/exp1", model=model, optimizer=optimizer) as recorder:
    for epoch in range(EPOCHS):
        for x_batch, y_batch in dataset:
            with recorder.step(step):
                losses.append(float(train_step(x_batch, y_batch)))
            step += 1
        print(
            f"epoch {epoch}: loss {losses[-1]:.4f}, accuracy {float(train_acc_metric.result()):.3f}"
        )
        train_acc_metric.reset_state()
