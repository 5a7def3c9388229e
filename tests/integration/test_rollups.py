"""Roll-ups of real trainings, against the history that the same recorder wrote."""

import pathlib

from child import run_child, start_child
from rollup_cases import last_rollup, rollups_of, spans_of, spans_of_history

import tb_memplugin
from tb_memplugin.analysis.devices.worker_summary import summarize_worker
from tb_memplugin.events.run_writer import MAX_ROLLUP_BYTES

MODEL = """
import sys, keras, numpy as np, tb_memplugin
def make_model():
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(512, "relu"), keras.layers.Dense(4)])
    model.compile("adam", "mse")
    return model
x, y = np.zeros((420, 64), "float32"), np.zeros((420, 4), "float32")
"""


def test_a_real_training_is_rolled_up_as_its_history_says(tmp_path: pathlib.Path) -> None:
    # GIVEN a training whose last batch of each epoch is smaller, with validation and traced steps
    told = run_child(
        MODEL
        + """
callback = tb_memplugin.MemoryCallback(sys.argv[1], trace_steps=[3, 12])
model = make_model()
model.fit(x, y, batch_size=16, epochs=3, verbose=0, validation_data=(x[:40], y[:40]), callbacks=[callback])
model.fit(x, y, batch_size=32, initial_epoch=3, epochs=4, verbose=0, callbacks=[callback])
answer({"steps": int(model.optimizer.iterations)})
""",
        str(tmp_path / "run"),
    )
    # THEN every span and every device of the last roll-up says what the full reader computes from all samples
    run, (*_, (_, size, rollup)) = tb_memplugin.load(tmp_path)["run"], rollups_of(tmp_path)
    assert rollup.ended is not None and size < MAX_ROLLUP_BYTES
    assert spans_of(rollup) == spans_of_history(run, rollup)
    # one for each epoch
    assert [span["phase"] for span in spans_of(rollup)["CPU:0"]] == ["train"] * 4 + ["validation"] * 3
    assert rollup.devices[0].phases["train"].steps == told["steps"] == 3 * 27 + 14
    summary = summarize_worker("", run, "train")
    (device,), (expected,) = rollup.devices, summary.devices
    highest = max(device.phases.values(), key=lambda of: of.peak_bytes or 0)
    assert (highest.peak_bytes, highest.peak_step) == (expected.peak_bytes, expected.peak_step)
    of = device.phases["train"]
    assert (of.in_use_bytes, of.pool_bytes) == (expected.last_in_use_bytes, expected.pool_bytes)
    traced = max(expected.traced, key=lambda one: one.peak_bytes)
    assert of.traced is not None and of.traced.step == traced.step and dict(of.traced.parts) == dict(traced.parts)
    assert sum(of.traced.parts.values()) == of.traced.peak_bytes
    assert device.capacity_bytes == 1 << 30
    assert rollup.samples == len(run.samples)


def test_a_killed_training_has_the_roll_up_of_its_last_flushes(tmp_path: pathlib.Path) -> None:
    code = (
        MODEL
        + """
import tb_memplugin.events.run_writer as run_writer, tb_memplugin.recorder.recording as recording
recording.FLUSH_SECONDS = run_writer.ROLLUP_SECONDS = 0.2
class Tell(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        print("EPOCH", flush=True)
make_model().fit(x, y, batch_size=16, epochs=1_000_000, verbose=0,
                 callbacks=[tb_memplugin.MemoryCallback(sys.argv[1]), Tell()])
"""
    )
    with start_child(code, str(tmp_path / "run")) as training:
        assert training.stdout is not None
        while not rollups_of(tmp_path) or last_rollup(tmp_path).samples < 100:
            assert training.stdout.readline() == b"EPOCH\n"
        training.kill()
    # THEN it does not say that it ended, and what it says is the history up to its last step
    rollup, run = last_rollup(tmp_path), tb_memplugin.load(tmp_path)["run"]
    assert rollup.ended is None and rollup.last_step is not None
    assert rollup.samples == rollup.last_step + 1 <= len(run.samples)
    peaks = run.samples.devices["CPU:0"].peak_bytes[: rollup.samples]
    assert rollup.devices[0].phases["train"].peak_bytes == peaks.max()
