"""Recorders that are never closed, as in the README: what is left of them after the training."""

import pathlib

import pytest
from child import recorded, run_child

import tb_memplugin

UNCLOSED = """
import gc, os, weakref
import keras, numpy as np, tensorflow as tf, tb_memplugin
from tb_memplugin.recorder.base import background
original_call = keras.layers.Layer.__call__
x, y = np.zeros((32, 256), "float32"), np.zeros((32, 4), "float32")
eager, models, kept = sys.argv[2] != "graph", weakref.WeakSet(), []
count = int(sys.argv[3])
def make_model():
    model = keras.Sequential([keras.Input((256,)), keras.layers.Dense(512), keras.layers.Dense(4)], name="net")
    model.compile("adam", "mse", run_eagerly=eager)
    models.add(model)
    return model
def fit(directory):
    callbacks = []
    if directory:
        callbacks = [tb_memplugin.MemoryCallback(directory)]
        kept.extend(callbacks)
    make_model().fit(x, y, batch_size=8, verbose=0, callbacks=callbacks)
def by_hand(directory):
    model = make_model()
    if directory:
        recorder = tb_memplugin.MemoryRecorder(directory, model)
        kept.append(recorder)
    for step in range(4):
        if directory: recorder.begin_step(step)
        model.train_on_batch(x[:16], y[:16])
    if directory: recorder.end_step()
def figures():
    background.wait(); gc.collect(); background.wait()
    return {"models": len(models), "files": len(os.listdir("/proc/self/fd")),
            "threads": len(os.listdir("/proc/self/task")),
            "bytes": tf.config.experimental.get_memory_info("CPU:0")["current"],
            "wrapped": keras.layers.Layer.__call__ is not original_call,
            "gc": len(gc.callbacks), "dump": os.environ.get("TF_BFC_MEMORY_DUMP")}
train = by_hand if sys.argv[2] == "by hand" else fit
for _ in range(count): train(None)
before = figures()
for number in range(count): train(os.path.join(sys.argv[1], f"run{number:02}"))
after = figures()
for one in kept: one.close()
answer({"before": before, "after": after, "closed": figures(), "kept": len(kept)})
"""


@pytest.mark.long
@pytest.mark.parametrize(("how", "count"), [("graph", 12), ("eager", 12), ("by hand", 12)])
def test_unclosed_recorders_leave_only_one_thread_and_the_directory_of_dumps(
    tmp_path: pathlib.Path, how: str, count: int
) -> None:
    told = run_child(UNCLOSED, str(tmp_path), how, str(count))
    before, after, closed = told["before"], told["after"], told["closed"]
    # GIVEN recorders that are kept and never closed
    assert told["kept"] == count
    # THEN no model, file, wrapper, callback or variable is left after their trainings, as without recorders
    # (the one thread that writes for all recorders is among those before).
    for name in ("models", "threads", "wrapped", "gc"):
        assert after[name] == before[name] == closed[name], (name, told)
    # For failures after the training, TensorFlow writes its dumps into a directory, whose one lock file is open.
    assert (before["dump"], closed["dump"]) == (None, None) and after["dump"] is not None
    assert after["files"] - 1 == before["files"] == closed["files"]
    assert before["models"] == 0 and before["wrapped"] is False
    # TensorFlow itself keeps memory of every graph.
    if how != "graph":
        assert after["bytes"] - before["bytes"] < 16 << 10
    # AND every run is complete before the process ends.
    runs = tb_memplugin.load(tmp_path)
    assert [run.samples.step.tolist() for run in runs.values()] == [list(range(4))] * count


def test_a_callback_goes_on_with_the_same_session_and_file(tmp_path: pathlib.Path) -> None:
    code = """
import os, keras, numpy as np, tb_memplugin
from tb_memplugin.recorder.base import background
x, y = np.zeros((32, 8), "float32"), np.zeros((32, 4), "float32")
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)]); model.compile("sgd", "mse")
callback = tb_memplugin.MemoryCallback(sys.argv[1], overhead=0)
for _ in range(3):
    model.fit(x, y, batch_size=16, verbose=0, callbacks=[callback])
    model.evaluate(x, y, batch_size=16, verbose=0, callbacks=[callback])
    background.wait()
os._exit(0 if print("ANSWER {}", flush=True) is None else 1)
"""
    _, run = recorded(tmp_path, code)
    assert len(list((tmp_path / "run").rglob("*tfevents*"))) == 1
    assert len(run.sessions) == 1 and run.damage == ()
    assert run.samples.step.tolist() == [0, 1, 1, 1, 2, 3, 3, 3, 4, 5, 5, 5]
