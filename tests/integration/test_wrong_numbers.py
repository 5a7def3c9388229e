"""Steps and epochs that cannot be stored, and a background thread that is busy when the process
ends."""

import pathlib
import subprocess
import sys

from child import WARNINGS, recorded

import tb_memplugin

WRONG = """
import numpy as np, tensorflow as tf, tb_memplugin

recorder = tb_memplugin.MemoryRecorder(sys.argv[1], trace_steps=[1, 2**53 - 1])
for step in (
    0,
    2**70,
    2**60,
    2**53,
    1,
    -1,
    "two",
    np.zeros(2, int),
    True,
    2.0,
    np.int64(2),
    2**53 - 1,
):
    with recorder.step(step):
        tf.zeros(1000)
for epoch in (2**70, "three", 4):
    recorder.set_epoch(epoch)
    with recorder.step(3):
        tf.zeros(1000)
recorder.close()
answer({"warnings": warnings})
"""


def test_steps_that_cannot_be_stored_are_refused_and_cost_no_other_step(
    tmp_path: pathlib.Path,
) -> None:
    told, run = recorded(tmp_path, WARNINGS + WRONG)
    assert run.samples.step.tolist() == [0, 1, 2, 3, 3, 3, 2**53 - 1]
    unknown = -(2**63)
    assert run.samples.epoch.tolist() == [unknown] * 5 + [4, unknown]
    assert [snapshot.step for snapshot in run.snapshots] == [1, 2**53 - 1]
    assert run.damage == ()
    # None of them is that something was not written in time.
    assert len(told["warnings"]) == 2
    assert (
        "steps must be integers from 0 to 2**53 - 1" in told["warnings"][0]
        and str(2**70) in told["warnings"][0]
    )
    assert "epochs must be integers from 0 to 2**53 - 1" in told["warnings"][1]


BUSY = """
import os, sys, threading
os.environ.update(TF_CPU_ALLOCATOR_USE_BFC="1", TF_CPP_MIN_LOG_LEVEL="3")
import tensorflow as tf, tb_memplugin
from tb_memplugin.recorder.loop import session as lifetime
from tb_memplugin.recorder.base import background
kept = []
for number in range(3):
    kept.append(tb_memplugin.MemoryRecorder(sys.argv[1] + str(number), overhead=0))
    with kept[-1].step(number): tf.zeros(1000)
for recorder in kept: recorder.flush()
wait, background.WAIT_SECONDS = lifetime.wait, 0.5
def noted():
    result = wait()
    print("waited", result, flush=True)
    return result
lifetime.wait = noted
background._thread.submit(threading.Event().wait)  # for ever
print("ends", flush=True)
"""


def test_the_end_of_a_process_waits_once_for_all_recorders_together_and_not_for_ever(
    tmp_path: pathlib.Path,
) -> None:
    command = [sys.executable, "-c", BUSY, str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    assert done.stdout.splitlines() == ["ends", "waited False"]
    assert done.stderr.count("could not be written in time") == 3
    assert [run.samples.step.tolist() for run in tb_memplugin.load(tmp_path).values()] == [
        [0],
        [1],
        [2],
    ]
