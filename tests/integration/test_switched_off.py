"""With TB_MEMPLUGIN=0 a program that uses everything imports, patches and writes nothing."""

import os
import pathlib
from typing import Any

import pytest
from child import run_child

PROGRAM = """
import gc, os, sys, threading

before = dict(os.environ)
import tb_memplugin, tb_memplugin.summary
import keras, numpy as np, tensorflow as tf
from tensorflow.python.data.ops.iterator_ops import OwnedIterator
from tensorflow.python.eager.context import Context
from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function

model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])
model.compile("adam", "mse")
kinds = [kind for one in (model, model.optimizer, model.layers[0]) for kind in type(one).__mro__]
kinds += [
    keras.Model,
    keras.optimizers.LossScaleOptimizer,
    tf.GradientTape,
    OwnedIterator,
    Context,
    Function,
]
places = [*kinds, tf.profiler.experimental, keras.callbacks.CallbackList]


def attributes():
    return {
        (place.__name__, name): value
        for place in places
        for name, value in list(vars(place).items())
    }


unpatched, patched = attributes(), set()


def changed():
    # What Keras itself sets, such as its cache of abstract methods, is not called.
    found = attributes().items()
    return sorted(
        str(key) for key, value in found if callable(value) and unpatched.get(key) is not value
    )


class Look(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        patched.update(changed())


x, y = np.zeros((64, 8), "float32"), np.zeros((64, 4), "float32")
model.fit(x, y, verbose=0, callbacks=[tb_memplugin.MemoryCallback("runs/callback"), Look()])
with tb_memplugin.MemoryRecorder("runs/recorder", model=model) as recorder:
    with recorder.step(0):
        model.train_on_batch(x, y)
with tf.summary.create_file_writer("summaries").as_default():
    summary_written = tb_memplugin.summary.layer_activations({"a": 5}, step=1)
tb_memplugin.memory_summary(model)
answer(
    {
        "patched": sorted(patched),
        "left": changed(),
        "recorder": sorted(
            name
            for name in sys.modules
            if name.startswith(
                (
                    "tb_memplugin.recorder.",
                    "tb_memplugin.analysis",
                    "tb_memplugin.storage.files",
                    "tb_memplugin.cli.parser",
                )
            )
        ),
        "threads": [
            thread.name for thread in threading.enumerate() if thread is not threading.main_thread()
        ],
        "gc": [str(callback) for callback in gc.callbacks if "tb_memplugin" in str(callback)],
        "environment": sorted(name for name in os.environ if os.environ[name] != before.get(name)),
        "written": sorted(os.listdir()),
        "summary": summary_written,
    }
)
"""


def run(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch, **environment: str) -> Any:
    monkeypatch.chdir(folder)
    without = {"TF_CPU_ALLOCATOR_USE_BFC": "0"} if environment else {}
    return run_child(
        PROGRAM,
        environment={**environment, **without, "PYTHONPATH": os.environ.get("PYTHONPATH", "")},
    )


def test_nothing_is_imported_patched_or_written(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = run(tmp_path, monkeypatch, TB_MEMPLUGIN="0")
    assert found["patched"] == found["left"] == found["threads"] == found["gc"] == []
    # THEN only the stand-ins are there
    assert found["recorder"] == []
    assert found["written"] == ["summaries"] and found["summary"] is False
    assert not [
        name for name in found["environment"] if name.startswith(("TF_CPU", "TF_BFC", "TB_"))
    ]


def test_the_same_program_is_recorded_otherwise(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = run(tmp_path, monkeypatch)
    assert any("__call__" in name for name in found["patched"]) and found["left"] == []
    assert found["threads"] and found["summary"] is True
    assert found["written"] == ["runs", "summaries"] and sorted(os.listdir("runs")) == [
        "callback",
        "recorder",
    ]
