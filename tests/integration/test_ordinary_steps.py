"""The path of an ordinary step in a real `fit`: how little is called, and that nothing is lost
behind it."""

import pathlib

import pytest
from child import WARNINGS, recorded

TRAIN = """
import keras, numpy as np, tensorflow as tf, tb_memplugin

keras.utils.set_random_seed(7)
model = keras.Sequential(
    [keras.Input((64,)), keras.layers.Dense(32), keras.layers.Dense(4)], name="net"
)
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
data = tf.data.Dataset.from_tensors((tf.ones((32, 64)), tf.zeros(32, tf.int32)))
"""

ORDINARY_CALLS, MOST_CALLS = 8, 12
"""Most calls of functions, of Python and of C, in an ordinary step, and in one that reads host RSS
as well."""

COUNT = """
callback = tb_memplugin.MemoryCallback(sys.argv[1], overhead=float(sys.argv[2]))
counts = []
hook = callback.on_train_batch_begin


def counted(*arguments, **named):
    calls = []
    sys.setprofile(
        lambda frame, event, what: calls.append(event) if event in ("call", "c_call") else None
    )
    try:
        hook(*arguments, **named)
    finally:
        sys.setprofile(None)
    counts.append((calls.count("call"), len(calls) - 1))  # but for the last call of setprofile


callback.on_train_batch_begin = counted
model.fit(
    data.repeat(400), epochs=2, verbose=0, validation_data=data.repeat(5), callbacks=[callback]
)
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
    # Steps are shorter than what tracing may cost in them; without it, hardly any step has more to
    # do.
    assert counts[len(counts) // 2] <= ORDINARY_CALLS
    if overhead == "0":
        assert sum(count > MOST_CALLS for count in counts) < 80


RESETS = """
own = []


class Own(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        tf.config.experimental.reset_memory_stats("CPU:0")

    def on_train_batch_end(self, batch, logs=None):
        own.append(tf.config.experimental.get_memory_info("CPU:0")["peak"])


callback = tb_memplugin.MemoryCallback(sys.argv[1], trace_steps=[2])
model.fit(data.repeat(60), verbose=0, callbacks=[Own(), callback])
callback.close()
answer(own)
"""


def test_peaks_that_the_program_resets_itself_are_recorded_all_the_same(
    tmp_path: pathlib.Path,
) -> None:
    own, run = recorded(tmp_path, TRAIN + RESETS)
    # The peak of a step is at least what the program read before its own reset.
    assert len(own) == 60 and (run.samples.devices["CPU:0"].peak_bytes >= own).all()
    assert (
        run.samples.devices["CPU:0"].peak_bytes > run.samples.devices["CPU:0"].in_use_bytes
    ).all()
