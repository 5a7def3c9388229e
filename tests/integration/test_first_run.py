"""The quick start as a stranger types it, without a GPU and with nothing set."""

import os
import pathlib
import subprocess
import sys

import pytest

from tb_memplugin.environment import VARIABLE

ROOT = pathlib.Path(__file__).parents[2]
MODEL = """
import keras, numpy as np
model = keras.Sequential([keras.Input((32,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(4)])
model.compile("adam", "mse")
x, y = np.zeros((640, 32), "float32"), np.zeros((640, 4), "float32")
"""
IMPORT = "import tb_memplugin"
FIT = """
callback = tb_memplugin.MemoryCallback("runs/exp1")
model.fit(x, y, epochs=2, verbose=0, callbacks=[callback])
"""


def train(code: str, folder: pathlib.Path, **more: str) -> str:
    """Runs a script in a folder; returns what `inspect` says of its runs."""
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    environment |= {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", **more}
    subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, check=True, timeout=240)
    command = [sys.executable, "-m", "tb_memplugin", "inspect", "runs"]
    done = subprocess.run(command, cwd=folder, env=environment, check=True, timeout=60, capture_output=True, text=True)
    return done.stdout


@pytest.mark.parametrize(
    ("code", "setting", "line"),
    [
        (MODEL + IMPORT + FIT, {}, "Put `import tb_memplugin` above the first line"),
        pytest.param(IMPORT + MODEL + FIT, {VARIABLE: "0"}, "Set TF_CPU_ALLOCATOR_USE_BFC=1", marks=pytest.mark.long),
    ],
    ids=["too late", "switched off"],
)
def test_where_that_cannot_be_the_first_line_says_what_to_add(
    code: str, setting: dict[str, str], line: str, tmp_path: pathlib.Path
) -> None:
    said = train(code, tmp_path, **setting)
    first = said.splitlines()[0]
    assert first.startswith("Not recording CPU:0: ") and line in first
    assert said.count("Not recording") == 1
