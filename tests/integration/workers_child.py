"""A training for `test_worker_processes`. usage: workers_child.py RUN asked|default|none|every"""

import os
import sys

os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "1")

import keras
import numpy as np
import tensorflow as tf

import tb_memplugin


def train_mirrored(run, **options):
    """`fit` with `MirroredStrategy` on four logical devices of the CPU, all of which the recorder
    is asked for; without a run, its losses only."""
    keras.utils.set_random_seed(1)
    tf.config.experimental.enable_op_determinism()
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 4)
    devices = [f"CPU:{number}" for number in range(4)]
    with tf.distribute.MirroredStrategy(devices).scope():
        model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(256, name="wide")])
        model.compile("sgd", "mse")
    kept = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: print("loss", logs["loss"].hex())
    )
    callbacks = [kept]
    if options:
        callbacks.append(tb_memplugin.MemoryCallback(run, devices=devices, **options))
    # TensorFlow copies arrays that are not aligned, and takes the memory of others as it is.
    x, y = (np.random.rand(1 + 320 * width).astype("float32")[1:] for width in (64, 256))
    x, y = x.reshape(320, 64), y.reshape(320, 256)
    epochs = 1 + max(options.get("trace_steps", [0])) // 10
    model.fit(x, y, batch_size=32, epochs=epochs, verbose=0, callbacks=callbacks)
    for callback in callbacks[1:]:
        callback.close()


OPTIONS = {
    "asked": {"trace_steps": [0, 2]},
    "default": {"overhead": 0.5},
    "none": {},
    "every": {"trace_steps": range(300)},
}

if __name__ == "__main__":
    train_mirrored(sys.argv[1], **OPTIONS[sys.argv[2]])
