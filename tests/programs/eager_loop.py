import keras
import numpy as np
import tensorflow as tf

import tb_memplugin

BATCH = 64

x = np.random.rand(768, 128).astype("float32")
y = np.random.rand(768, 1).astype("float32")
dataset = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(1024).batch(BATCH)

model = keras.Sequential(
    [keras.layers.Dense(512, activation="relu") for _ in range(3)] + [keras.layers.Dense(1)]
)
optimizer = keras.optimizers.Adam(1e-3)
mse = keras.losses.MeanSquaredError()
losses = []

with tb_memplugin.MemoryRecorder("runs/exp1", model=model, optimizer=optimizer) as recorder:
    for step, (inputs, targets) in enumerate(dataset):
        with recorder.step(step):
            with tf.GradientTape() as tape:
                loss = mse(targets, model(inputs, training=True))
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))
            losses.append(float(loss))
