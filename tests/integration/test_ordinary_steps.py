"""The path of an ordinary step in a real `fit`: how little is called, and that nothing is lost behind it."""

import pathlib

import pytest
from child import WARNINGS, recorded

TRAIN = """
import keras, numpy as np, tensorflow as tf, tb_memplugin
keras.utils.set_random_seed(7)
model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(32), keras.layers.Dense(4)], name="net")
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
data = tf.data.Dataset.from_tensors((tf.ones((32, 64)), tf.zeros(32, tf.int32)))
"""

ORDINARY_CALLS, MOST_CALLS = 8, 12
"""Most calls of functions, of Python and of C, in an ordinary step, and in one that reads host RSS as well."""

COUNT = """
callback = tb_memplugin.MemoryCallback(sys.argv[1], overhead=float(sys.argv[2]))
counts = []
hook = callback.on_train_batch_begin
def counted(*arguments, **named):
    calls = []
    sys.setprofile(lambda frame, event, what: calls.append(event) if event in ("call", "c_call") else None)
    try: hook(*arguments, **named)
    finally: sys.setprofile(None)
    counts.append((calls.count("call"), len(calls) - 1))  # but for the last call of setprofile
callback.on_train_batch_begin = counted
model.fit(data.repeat(400), epochs=2, verbose=0, validation_data=data.repeat(5), callbacks=[callback])
callback.close()
answer({"counts": counts, "warnings": warnings})
"""


@pytest.mark.parametrize("overhead", ["0", pytest.param("0.005", marks=pytest.mark.long)])
def test_an_ordinary_step_calls_few_functions(tmp_path: pathlib.Path, overhead: str) -> None:
    told, run = recorded(tmp_path, WARNINGS + TRAIN + COUNT, overhead)
    assert told["warnings"] == []
    assert run.samples.step[run.samples.phase == 0].tolist() == list(range(800))
    assert (run.samples.epoch[run.samples.phase == 0] == [0] * 400 + [1] * 400).all()
    counts = sorted(count for _, count in told["counts"])
    # Steps are shorter than what tracing may cost in them; without it, hardly any step has more to do.
    assert counts[len(counts) // 2] <= ORDINARY_CALLS
    if overhead == "0":
        assert sum(count > MOST_CALLS for count in counts) < 80


FAULT = """
from tb_memplugin.recorder.devices import statistics as devices
callback = tb_memplugin.MemoryCallback(sys.argv[1], overhead=0)
original, saved = devices.statistics, devices.memory_info
class Break(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 50 and sys.argv[2] == "below":
            callback._session.recording.ordinary._get = broken
        if batch == 50 and sys.argv[2] == "both":
            callback._session.recording.ordinary._get = devices.memory_info = broken
def broken(*arguments): raise RuntimeError("broken on purpose")
model.fit(data.repeat(100), verbose=0, callbacks=[callback, Break()])
devices.memory_info = saved
callback.close()
answer({"warnings": warnings})
"""


@pytest.mark.parametrize(("broken", "kept"), [("both", 50), pytest.param("below", 100, marks=pytest.mark.long)])
def test_a_fault_in_an_ordinary_step_is_reported_once_at_most(tmp_path: pathlib.Path, broken: str, kept: int) -> None:
    told, run = recorded(tmp_path, WARNINGS + TRAIN + FAULT, broken)
    # The other path has functions of its own; what works there goes on.
    assert len(told["warnings"]) == (broken == "both")
    assert all("memory samples stopped: RuntimeError: broken on purpose" in text for text in told["warnings"])
    assert len(run.samples) == kept
