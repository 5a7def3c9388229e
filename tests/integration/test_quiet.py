"""Recording prints nothing: not even TensorFlow's profiler says that it starts and stops."""

import collections
import os
import pathlib
import re
import subprocess
import sys

from tb_memplugin import load

ROOT = pathlib.Path(__file__).parents[2]
TRAINING = """
import sys
import tb_memplugin
import keras, numpy as np, tensorflow as tf
model = keras.Sequential([keras.Input((32,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(4)])
model.compile("adam", "mse")
x, y = np.zeros((640, 32), "float32"), np.zeros((640, 4), "float32")
records = sys.argv[1] == "record"
model.fit(x, y, epochs=2, verbose=0, callbacks=[tb_memplugin.MemoryCallback("runs")] if records else [])
tf.profiler.experimental.start("profile")
tf.profiler.experimental.stop()
"""


def stderr_of(folder: pathlib.Path, argument: str) -> collections.Counter[str]:
    """The lines that a training prints, without time and number of the process."""
    environment = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    environment |= {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-c", TRAINING, argument],
        cwd=folder,
        env=environment,
        check=True,
        timeout=240,
        capture_output=True,
        text=True,
    )
    lines = (re.sub(r"^([IWEF]\d{4}) \S+ +\d+ ", r"\1 ", line) for line in done.stderr.splitlines())
    return collections.Counter(re.sub(r"\d{4}(_\d\d){5}", "DATE", line) for line in lines)


def test_a_recorded_training_prints_what_it_prints_unrecorded(tmp_path: pathlib.Path) -> None:
    # GIVEN a training that is recorded, of which steps were traced, and that then starts TensorFlow's profiler itself
    printed = stderr_of(tmp_path, "record")
    (run,) = load(tmp_path / "runs").values()
    assert run.snapshots
    # THEN its log is that of the same training without recording, with the profiler's lines of that start alone
    assert printed == stderr_of(tmp_path, "plain")
    assert any("Profiler session started" in line for line in printed)
