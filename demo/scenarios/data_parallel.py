"""The same batch on one device, on two devices with `MirroredStrategy`, and in two processes with
`MultiWorkerMirroredStrategy`. The figures are sums over all devices: a replica has half of the
batch, but all of the weights and all of the optimizer's slots.

Without two GPUs, the two devices are logical devices of the CPU, which share one allocator. The two
processes record into one run, as the workers worker_0 and worker_1. Their training is a custom
loop, because `fit` of Keras 3 fails with `MultiWorkerMirroredStrategy`
(https://github.com/keras-team/keras/issues/20585).

usage: python demo/scenarios/data_parallel.py [--logdir runs/scenarios]
"""

import concurrent.futures
import functools
import json
import os
import pathlib
import socket
import subprocess
import sys

# Must be known before TensorFlow is imported: TensorFlow's default CPU allocator keeps no
# statistics.
os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "1")

import keras
import numpy as np
import tensorflow as tf
from scenario import FALLS, Advice, Comparison, Expected, Scenario, Variant, main
from scenario.crashes import PROFILER_CRASHED, crashed_in_profiler

import tb_memplugin
from tb_memplugin.schema import CATEGORIES

INPUTS, WIDTH, CLASSES, BATCH_SIZE, STEPS = 256, 512, 10, 1024, 5
TRACED = 3
GPUS = 2 if tf.config.list_physical_devices("GPU") else 0
"""Two devices of one kind: a machine with one GPU leaves the runs on two devices out."""


def make_model():
    return keras.Sequential(
        [
            keras.Input((INPUTS,)),
            keras.layers.Dense(WIDTH, activation="relu", name="wide1"),
            keras.layers.Dense(WIDTH, activation="relu", name="wide2"),
            keras.layers.Dense(CLASSES, name="logits"),
        ]
    )


def make_examples():
    random = np.random.default_rng(1)
    return random.random((STEPS * BATCH_SIZE, INPUTS), "float32"), random.integers(
        0, CLASSES, STEPS * BATCH_SIZE
    )


def train(run, replicas):
    """One process, one device for each replica."""
    kind = "GPU" if GPUS else "CPU"
    if kind == "CPU":
        (cpu,) = tf.config.list_physical_devices("CPU")
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * replicas
        )
    devices = [f"{kind}:{number}" for number in range(replicas)]
    strategy = (
        tf.distribute.MirroredStrategy(devices) if replicas > 1 else tf.distribute.get_strategy()
    )
    with strategy.scope():
        model = make_model()
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    recorded = devices if kind == "GPU" else devices[:1]
    callback = tb_memplugin.MemoryCallback(run, trace_steps=[TRACED], devices=recorded)
    model.fit(*make_examples(), batch_size=BATCH_SIZE, verbose=0, callbacks=[callback])
    callback.close()


def train_two_processes(run):
    """Starts both workers on this machine. Each could run on a machine of its own."""
    with socket.socket() as first, socket.socket() as second:
        first.bind(("localhost", 0))
        second.bind(("localhost", 0))
        addresses = [f"localhost:{one.getsockname()[1]}" for one in (first, second)]
    workers = []
    for index in range(2):
        cluster = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        environment = {
            **os.environ,
            "TF_CONFIG": json.dumps(cluster),
            "CUDA_VISIBLE_DEVICES": str(index),
        }
        command = [sys.executable, "-X", "faulthandler", __file__, "--worker", str(run)]
        workers.append(
            subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        )
    try:
        with concurrent.futures.ThreadPoolExecutor() as pool:  # one waits for the other
            logs = [
                log for _, log in pool.map(lambda worker: worker.communicate(timeout=150), workers)
            ]
    finally:
        for worker in workers:
            worker.kill()
    codes = [worker.returncode for worker in workers]
    if any(codes):
        print(*logs, sep="\n", file=sys.stderr)
        crashed = any(
            code < 0 and crashed_in_profiler(log) for code, log in zip(codes, logs, strict=True)
        )
        raise RuntimeError(PROFILER_CRASHED if crashed else f"the workers ended with {codes}")


def train_worker(run):
    """One of the processes. The recorder takes the worker's name from TF_CONFIG."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model, optimizer = make_model(), keras.optimizers.Adam()
        optimizer.build(model.trainable_variables)
    loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")

    def train_replica(inputs, classes):
        with tf.GradientTape() as tape:
            loss = loss_function(classes, model(inputs, training=True)) / BATCH_SIZE
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    @tf.function
    def train_step(batch):
        return strategy.reduce("SUM", strategy.run(train_replica, args=batch), axis=None)

    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    batches = (
        tf.data.Dataset.from_tensor_slices(make_examples()).batch(BATCH_SIZE).with_options(options)
    )
    with tb_memplugin.MemoryRecorder(
        run, model=model, optimizer=optimizer, trace_steps=[TRACED]
    ) as recorder:
        for step, batch in enumerate(strategy.experimental_distribute_dataset(batches)):
            with recorder.step(step):
                train_step(batch)


def measure(run):
    """Sums over the devices of all workers at the traced step."""
    snapshots = [one for one in run.snapshots if one.step == TRACED]
    figures = dict.fromkeys(("peak", "saved_activations", *CATEGORIES), 0)
    for snapshot in snapshots:
        figures["peak"] += snapshot.in_use_bytes
        figures["saved_activations"] += sum(
            row.bytes for row in snapshot.saved_for_backward if row.layer
        )
        for row in snapshot.ledger:
            figures[row.category] += row.bytes
    return figures


PARAMETERS = (INPUTS + 1) * WIDTH + (WIDTH + 1) * WIDTH + (WIDTH + 1) * CLASSES
# Results of both wide layers, the activations that the backward pass needs.
SAVED = 4 * BATCH_SIZE * 2 * WIDTH


def compared_with(name, title):
    expected = [
        Expected(
            "weights",
            4 * PARAMETERS,
            8 * PARAMETERS,
            f"4 B × {PARAMETERS:,} parameters in each replica",
        ),
        Expected(
            "optimizer_state", 8 * PARAMETERS, 16 * PARAMETERS, "twice the weights (Adam)", 0.001
        ),
    ]
    if name == "two_processes":  # on a CPU the replicas of one process train one after the other
        expected.append(
            Expected("saved_activations", SAVED, SAVED, "results of both wide layers", 0.02)
        )
    return Comparison(
        "one_device", name, title=title, claim=FALLS, figure="weights", expected=expected
    )


SCENARIO = Scenario(
    number=12,
    title="Data parallelism",
    file=__file__,
    description=__doc__,
    runs={
        "one_device": Variant(functools.partial(train, replicas=1)),
        "mirrored": Variant(functools.partial(train, replicas=2), gpus=GPUS),
        "two_processes": Variant(train_two_processes, gpus=GPUS),
    },
    measure=measure,
    advice=[
        Advice(
            words=["“The model is too large for one GPU: train it on two with MirroredStrategy.”"],
            verdict="not true",
            because="Every replica holds all weights, gradients and slots. Only the batch, and "
            "with it the activations, is divided.",
            comparisons=[
                compared_with("mirrored", "`MirroredStrategy`"),
                compared_with("two_processes", "`MultiWorkerMirroredStrategy`"),
            ],
        )
    ],
)

if __name__ == "__main__":
    if "--worker" in sys.argv:
        train_worker(pathlib.Path(sys.argv[-1]))
    else:
        main(SCENARIO)
