"""Writers that are killed: everything they had flushed is read, and nothing else is needed for
that."""

import os
import pathlib
import random
import signal
import time

import numpy as np
import pytest
from child import start_child
from reading_cases import make_samples, make_snapshot
from rollup_cases import rollups_of

import tb_memplugin
from tb_memplugin.storage.write import RunWriter


def write_until_killed(directory: pathlib.Path, told: int) -> None:
    """Writes a sample a step, flushes, and only then tells the step through the pipe `told`."""
    writer = RunWriter(directory / "run")
    for step in range(1_000_000):
        writer.samples(make_samples([step], [1000 + step]))
        if step % 7 == 0:
            writer.traced(make_snapshot(step))
        writer.flush()
        os.write(told, step.to_bytes(4, "little"))


@pytest.mark.parametrize("count", [pytest.param(100, marks=pytest.mark.long), 25])
def test_a_writer_killed_at_random_moments_loses_nothing_it_had_flushed(
    tmp_path: pathlib.Path, count: int
) -> None:
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
        np.testing.assert_array_equal(
            run.samples.devices["CPU:0"].peak_bytes, 1000 + np.arange(read)
        )
        assert [snapshot.step for snapshot in run.snapshots][: len(range(0, flushed, 7))] == list(
            range(0, flushed, 7)
        )
        assert all("ends inside a record" in sentence for sentence in run.damage)
        lengths.append(read)
    assert len(set(lengths)) > count // 10  # the moments really differed


def test_a_training_killed_in_the_middle_leaves_what_it_had_flushed(tmp_path: pathlib.Path) -> None:
    code = """
import sys, keras, numpy as np, tb_memplugin
import tb_memplugin.recorder.loop.sender as sender
import tb_memplugin.storage.write.rollups as rollups
sender.FLUSH_SECONDS = rollups.ROLLUP_SECONDS = 0.2
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4, name="logits")], name="net")
model.compile("sgd", "mse")


class Tell(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 400:
            print("going", flush=True)


model.fit(
    np.zeros((10_000_000, 8), "float32"),
    np.zeros((10_000_000, 4), "float32"),
    batch_size=4,
    verbose=0,
    callbacks=[tb_memplugin.MemoryCallback(sys.argv[1]), Tell()],
)
"""
    with start_child("-c", code, str(tmp_path / "run")) as training:
        assert training.stdout is not None and training.stdout.readline() == "going\n"
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and not (
            len(tb_memplugin.load(tmp_path)["run"].samples) > 100 and rollups_of(tmp_path)
        ):
            time.sleep(0.1)
        training.kill()
    run = tb_memplugin.load(tmp_path)["run"]
    assert len(run.samples) > 100
    assert run.samples.step.tolist() == list(range(len(run.samples)))
    assert run.layer_tables[-1].layers[-1].path == "net/logits"
    assert run.damage == ()
    # AND its last roll-up does not say that it ended, and is the history up to its step
    (*_, (_, _, rolled)) = rollups_of(tmp_path)
    assert rolled.ended is False and rolled.last_step is not None
    peaks = run.samples.devices["CPU:0"].peak_bytes[run.samples.step <= rolled.last_step]
    assert rolled.devices[0].peak_bytes == peaks.max()
