"""Trainings for `test_worker_processes`: processes that record into one run.

usage: workers_child.py steady RUN WORKER STEPS UNITS | mirrored RUN asked|default
"""

import os
import sys

os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "1")

import keras
import numpy as np
import tensorflow as tf

import tb_memplugin


def train(run, worker, steps, units):
    """A custom loop of a dense model; says each step, and waits to be killed if `steps` is 0."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(units, name="wide")])
    optimizer = keras.optimizers.SGD()
    inputs = tf.random.normal([32, 64])

    @tf.function
    def train_step(batch):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(batch, training=True) ** 2)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)

    with tb_memplugin.MemoryRecorder(run, model=model, optimizer=optimizer, worker=worker, overhead=0) as recorder:
        for step in range(steps or 1_000_000):
            with recorder.step(step):
                train_step(inputs)
            if steps == 0 and step == 20:
                recorder.flush()
                print("FLUSHED", flush=True)
                sys.stdin.readline()  # killed here


def train_mirrored(run, **options):
    """`fit` with `MirroredStrategy` on four logical devices of the CPU, all of which the recorder is asked for."""
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 4)
    devices = [f"CPU:{number}" for number in range(4)]
    # Without collective operations, beside which TensorFlow's profiler can crash (docs/limits.md).
    with tf.distribute.MirroredStrategy(devices, cross_device_ops=tf.distribute.ReductionToOneDevice()).scope():
        model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(256, name="wide")])
        model.compile("sgd", "mse", jit_compile=False)
    callback = tb_memplugin.MemoryCallback(run, devices=devices, **options)
    model.fit(np.ones((160, 64)), np.ones((160, 256)), batch_size=32, verbose=0, callbacks=[callback])
    callback.close()


if __name__ == "__main__":
    if sys.argv[1] == "mirrored":
        train_mirrored(sys.argv[2], **({"trace_steps": [2]} if sys.argv[3] == "asked" else {}))
    else:
        train(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
