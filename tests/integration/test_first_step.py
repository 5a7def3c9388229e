"""Trainings whose first step runs out of memory, in processes of their own, and the same with what
the fix says."""

import pathlib

import pytest
from child import PRELUDE, child_environment, run_child
from prepared_python import run_python

import tb_memplugin
from tb_memplugin.schema import Oom

MODEL = """
import os
import keras, numpy as np, tb_memplugin

keras.utils.set_random_seed(1)
L = keras.layers
how, batch = sys.argv[1], int(sys.argv[2])
model = keras.Sequential(
    [
        keras.Input((40,)),
        L.Embedding(500, 48),
        L.Conv1D(96, 5, activation="relu"),
        L.LSTM(64) if how == "graph" else L.GlobalMaxPooling1D(),
        L.Dense(256, activation="gelu"),
        L.Dense(5),
    ]
)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(
    keras.optimizers.RMSprop(), loss, jit_compile=how == "jit"
)  # both programs that XLA compiles and others
x, y = np.ones((8192, 40), "int32"), np.zeros(8192, "int32")
"""
TRAINS = """
model.fit(x, y, batch_size=batch, steps_per_epoch=4, verbose=0)
answer({})
os._exit(0)
"""
FAILS = """
try:
    model.fit(
        x, y, batch_size=batch, verbose=0, callbacks=[tb_memplugin.MemoryCallback(sys.argv[3])]
    )
finally:
    os._exit(3)  # as it ends, TensorFlow itself aborts after a compiled step that failed
"""
LIMIT = {"TF_CPU_BFC_MEM_LIMIT_IN_MB": "96"}
TOO_LARGE = 4096


def failure(how: str, directory: pathlib.Path) -> Oom:
    command = ["-c", PRELUDE + MODEL + FAILS, how, str(TOO_LARGE), str(directory)]
    assert run_python(command, environment=child_environment(LIMIT), timeout=240).returncode == 3
    (run,) = tb_memplugin.load(directory).values()
    (oom,) = run.ooms
    assert (oom.step, oom.during, oom.batch_size) == (0, "step", TOO_LARGE)
    return oom


def passes(how: str, batch: int) -> bool:
    try:
        run_child(MODEL + TRAINS, how, str(batch), environment=LIMIT)
    except AssertionError:
        return False
    return True


@pytest.mark.long
def test_the_batch_size_advised_after_a_compiled_first_step_passes_and_is_not_far_below_the_largest(
    tmp_path: pathlib.Path,
) -> None:
    oom = failure("jit", tmp_path)
    fixes = {fix.kind: fix for fix in oom.fixes}
    assert fixes["accumulation"].enough and fixes["limit"].enough
    advised = fixes["batch"].batch_size
    # THEN steps with it pass, as do those of the batch that gradients are summed over, and of 1.43
    # times more fail
    assert advised is not None and passes("jit", advised)
    assert not passes("jit", round(advised / 0.7))
    assert passes("jit", fixes["accumulation"].batch_size or 0)


@pytest.mark.long
def test_a_first_step_in_graph_mode_bounds_the_batch_size_and_says_how_to_measure_it(
    tmp_path: pathlib.Path,
) -> None:
    oom = failure("graph", tmp_path)
    assert oom.fixes == ()
    (note,) = (one for one in oom.not_available if one.startswith("No fix could be simulated"))
    assert "largest_batch_size(model, data)" in note
    largest = int(note.partition("only batch sizes up to ")[2].split()[0])
    # THEN no larger one passes
    assert 0 < largest < TOO_LARGE and not passes("graph", round(largest * 1.05))
