"""Runs that last long: nothing of the recorder grows with the steps, restarts continue, and clocks
may be set."""

import pathlib

import pytest
from child import recorded, run_child

import tb_memplugin
from tb_memplugin.analysis import answers

STEPS = """
import gc, itertools, time, tracemalloc
import keras, tensorflow as tf, tb_memplugin
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)], name="net")
batch = tf.ones((2, 4))
one_step = tf.function(lambda: model(batch))
numbers = itertools.count()
def train(recorder, steps, work=one_step):
    for step in itertools.islice(numbers, steps):
        with recorder.step(step):
            work()
"""

GROWTH = """
with tb_memplugin.MemoryRecorder(sys.argv[1], model=model, trace_steps=[100]) as recorder:

    def measured():
        recorder.flush()
        gc.collect()
        traced = tracemalloc.take_snapshot().filter_traces(
            [tracemalloc.Filter(True, "*/tb_memplugin/*")]
        )
        return len(gc.get_objects()), sum(entry.size for entry in traced.statistics("filename"))

    train(recorder, 200)
    tracemalloc.start()
    # More than the bounded histories hold; the roll-up has as many spans after twice the steps,
    # each twice as wide.
    train(recorder, 14_800, int)
    before = measured()
    train(recorder, 15_000, int)
    after = measured()
answer({"objects": after[0] - before[0], "bytes": after[1] - before[1]})
"""


@pytest.mark.long
def test_nothing_of_the_recorder_grows_with_the_steps(tmp_path: pathlib.Path) -> None:
    told = run_child(STEPS + GROWTH, str(tmp_path / "run"))
    # One object in a hundred steps would be 150, and one integer a step 480,000 bytes.
    assert told["objects"] < 150 and told["bytes"] < 20_000, told
    run = tb_memplugin.load(tmp_path)["run"]
    assert run.samples.step.tolist() == list(range(30_000)) and run.notes == ()
    size = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert size < 0.3 * 20_000_000


def test_samples_are_written_while_the_steps_are_too_fast_for_the_tick(
    tmp_path: pathlib.Path,
) -> None:
    code = f"""{STEPS}
from tb_memplugin.recorder.loop import sender
sender.FLUSH_SECONDS = 3600.0
recorder = tb_memplugin.MemoryRecorder(sys.argv[1], overhead=0)
train(recorder, 9000)
waiting = recorder._recording.sender.steps.sampler.buffer
deadline = time.monotonic() + 60
while len(waiting._times) > 4096 and time.monotonic() < deadline:
    time.sleep(0.05)
answer(len(waiting._times))
recorder.close()
"""
    assert run_child(code, str(tmp_path / "run")) <= 4096
    assert tb_memplugin.load(tmp_path)["run"].samples.step.tolist() == list(range(9000))


def test_a_resumed_training_replaces_the_steps_after_its_checkpoint(tmp_path: pathlib.Path) -> None:
    # GIVEN a training that is killed at step 59, with a checkpoint of step 40, and resumes from it
    # in a new process
    code = f"""{STEPS}
import os
first, last, kept = map(int, sys.argv[2:])
numbers = itertools.count(first)
recorder = tb_memplugin.MemoryRecorder(sys.argv[1], model=model, overhead=0)
held = [tf.ones((kept, 1024, 256))]
train(recorder, last - first + 1)
recorder.flush()
answer(1)
sys.stdout.flush()
os._exit(0)
"""
    run_child(code, str(tmp_path / "run"), "0", "59", "1")
    _, run = recorded(tmp_path, code, "40", "99", "8")
    assert (len(run.sessions), run.workers) == (2, ("",))
    assert run.samples.step.tolist() == list(range(100))
    in_use = run.samples.devices["CPU:0"].in_use_bytes
    # 7 MiB more from the first resumed step on, and no growth in the new process.
    assert in_use[40:].min() - in_use[:40].max() > 6 << 20
    assert [answer.sentence for answer in answers(run, "CPU:0")][1] == (
        "No growth over 60 steps (under 1.0 MiB)"
    )
