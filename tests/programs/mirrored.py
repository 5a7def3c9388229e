import keras
import numpy as np
import tensorflow as tf

import tb_memplugin

BATCH = 64

cpus = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpus[0], [tf.config.LogicalDeviceConfiguration()] * 2)
# Without collective operations, beside which TensorFlow's profiler can crash.
strategy = tf.distribute.MirroredStrategy(
    ["CPU:0", "CPU:1"], cross_device_ops=tf.distribute.ReductionToOneDevice()
)

x = np.random.rand(768, 64).astype("float32")
y = np.random.randint(0, 10, 768)
ds = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)

with strategy.scope():
    model = keras.Sequential(
        [
            keras.layers.Dense(512, activation="relu"),
            keras.layers.Dense(256, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
history = model.fit(
    ds, epochs=2, callbacks=[tb_memplugin.MemoryCallback("runs/exp1", trace_steps=[2, 8, 14, 20])]
)
