"""Keras on JAX, in processes that cannot import TensorFlow: the same callback, `tb-memplugin run`,
and runs with what XLA planned."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest
from child import child_environment

import tb_memplugin
from tb_memplugin.schema import sums_by

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="needs jax, as of the test requirements"
)

BLOCKED = """
import importlib.abc, sys
class NoTensorFlow(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "tensorflow":
            raise ModuleNotFoundError("No module named 'tensorflow'", name=name)
sys.meta_path.insert(0, NoTensorFlow())
"""
MODEL = """
import keras, numpy as np
def make():
    keras.utils.set_random_seed(1)
    model = keras.Sequential([
        keras.Input((16, 16, 3)),
        keras.layers.Conv2D(16, 3, activation="relu", trainable=False, name="frozen"),
        keras.layers.Conv2D(16, 3, activation="relu", name="conv"),
        keras.layers.BatchNormalization(name="norm"),
        keras.layers.Dropout(0.5, name="drop"),
        keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dense(10, name="head"),
    ], name="net")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"])
    return model
x, y = np.ones((80, 16, 16, 3), "float32"), np.arange(80) % 10
def fit(model, *callbacks):
    done = model.fit(x, y, batch_size=32, epochs=2, verbose=0, callbacks=list(callbacks),
                     validation_data=(x[:32], y[:32]))
    return done.history["loss"] + done.history["val_loss"]
"""
OUT_OF_MEMORY = """
import jax
def out_of_memory():
    sizes = [one.get_compiled_memory_stats().temp_size_in_bytes
             for one in jax.devices()[0].client.live_executables()
             if one.hlo_modules()[0].name == "jit_train_step"]
    # by its documented name, which older versions lack
    error = getattr(jax.errors, "JaxRuntimeError", RuntimeError)
    return error("RESOURCE_EXHAUSTED: Out of memory while trying to allocate "
                 f"{max(sizes) / 2**20:.2f}MiB.")
"""
RECORDED = """
import json
import jax
import tb_memplugin
plain = fit(make())
model, callback = make(), tb_memplugin.MemoryCallback("runs/net")
recorded = fit(model, callback)
callback.close()

class Failing(keras.Sequential):
    def make_train_function(self, force=False):
        super().make_train_function(force)
        step, calls = self.train_function, []
        def fails(state, iterator):
            calls.append(0)
            if len(calls) == 3:
                raise out_of_memory()
            return step(state, iterator)
        self.train_function = fails

steps = [one.get_compiled_memory_stats() for one in jax.devices()[0].client.live_executables()
         if one.hlo_modules()[0].name == "jit_train_step"]
def failed(log_dir):
    failing = Failing(make().layers, name="failing")
    failing.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    callback = tb_memplugin.MemoryCallback(log_dir)
    try:
        failing.fit(x, y, batch_size=32, verbose=0, callbacks=[callback])
    except Exception as error:
        return str(error)
    finally:
        callback.close()
caught = failed("runs/failing")
# as on a GPU, where JAX has XLA's totals and schedule only
from types import SimpleNamespace
from tb_memplugin.recorder.loop import jax_modules
serialized = jax_modules.serialized
def totals(executable):
    stats = executable.get_compiled_memory_stats()
    figures = {name: getattr(stats, name) for name in dir(stats) if name.endswith("_in_bytes")}
    return SimpleNamespace(serialized_buffer_assignment_proto=b"", **figures)
jax_modules.serialized = lambda one: serialized(SimpleNamespace(
    hlo_modules=one.hlo_modules, get_compiled_memory_stats=lambda: totals(one)))
callback = tb_memplugin.MemoryCallback("runs/scheduled")
fit(make(), callback)
callback.close()
# as after an error in reading a module
def no_plan(executable):
    raise tb_memplugin.RecordingError("JAX has no plan of it")
jax_modules.serialized = no_plan
failed("runs/unplanned")

def size(variables):
    return sum(int(np.prod(one.shape)) * np.dtype(one.dtype).itemsize for one in variables)
stats = max(steps, key=lambda one: one.temp_size_in_bytes)
print(json.dumps({
    "plain": plain, "recorded": recorded, "caught": caught,
    "trainable": size(model.trainable_weights), "frozen": size(model.non_trainable_weights),
    "slots": size(model.optimizer.variables), "temporaries": stats.temp_size_in_bytes,
    "arguments": stats.argument_size_in_bytes,
    "tensorflow": "tensorflow" in sys.modules,
}))
"""


def python(folder: pathlib.Path, *arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**child_environment(), "KERAS_BACKEND": "jax", **environment},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, pathlib.Path]:
    folder = tmp_path_factory.mktemp("jax")
    (folder / "train.py").write_text(BLOCKED + MODEL + OUT_OF_MEMORY + RECORDED, encoding="utf-8")
    return json.loads(
        next(one for one in python(folder, "train.py").splitlines() if one.startswith("{"))
    ), folder / "runs"


def test_recording_changes_no_loss_and_needs_no_tensorflow(recorded) -> None:
    told, _ = recorded
    assert told["plain"] == told["recorded"] and not told["tensorflow"]


def test_the_step_is_broken_down_by_layer_and_category(recorded) -> None:
    told, logdir = recorded
    run = tb_memplugin.load(str(logdir))["net"]
    # every step is sampled, without the figures that a CPU lacks
    assert len(run.samples) == 2 * (3 + 1) and not run.samples.devices
    assert (run.samples.host_resident_bytes > 1 << 20).all()
    assert any("no memory statistics under JAX" in note for note in run.notes)
    # both sizes of batch, and the validation
    known = {(one.phase, one.batch_size) for one in run.snapshots}
    assert {("train", 32), ("train", 16), ("validation", 32)} <= known
    step = next(one for one in run.snapshots if (one.phase, one.batch_size) == ("train", 32))
    sums = sums_by(step.ledger, lambda row: (row.category, row.trainable))
    assert sums["weights", True] == told["trainable"]
    assert sums["weights", False] == told["frozen"]
    assert sums_by(step.ledger, lambda row: row.category)["optimizer_state"] == told["slots"]
    assert step.in_use_bytes >= told["temporaries"] + told["arguments"]
    of = sums_by(step.ledger, lambda row: (row.layer, row.category))
    assert of["net/conv", "weights"] == (3 * 3 * 16 * 16 + 16) * 4
    assert of["net/conv", "optimizer_state"] == 2 * of["net/conv", "weights"]
    assert of["net/frozen", "optimizer_state"] == 0 and of["net/frozen", "activations"] > 0
    activations = {key: size for key, size in of.items() if key[1] == "activations"}
    assert sum(size for (layer, _), size in activations.items() if layer) >= 0.98 * sum(
        activations.values()
    )
    (table,) = run.layer_tables[:1]
    assert {one.path: one.trainable for one in table.layers}["net/frozen"] is False


def test_without_a_buffer_assignment_the_schedule_tells_the_same(recorded) -> None:
    _, logdir = recorded
    runs = tb_memplugin.load(str(logdir))
    planned, scheduled = (
        next(one for one in runs[name].snapshots if (one.phase, one.batch_size) == ("train", 32))
        for name in ("net", "scheduled")
    )
    # what else is held, other models' arrays, is not of the step
    known, read = (
        sums_by(one.ledger, lambda row: (row.layer, row.category)) for one in (planned, scheduled)
    )
    rows = {*known, *read} - {(None, "held_tensors")}
    assert sum(abs(known[row] - read[row]) for row in rows) <= 1e-3 * planned.in_use_bytes


def test_a_failed_step_gets_a_post_mortem(recorded) -> None:
    told, logdir = recorded
    assert "RESOURCE_EXHAUSTED" in told["caught"]
    (oom,) = tb_memplugin.load(str(logdir))["failing"].ooms
    assert (oom.step, oom.phase, oom.batch_size) == (2, "train", 32)
    # the largest of the module's temporary allocations; JAX counts them all
    held = sum(row.bytes for row in oom.request_ledger)
    assert 0.99 * told["temporaries"] < held <= told["temporaries"]
    assert held == oom.requested_bytes
    assert oom.request_tensors and oom.request_tensors[0].layer


def test_a_failed_step_without_a_plan_gets_a_post_mortem_all_the_same(recorded) -> None:
    _, logdir = recorded
    run = tb_memplugin.load(str(logdir))["unplanned"]
    (oom,) = run.ooms
    assert (oom.step, oom.phase) == (2, "train") and oom.requested_bytes and not oom.request_ledger
    assert any("JAX has no plan of it" in note for note in run.notes) and not run.snapshots


def test_run_records_a_program_and_says_what_a_cpu_lacks(tmp_path) -> None:
    (tmp_path / "train.py").write_text(MODEL + "print(fit(make())[:2])\n", encoding="utf-8")
    (tmp_path / "sitecustomize.py").write_text(BLOCKED, encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), child_environment()["PYTHONPATH"]])
    said = python(tmp_path, "-m", "tb_memplugin", "run", "--run", "r", "train.py", PYTHONPATH=path)
    assert "r: 6 steps (0 to 5), CPU:0" in said and "net/conv" in said
    assert "no memory statistics under JAX" in said


def test_users_of_tensorflow_import_nothing_of_jax(tmp_path) -> None:
    code = (
        "import sys, tb_memplugin; tb_memplugin.MemoryCallback('r').close(); "
        "print([one for one in sys.modules if 'tb_memplugin' in one and 'jax' in one])"
    )
    assert "[]" in python(tmp_path, "-c", code, KERAS_BACKEND="tensorflow")


def test_doctor_says_what_is_recorded_without_tensorflow(tmp_path) -> None:
    code = BLOCKED + "from tb_memplugin.cli import main\nassert main(['doctor']) == 0\n"
    code += "assert 'tensorflow' not in sys.modules\n"
    (tmp_path / "check.py").write_text(code, encoding="utf-8")
    said = python(tmp_path, "check.py")
    assert "ok  JAX: version" in said and "but no bytes in use of CPU:0" in said
    assert "ok  TensorBoard" in said
