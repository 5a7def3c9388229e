"""A training for `test_worker_processes`. usage: workers_child.py RUN asked|default"""

import os
import sys

os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "1")

import keras
import numpy as np
import tensorflow as tf

import tb_memplugin


def train_mirrored(run, **options):
    """`fit` with `MirroredStrategy` on four logical devices of the CPU, all of which the recorder
    is asked for."""
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 4)
    devices = [f"CPU:{number}" for number in range(4)]
    # Without collective operations, beside which TensorFlow's profiler can crash (docs/limits.md).
    with tf.distribute.MirroredStrategy(
        devices, cross_device_ops=tf.distribute.ReductionToOneDevice()
    ).scope():
        model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(256, name="wide")])
        model.compile("sgd", "mse")
    callback = tb_memplugin.MemoryCallback(run, devices=devices, **options)
    model.fit(
        np.ones((160, 64)), np.ones((160, 256)), batch_size=32, verbose=0, callbacks=[callback]
    )
    callback.close()


if __name__ == "__main__":
    train_mirrored(sys.argv[1], **({"trace_steps": [2]} if sys.argv[2] == "asked" else {}))
