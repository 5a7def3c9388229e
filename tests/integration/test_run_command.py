"""`tb-memplugin run` records trainings whose code knows nothing of it, and the code behaves as
without it."""

import concurrent.futures
import functools
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from child import child_environment
from prepared_python import run_python

from tb_memplugin import load

MODEL = """
import sys
import keras, numpy as np, tensorflow as tf

model = keras.Sequential(
    [keras.Input((32,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(4)]
)
optimizer = keras.optimizers.Adam()
x, y = np.zeros((64, 32), "float32"), np.zeros((64, 4), "float32")
"""
FIT = """
model.compile(optimizer, "mse")
history = model.fit(x, y, batch_size=8, epochs=2, verbose=0, validation_split=0.25)
print("loss", history.history["loss"], len(model.predict(x, verbose=0)), sys.argv)
class Stop(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None): raise ValueError("stop")
if len(sys.argv) > 1: model.fit(x, y, 8, 1, 0, [Stop()])
"""
LOOP = """
def step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    return loss

weights = tf.Variable(tf.zeros((32, 4)))
@tf.function
def by_hand(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((x @ weights - y) ** 2)
    weights.assign_sub(0.1 * tape.gradient(loss, weights))
    return loss

@tf.function
def saliency(x):  # takes gradients and changes nothing
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(model(x))
    return tape.gradient(loss, x)

kind = sys.argv[1]
if kind == "function": step = tf.function(step)
elif kind == "by hand": step = by_hand
elif kind == "batch":
    model.compile(optimizer, "mse")
    step = model.train_on_batch
for _ in range(6):
    step(x, y)
    saliency(tf.constant(x))
"""


def run_command(arguments: list[str]) -> "subprocess.CompletedProcess[str]":
    """Run ``tb-memplugin run`` with these arguments, in a process with TensorFlow and Keras
    imported."""
    code = f"from tb_memplugin.cli.run import main; main({arguments!r})"
    return run_python(["-c", code], environment=child_environment(), timeout=240)


