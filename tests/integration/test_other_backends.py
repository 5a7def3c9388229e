"""With another backend of Keras than TensorFlow, one sentence says that nothing is recorded, and
nothing is."""

import functools
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from child import ANSWER, PRELUDE, WARNINGS, child_environment

SENTENCE = (
    "Keras runs on numpy: so far, nothing can be recorded or measured with this backend, only "
    "with tensorflow and jax."
)

MODEL = """
import keras, numpy as np
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])
model.compile(loss="mse")
x, y = np.ones((64, 8), "float32"), np.ones((64, 4), "float32")
"""

USES = """
import os, sys
import tb_memplugin

callbacks = [tb_memplugin.MemoryCallback(f"runs/{number}", trace_steps=[1]) for number in range(2)]
results = model.evaluate(x, y, verbose=0, callbacks=callbacks, return_dict=True)
shapes = [model.predict(x, verbose=0, callbacks=callbacks).shape, len(results)]
with tb_memplugin.MemoryRecorder("runs/recorder", model=model) as recorder:
    with recorder.step(0):
        model.predict(x, verbose=0)
refused = []
for ask in (
    lambda: tb_memplugin.largest_batch_size(model, (x, y)),
    lambda: tb_memplugin.probe(model, (x, y)),
    lambda: tb_memplugin.plan(model, (x, y), budget="1GiB"),
):
    try:
        ask()
    except tb_memplugin.RecordingError as error:
        refused.append(str(error))
callbacks[0].close()
answer(
    {
        "shapes": shapes,
        "refused": refused,
        "summary": str(tb_memplugin.memory_summary(model)),
        "warnings": warnings,
        "written": sorted(os.listdir()),
        "recorder": [name for name in sys.modules if "tb_memplugin.recorder" in name],
    }
)
"""


STUBS = """
import importlib.abc, importlib.machinery, sys, types
class Any(type):
    def __getattr__(self, name):
        if name.startswith("__"): raise AttributeError(name)
        return Thing
class Thing(metaclass=Any):
    def __init__(self, *_, **__): pass
    def __call__(self, *_, **__): return self
    __getattr__ = Any.__getattr__
class Anything(types.ModuleType):
    __getattr__ = Any.__getattr__
class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("jax", "scipy"):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
    def create_module(self, spec): return Anything(spec.name)
    def exec_module(self, module): pass
sys.meta_path.append(Finder())
"""
"""Keras's NumPy backend imports jax and scipy, which the model above does not use: modules that
have any name."""


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("stubs")
    (folder / "sitecustomize.py").write_text(STUBS, encoding="utf-8")
    return str(folder)


@pytest.fixture
def python(stubs: str, tmp_path: pathlib.Path) -> Callable[..., Any]:
    """Runs a process that imports Keras itself: prepared ones have it with TensorFlow."""
    return functools.partial(_python, stubs, tmp_path)


def _python(stubs: str, folder: pathlib.Path, *arguments: str, **environment: str) -> Any:
    inherited = child_environment()
    path = os.pathsep.join([stubs, inherited["PYTHONPATH"]])
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**inherited, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=240,
    )


@pytest.mark.parametrize("chosen", ["environment", "file"])
def test_the_package_says_it_once_and_records_nothing(
    python: Callable[..., Any], tmp_path: pathlib.Path, chosen: str
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "keras.json").write_text('{"backend": "numpy"}', encoding="utf-8")
    by = {
        "environment": {"KERAS_BACKEND": "numpy"},
        "file": {"KERAS_BACKEND": "", "KERAS_HOME": "home"},
    }[chosen]
    done = python("-c", PRELUDE + WARNINGS + MODEL + USES, **by)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.removeprefix(ANSWER))
    assert told["shapes"] == [[64, 4], 1]
    assert (
        told["warnings"] == [SENTENCE]
        and told["refused"] == [SENTENCE] * 3
        and SENTENCE in told["summary"]
    )
    assert told["written"] == ["home"] and told["recorder"] == []


PROGRAM = MODEL + "print(model.predict(x, verbose=0).shape)\nmodel.evaluate(x, y, verbose=0)\n"
SETS = "import os, sys\nos.environ['KERAS_BACKEND'] = 'numpy'\n"


@pytest.mark.parametrize("start", ["", "import tensorflow\n", "import tb_memplugin\n"])
@pytest.mark.parametrize("by_program", [False, True])
def test_run_says_it_once_and_runs_the_program(
    python: Callable[..., Any], tmp_path: pathlib.Path, by_program: bool, start: str
) -> None:
    own = (
        "print(tb_memplugin.MemoryCallback('runs').close())\n"
        if "tb_" in start
        else "print(None)\n"
    )
    (tmp_path / "program.py").write_text(
        (SETS if by_program else "") + start + PROGRAM + own, encoding="utf-8"
    )
    done = python(
        "-m",
        "tb_memplugin",
        "run",
        "program.py",
        **({} if by_program else {"KERAS_BACKEND": "numpy"}),
    )
    assert (done.returncode, done.stdout) == (0, "(64, 4)\nNone\n"), done.stderr
    said = [line for line in done.stderr.splitlines() if "ecord" in line]
    assert said == [SENTENCE] and os.listdir(tmp_path) == ["program.py"]


def test_doctor_says_it(python: Callable[..., Any]) -> None:
    done = python("-m", "tb_memplugin", "doctor", KERAS_BACKEND="numpy")
    assert (done.returncode, done.stdout) == (1, f"!!  Keras: {SENTENCE}\n")
