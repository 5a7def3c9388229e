"""Trainings of some seconds in a row with the default callback: each has breakdowns, none prints a line of ours."""

import pathlib
import subprocess
import sys

import pytest
from prepared_python import bare_environment

from tb_memplugin import load

ROOT = pathlib.Path(__file__).parents[2]
SECONDS = 10
TRAININGS = f"""
import time
import tb_memplugin
import keras, numpy as np

class Timed(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.began = getattr(self, "began", time.monotonic())
    def on_epoch_end(self, epoch, logs=None):
        self.model.stop_training = time.monotonic() - self.began > {SECONDS}

x, y = np.zeros((2560, 64), "float32"), np.zeros((2560, 8), "float32")
for number in range(5):
    model = keras.Sequential([keras.layers.Dense(512, activation="relu"), keras.layers.Dense(8)])
    model.compile("adam", "mse")
    model.fit(x, y, epochs=10_000, verbose=0, callbacks=[tb_memplugin.MemoryCallback(f"runs/{{number}}"), Timed()])
"""
OURS = ("tb_memplugin", "profiler_session", "Profiler session", "xplane")


@pytest.mark.long
def test_each_of_five_trainings_has_five_breakdowns_and_prints_nothing(tmp_path: pathlib.Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TRAININGS],
        cwd=tmp_path,
        env=bare_environment(PYTHONPATH=str(ROOT), CUDA_VISIBLE_DEVICES=""),
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    runs = load(tmp_path / "runs")
    assert {name: len(runs[name].snapshots) >= 5 for name in runs} == {str(number): True for number in range(5)}
    assert not any(runs[name].notes or runs[name].damage for name in runs)
    assert [line for line in done.stderr.splitlines() if any(word in line for word in OURS)] == []
    assert done.stdout == ""