def record(folder: pathlib.Path, code: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a program under the command."""
    (folder / "train.py").write_text(code, encoding="utf-8")
    return run_command(
        ["--logdir", str(folder / "runs"), "--run", "it", str(folder / "train.py"), *arguments]
    )


def side_by_side(
    *commands: list[str], **options: Any
) -> Iterator["subprocess.CompletedProcess[str]"]:
    """What these commands, run at the same time, ended with."""
    run = functools.partial(
        subprocess.run, capture_output=True, text=True, timeout=240, check=False, **options
    )
    return concurrent.futures.ThreadPoolExecutor().map(run, commands)


def runs(folder: pathlib.Path) -> list[str]:
    """Names of the runs that were written."""
    return sorted(load(folder / "runs")) if (folder / "runs").exists() else []


def test_a_program_that_changes_its_directory_is_recorded_into_one_place(
    tmp_path, monkeypatch
) -> None:
    # GIVEN a program that trains two models, each in another directory
    (tmp_path / "train.py").write_text(
        """
import os, keras, numpy as np
x, y = np.zeros((64, 32), "float32"), np.zeros((64, 4), "float32")
for name in "one", "two":
    os.mkdir(name); os.chdir(name)
    model = keras.Sequential([keras.Input((32,)), keras.layers.Dense(4)])
    model.compile("sgd", "mse")
    model.fit(x, y, batch_size=8, verbose=0)
"""
    )
    monkeypatch.chdir(tmp_path)
    ended = run_command(["--logdir", "runs", "--run", "it", "train.py"])
    # THEN both runs are under the directory that was given, and the command says so as it was given
    assert ended.returncode == 0, ended.stderr
    assert {name: len(run.samples) for name, run in load("runs").items()} == {"it": 8, "it-2": 8}
    assert "\ntensorboard --logdir runs\n" in ended.stderr
    assert not list((tmp_path / "one").rglob("*tfevents*"))


def test_a_loop_of_a_program_that_imports_keras_before_tensorflow_is_recorded(
    tmp_path: pathlib.Path,
) -> None:
    # GIVEN a process in which neither is imported yet: Keras imports TensorFlow while it is
    # imported itself
    (tmp_path / "train.py").write_text(MODEL + LOOP, encoding="utf-8")
    command = [sys.executable, "-m", "tb_memplugin", "run", "--run", "it", "train.py", "by hand"]
    subprocess.run(
        command, cwd=tmp_path, env=child_environment(), capture_output=True, timeout=240, check=True
    )
    assert len(load(tmp_path / "runs")["it"].samples) == 6


def test_a_training_is_recorded_and_otherwise_the_same(tmp_path: pathlib.Path) -> None:
    # GIVEN a training that ends with an exception
    (tmp_path / "train.py").write_text(MODEL + FIT, encoding="utf-8")
    environment = child_environment({"PYTHONHASHSEED": "0"})
    command = [sys.executable, "-m", "tb_memplugin", "run", "--run", "it", "train.py", "fails"]
    # WHEN it is run by the command, in a process in which TensorFlow is not yet imported
    recorded, plain = side_by_side(
        command, [sys.executable, "train.py", "fails"], cwd=tmp_path, env=environment
    )
    # THEN exit code, output and traceback are those of the plain program
    assert (recorded.returncode, plain.returncode) == (1, 1)
    assert recorded.stdout.split("loss")[0] == plain.stdout.split("loss")[0]
    assert recorded.stdout.count("\n") == plain.stdout.count("\n")
    traceback = plain.stderr[plain.stderr.index("Traceback") :]
    assert traceback in recorded.stderr
    # AND the run is printed after it, with the line that shows it
    ending = recorded.stderr.split(traceback)[1]
    assert "\nit: " in ending and "sequential/dense" in ending
    assert "\ntensorboard --logdir runs\n" in ending
    # AND it holds the steps of all phases, and weights that equal Keras's count
    run = load(tmp_path / "runs")["it"]
    assert set(run.samples.phase.tolist()) == {0, 1, 2}
    parameters = 32 * 64 + 64 + 64 * 4 + 4
    weights = [row.bytes for row in run.snapshots[-1].ledger if row.category == "weights"]
    assert sum(weights) == 4 * parameters


@pytest.mark.parametrize(
    "kind",
    ["function", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("by hand", "batch"))],
)
def test_loops_whose_steps_can_be_seen_are_recorded(kind: str, tmp_path: pathlib.Path) -> None:
    done = record(tmp_path, MODEL + LOOP, kind)
    assert done.returncode == 0, done.stderr
    run = load(tmp_path / "runs")["it"]
    assert run.samples.step.tolist() == list(range(6))
    assert run.snapshots and runs(tmp_path) == ["it"]
    if kind != "by hand":
        # At the peak, in the backward pass, the first layer's result may have been freed.
        layers = {row.layer for row in run.snapshots[0].saved_for_backward}
        assert "sequential/dense" in layers and run.layer_tables


ONCE = """
import sys, keras, tensorflow as tf

keras.utils.set_random_seed(3)
L = keras.layers
model = keras.Sequential(
    [keras.Input((64,)), L.Dense(512, "relu"), L.Dropout(0.3), L.Dense(512, "relu"), L.Dense(3)]
)
optimizer = keras.optimizers.Adam()


@tf.function
def step(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(x, training=True) ** 2)
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    return loss


@tf.function
def evaluate(x):
    return tf.reduce_mean(model(x) ** 2)


x = tf.random.normal((int(sys.argv[1]), 64))
print(float(evaluate(x[:8])).hex())
print(float(step(x)).hex())
print(float(evaluate(x[:8])).hex(), float(tf.random.normal(())).hex())
"""


@pytest.mark.parametrize("fails", [pytest.param(False, marks=pytest.mark.long), True])
def test_the_only_call_of_a_loop_is_recorded_and_its_numbers_stay_the_same(
    fails: bool, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "train.py").write_text(ONCE, encoding="utf-8")
    # Without oneDNN, whose kernels end a program that is short of memory with SIGSEGV.
    environment = child_environment(
        {"TF_CPU_BFC_MEM_LIMIT_IN_MB": "85", "TF_ENABLE_ONEDNN_OPTS": "0"}
    )
    batch = "9000" if fails else "256"
    plain_command = [sys.executable, "train.py", batch]
    command = [sys.executable, "-m", "tb_memplugin", "run", "--run", "it", *plain_command[1:]]
    recorded, plain = side_by_side(command, plain_command, cwd=tmp_path, env=environment)
    assert recorded.returncode == plain.returncode == fails, recorded.stderr
    assert recorded.stdout == plain.stdout and recorded.stdout.count("\n") == (1 if fails else 3)
    (run,) = load(tmp_path / "runs").values()  # the evaluations are no steps and have no run
    assert (run.samples.step.tolist(), run.samples.phase.tolist()) == (
        [0],
        [0],
    ) and run.layer_tables
    assert [(oom.step, oom.phase) for oom in run.ooms] == [(0, "train")] * fails
    if fails:
        (oom,) = run.ooms
        assert oom.requested_bytes == 4 * 512 * 9000 and (oom.layer or "").startswith("sequential/")
        assert (
            plain.stderr[plain.stderr.index("Traceback") :].split("errors_impl")[0]
            in recorded.stderr
        )


def test_steps_that_cannot_be_seen_are_said_and_not_guessed(tmp_path: pathlib.Path) -> None:
    done = record(tmp_path, MODEL + LOOP, "eager")
    assert done.returncode == 0 and runs(tmp_path) == []
    assert "6 calls of GradientTape.gradient not recorded" in done.stderr
    assert "tensorboard --logdir" not in done.stderr
