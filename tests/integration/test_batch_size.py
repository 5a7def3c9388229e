"""The batch of real trainings, where it is as large as the layers are wide: Keras leaves it
open."""

import pathlib

import pytest
from child import recorded, run_file

import tb_memplugin

# Layers, batch and data of one size: no shape alone tells a result from a gradient of weights.
CODE = """
import keras, numpy as np, tb_memplugin
WIDTH, mode = 64, sys.argv[2]
if mode == "mixed":
    keras.mixed_precision.set_global_policy("mixed_float16")
keras.utils.set_random_seed(1)
model = keras.Sequential([keras.Input((WIDTH,)),
    *(keras.layers.Dense(WIDTH, activation="relu", name=f"hidden_{n}") for n in range(3)),
    keras.layers.Dense(WIDTH, name="logits")], name="net")
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    jit_compile=mode == "xla", run_eagerly=mode == "eager")
x, y = np.ones((WIDTH * 6, WIDTH), "float32"), np.zeros(WIDTH * 6, "int64")
callback = tb_memplugin.MemoryCallback(sys.argv[1], trace_steps=[2, 4])
model.fit(x, y, batch_size=WIDTH, verbose=0, callbacks=[callback])
callback.close()
answer({})
"""


@pytest.mark.parametrize(
    "mode",
    ["graph", *(pytest.param(mode, marks=pytest.mark.long) for mode in ("xla", "eager", "mixed"))],
)
def test_the_layer_table_knows_the_bytes_of_results_for_the_batch(
    tmp_path: pathlib.Path, mode: str
) -> None:
    _, run = recorded(tmp_path, CODE, mode)
    # half precision again changes nothing, and full precision is what such a training takes
    if mode == "mixed":
        same, full = (
            tb_memplugin.what_if(run, precision=one).prediction
            for one in ("mixed_float16", "float32")
        )
        assert same.peak_bytes == tb_memplugin.what_if(run).prediction.peak_bytes is not None
        _, real = recorded(tmp_path / "full", CODE, "graph")
        peak = max(snapshot.in_use_bytes for snapshot in real.snapshots)
        assert full.low_bytes is not None and full.high_bytes is not None
        assert full.low_bytes <= peak <= full.high_bytes
    assert {snapshot.batch_size for snapshot in run.snapshots} == {64}
    size = {"float32": 4, "float16": 2}
    layers = [layer for layer in run.layer_tables[-1].layers if layer.type == "Dense"]
    assert len(layers) == 4
    for layer in layers:
        assert layer.output_bytes == 64 * 64 * size[layer.output_dtype or ""]


def test_the_recorded_batch_is_what_the_model_is_trained_with_or_unknown(
    tmp_path: pathlib.Path,
) -> None:
    run_file("batch_child.py", str(tmp_path))
    runs = tb_memplugin.load(tmp_path)
    found = {
        name: {snapshot.batch_size for snapshot in run.snapshots} for name, run in runs.items()
    }
    assert found == {
        "policy": {256},
        "boxes": {8},
        "rollout": {None},  # 20 or 64
        "named": {64},
        "closure": {32},
        "iterator": {32},
        "eager": {16},
        "micro": {16},
        "two": {None},
        "state": {None},
        "rows": {24},
        "graphs": {None},
        "graphs_named": {5},
        "step": {32},
    }
    unknown = tb_memplugin.what_if(runs["rollout"], batch_size=128).prediction
    assert unknown.method == "unknown" and "Name it with `batch_size=`" in unknown.assumptions[0]
