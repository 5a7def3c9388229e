"""Writers that are killed: everything they had flushed is read, and nothing else is needed for that."""

import os
import pathlib
import random
import signal
import time

import numpy as np
import pytest
from child import run_child, start_child
from reading_cases import make_samples, make_snapshot

import tb_memplugin
from tb_memplugin.events.run_writer import RunWriter


def write_until_killed(directory: pathlib.Path, told: int) -> None:
    """Writes a sample a step, flushes, and only then tells the step through the pipe `told`."""
    writer = RunWriter(directory / "run")
    for step in range(1_000_000):
        writer.samples(make_samples([step], [1000 + step]))
        if step % 7 == 0:
            writer.snapshot(make_snapshot(step))
        writer.flush()
        os.write(told, step.to_bytes(4, "little"))


@pytest.mark.parametrize("count", [pytest.param(100, marks=pytest.mark.long), 25])
def test_a_writer_killed_at_random_moments_loses_nothing_it_had_flushed(tmp_path: pathlib.Path, count: int) -> None:
    moments = random.Random(5)
    lengths = []
    for attempt in range(count):
        # GIVEN a process that writes and flushes step after step
        directory = tmp_path / str(attempt)
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                write_until_killed(directory, write_end)
            finally:
                os._exit(1)
        os.close(write_end)
        os.read(read_end, 4)
        # WHEN it is killed at any moment
        time.sleep(moments.uniform(0, 0.03))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        told = b""
        while piece := os.read(read_end, 1 << 16):
            told += piece
        os.close(read_end)
        flushed = len(told) // 4 + 1
        # THEN every flushed step is there with its value, without a gap
        run = tb_memplugin.load(directory)["run"]
        read = len(run.samples)
        assert read >= flushed
        assert run.samples.step.tolist() == list(range(read))
        np.testing.assert_array_equal(run.samples.devices["CPU:0"].peak_bytes, 1000 + np.arange(read))
        assert [snapshot.step for snapshot in run.snapshots][: len(range(0, flushed, 7))] == list(range(0, flushed, 7))
        assert all("ends inside a record" in sentence for sentence in run.damage)
        lengths.append(read)
    assert len(set(lengths)) > count // 10  # the moments really differed


def test_a_training_killed_in_the_middle_leaves_what_it_had_flushed(tmp_path: pathlib.Path) -> None:
    code = """
import sys, keras, numpy as np, tb_memplugin
import tb_memplugin.recorder.recording as recording
recording.FLUSH_SECONDS = 0.2
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4, name="logits")], name="net")
model.compile("sgd", "mse")
class Tell(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 400: print("going", flush=True)
model.fit(np.zeros((10_000_000, 8), "float32"), np.zeros((10_000_000, 4), "float32"), batch_size=4, verbose=0,
          callbacks=[tb_memplugin.MemoryCallback(sys.argv[1]), Tell()])
"""
    with start_child(code, str(tmp_path / "run")) as training:
        assert training.stdout is not None and training.stdout.readline() == b"going\n"
        deadline = time.monotonic() + 30
        while len(tb_memplugin.load(tmp_path)["run"].samples) <= 100 and time.monotonic() < deadline:
            time.sleep(0.1)
        training.kill()
    run = tb_memplugin.load(tmp_path)["run"]
    assert len(run.samples) > 100
    assert run.samples.step.tolist() == list(range(len(run.samples)))
    assert run.layer_tables[-1].layers[-1].path == "net/logits"
    assert run.damage == ()


KILLED = """
import os, pathlib, random, signal, time
import keras, numpy as np, tensorflow as tf, tb_memplugin
import tb_memplugin.recorder.recording as recording
from tb_memplugin.events.run_writer import RunWriter
recording.FLUSH_SECONDS = 0.05

def train(directory, told):
    samples, flush, written = RunWriter.samples, RunWriter.flush, []
    def tell(kind, number):
        os.write(told, json.dumps([kind, number]).encode() + b"\\n")
    def noted_samples(self, taken):
        samples(self, taken); written.append(int(taken.step.max()))
    def noted_flush(self):
        flush(self)
        if written: tell("flushed", written[-1])
    RunWriter.samples, RunWriter.flush = noted_samples, noted_flush
    class Tell(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None): tell("step", batch)
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4, name="logits")], name="net")
    model.compile("sgd", "mse")
    tell("model", 0)
    data = tf.data.Dataset.from_tensors((tf.zeros((4, 8)), tf.zeros((4, 4)))).repeat()
    model.fit(data, steps_per_epoch=1_000_000, verbose=0,
              callbacks=[tb_memplugin.MemoryCallback(directory, trace_steps=range(0, 1_000_000, 25)), Tell()])

moments, killed = random.Random(int(sys.argv[3])), []
for attempt in range(int(sys.argv[2])):
    read_end, write_end = os.pipe()
    child = os.fork()  # TensorFlow has not run anything yet: it may
    if child == 0:
        try:
            train(os.path.join(sys.argv[1], str(attempt), "run"), write_end)
        finally:
            os._exit(1)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        # Moments are told by what the training has done, so that they are as random on a slow machine: from the
        # opening of the run to the hundreds of steps after the first ones, which are traced and compile.
        lines = [pipe.readline() for _ in range(int(10 ** moments.uniform(0, 2.8)))]
        time.sleep(moments.uniform(0, 0.02))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        lines += pipe.readlines()
    told = [json.loads(line) for line in lines if line.endswith(b"\\n")]
    numbers = {kind: max((number for what, number in told if what == kind), default=-1) for kind in ("step", "flushed")}
    killed.append(numbers)
answer(killed)
"""


def check_killed(run_directory: pathlib.Path, flushed: int, step: int) -> int:
    """Asserts that everything is there that a killed training had flushed; returns how many steps are."""
    runs = tb_memplugin.load(run_directory) if run_directory.exists() else {}
    if "run" not in runs:
        assert flushed < 0
        return 0
    run = runs["run"]
    assert all("ends inside a record" in sentence for sentence in run.damage), run.damage
    read = len(run.samples)
    assert flushed < read <= step + 1
    assert run.samples.step.tolist() == list(range(read))
    traced = {snapshot.step for snapshot in run.snapshots}
    assert traced <= set(range(0, step + 1, 25))
    if read:
        assert run.layer_tables[0].layers[-1].path == "net/logits"
    return read


def kill_trainings(directory: pathlib.Path, count: int, seed: int) -> list[tuple[int, int, int]]:
    """Kills so many recorded trainings at random moments: for each the last flushed step, the last step that began, and
    how many steps were read."""
    directory.mkdir(exist_ok=True)
    told = run_child(KILLED, str(directory), str(count), str(seed), timeout=60 + 20 * count)
    return [
        (each["flushed"], each["step"], check_killed(directory / str(number), each["flushed"], each["step"]))
        for number, each in enumerate(told)
    ]


@pytest.mark.long
def test_trainings_killed_at_random_moments_keep_every_step_that_was_flushed(tmp_path: pathlib.Path) -> None:
    killed = kill_trainings(tmp_path, 6, seed=3)
    assert any(read > 0 for _, _, read in killed)
