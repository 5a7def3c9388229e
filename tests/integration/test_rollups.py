"""Roll-ups of real trainings, against the history that the same recorder wrote."""

import pathlib

from child import run_child
from reading_cases import equal
from rollup_cases import rollups_of

import tb_memplugin
from tb_memplugin.analysis import summarize_session

MODEL = """
import sys, keras, numpy as np, tb_memplugin


def make_model():
    model = keras.Sequential(
        [keras.Input((64,)), keras.layers.Dense(512, "relu"), keras.layers.Dense(4)]
    )
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
model.fit(
    x, y, batch_size=16, epochs=3, verbose=0, validation_data=(x[:40], y[:40]), callbacks=[callback]
)
model.fit(x, y, batch_size=32, initial_epoch=3, epochs=4, verbose=0, callbacks=[callback])
answer({"steps": int(model.optimizer.iterations)})
""",
        str(tmp_path / "run"),
    )
    # THEN the last roll-up says what the full reader computes from all samples
    (*_, (_, size, stored)), whole = (
        rollups_of(tmp_path),
        summarize_session(tb_memplugin.load(tmp_path)["run"]),
    )
    assert stored.ended and size < 2048 and stored.last_step == told["steps"] - 1
    for name in ("ended", "status", "first_step", "last_step", "last_wall_time"):
        assert getattr(stored, name) == getattr(whole, name), name
    assert {device.phase for device in stored.devices} == {"train", "validation"}
    for device, expected in zip(stored.devices, whole.devices, strict=True):
        for name in (
            "peak_bytes",
            "peak_step",
            "last_in_use_bytes",
            "pool_bytes",
            "capacity_bytes",
            "snapshots",
        ):
            assert getattr(device, name) == getattr(expected, name), name
        assert device.capacity_bytes == 1 << 30 and len(device.traced) == min(
            1, len(expected.traced)
        )
        for traced in device.traced:
            assert equal(traced, max(expected.traced, key=lambda one: one.peak_bytes))
            assert sum(part.bytes for part in traced.parts) == traced.peak_bytes
