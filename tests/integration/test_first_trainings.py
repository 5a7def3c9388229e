"""First trainings as strangers type them, without a GPU and with nothing set: what is printed and
what is recorded."""

import collections
import pathlib
import re
import subprocess
import sys

import pytest
from prepared_python import bare_environment

from tb_memplugin import load
from tb_memplugin.environment import VARIABLE

ROOT = pathlib.Path(__file__).parents[2]
MODEL = """
import keras, numpy as np

model = keras.Sequential(
    [keras.Input((32,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(4)]
)
model.compile("adam", "mse")
x, y = np.zeros((640, 32), "float32"), np.zeros((640, 4), "float32")
"""
IMPORT = "import sys, tb_memplugin"
FIT = """
records = sys.argv[1:] != ["plain"]
model.fit(
    x,
    y,
    epochs=2,
    verbose=0,
    callbacks=[tb_memplugin.MemoryCallback("runs/exp1")] if records else [],
)
"""


def train(
    folder: pathlib.Path, code: str, *arguments: str, **more: str
) -> "subprocess.CompletedProcess[str]":
    """Runs a script in a folder."""
    environment = bare_environment(PYTHONPATH=str(ROOT), CUDA_VISIBLE_DEVICES="", **more)
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )


@pytest.mark.parametrize(
    ("code", "setting", "line"),
    [
        (MODEL + IMPORT + FIT, {}, "Put `import tb_memplugin` above the first line"),
        pytest.param(
            IMPORT + MODEL + FIT,
            {VARIABLE: "0"},
            "Set TF_CPU_ALLOCATOR_USE_BFC=1",
            marks=pytest.mark.long,
        ),
    ],
    ids=["too late", "switched off"],
)
def test_where_that_cannot_be_the_first_line_says_what_to_add(
    code, setting, line, tmp_path
) -> None:
    train(tmp_path, code, **setting)
    command = [sys.executable, "-m", "tb_memplugin", "inspect", "runs"]
    said = subprocess.run(
        command, cwd=tmp_path, check=True, timeout=60, capture_output=True, text=True
    ).stdout
    first = said.splitlines()[0]
    assert first.startswith("Not recording CPU:0: ") and line in first
    assert said.count("Not recording") == 1


PROFILES = """
import tensorflow as tf
tf.profiler.experimental.start("profile")
tf.profiler.experimental.stop()
"""


def test_a_recorded_training_prints_what_it_prints_unrecorded(tmp_path: pathlib.Path) -> None:
    def printed(*arguments: str) -> collections.Counter[str]:
        """The lines, without time and number of the process."""
        said = train(tmp_path, IMPORT + MODEL + FIT + PROFILES, *arguments).stderr
        lines = (re.sub(r"^([IWEF]\d{4}) \S+ +\d+ ", r"\1 ", line) for line in said.splitlines())
        return collections.Counter(re.sub(r"\d{4}(_\d\d){5}", "DATE", line) for line in lines)

    # GIVEN a training that is recorded, of which steps were traced, and that then starts
    # TensorFlow's profiler itself
    recorded = printed()
    (run,) = load(tmp_path / "runs").values()
    assert run.snapshots
    # THEN its log is that of the same training without recording, with the profiler's lines of that
    # start alone, and one line on the run
    (line,) = (recorded - printed("plain")).elements()
    assert re.fullmatch(
        r"Memory recorded in runs/exp1: "
        r"peak "
        r"[\d.]+ "
        r"KiB\. "
        r"tensorboard "
        r"--logdir "
        r"runs",
        line,
    )
    assert not printed("plain") - recorded
    assert any("Profiler session started" in line for line in recorded)
