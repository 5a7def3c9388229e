"""Runs that only evaluate, predict or generate, recorded for real: every batch is a step, in its
own phase."""

import pathlib

import pytest
from child import recorded, run_child

import tb_memplugin
from tb_memplugin.analysis import answers, main_phase, step_range

MODEL = """
import keras, numpy as np, tensorflow as tf, tb_memplugin


def make_model(**options):
    layers = [
        keras.layers.Dense(64, activation="relu", name="hidden"),
        keras.layers.Dense(256, name="outputs"),
    ]
    model = keras.Sequential([keras.Input((16,)), *layers], name="net")
    model.compile(loss="mse", **options)
    return model


x, y = np.zeros((640, 16), "float32"), np.zeros((640, 256), "float32")
"""

CALLS = """
callback = tb_memplugin.MemoryCallback(sys.argv[1], overhead=1.0)
options = {"batch_size": 16, "verbose": 0, "callbacks": [callback]}
"""


def test_batches_of_predict_are_steps_and_its_outputs_are_held(tmp_path: pathlib.Path) -> None:
    run_child(
        f"{MODEL}{CALLS}\nmake_model().predict(x, **options); callback.close(); answer(1)",
        str(tmp_path / "run"),
    )
    run = tb_memplugin.load(tmp_path)["run"]
    assert (main_phase(run), run.samples.step.tolist()) == ("predict", list(range(40)))
    assert step_range(run).steps == 40
    assert run.snapshots and {snapshot.phase for snapshot in run.snapshots} == {"predict"}
    categories = {
        row.category for snapshot in run.snapshots for row in snapshot.ledger if row.bytes
    }
    assert not categories & {"activations", "activation_gradients", "weight_gradients"}
    assert all(not snapshot.saved_for_backward for snapshot in run.snapshots)
    # Keras keeps the outputs of all batches until the end: 16 × 256 × 4 B more after each one.
    last = run.snapshots[-1]
    held = sum(row.bytes for row in last.ledger if row.category == "held_tensors")
    assert 16 * 256 * 4 * last.step <= held <= 16 * 256 * 4 * (last.step + 1) + 1024
    # 40 steps may be few for a jump
    assert [answer.status for answer in answers(run, "CPU:0")].count("unknown") <= 1


@pytest.mark.long
def test_evaluations_go_on_counting_until_training_begins(tmp_path: pathlib.Path) -> None:
    code = f"""{MODEL}{CALLS}
model = make_model(optimizer="sgd")
model.evaluate(x, y, **options)
model.evaluate(x, y, **options)
model.predict(x[:32], **options)
model.fit(x[:160], y[:160], validation_data=(x[:32], y[:32]), **options)
model.predict(x[:32], **options)
callback.close(); answer(1)
"""
    run_child(code, str(tmp_path / "run"))
    samples = tb_memplugin.load(tmp_path)["run"].samples
    by_time = samples.wall_time.argsort(kind="stable")
    found = list(zip(samples.phase[by_time].tolist(), samples.step[by_time].tolist(), strict=True))
    evaluated = [(1, step) for step in range(80)]
    trained = [(0, step) for step in range(10)]
    assert found == [*evaluated, (2, 80), (2, 81), *trained, *[(1, 9)] * 2, *[(2, 9)] * 2]


def test_a_growing_cache_of_keys_and_values_is_named(tmp_path: pathlib.Path) -> None:
    # GIVEN a Transformer block that generates 80 tokens, one in a step, with keys and values of all
    # tokens so far
    code = """
import keras, tensorflow as tf, tb_memplugin
WIDTH, BATCH = 128, 32
project = keras.layers.Dense(3 * WIDTH, name="project")
inputs = keras.Input((WIDTH,))
model = keras.Model(inputs, project(inputs), name="decoder")
spec = tf.TensorSpec((BATCH, None, WIDTH))
@tf.function(input_signature=[tf.TensorSpec((BATCH, WIDTH)), spec, spec])
def one_token(hidden, keys, values):
    query, key, value = tf.split(model(hidden), 3, axis=-1)
    keys, values = tf.concat([keys, key[:, None]], 1), tf.concat([values, value[:, None]], 1)
    weights = tf.nn.softmax(tf.reduce_sum(query[:, None] * keys, -1))
    return tf.reduce_sum(weights[..., None] * values, 1), keys, values
with tb_memplugin.MemoryRecorder(sys.argv[1], model=model, overhead=1.0) as recorder:
    hidden, cache = tf.zeros((BATCH, WIDTH)), [tf.zeros((BATCH, 0, WIDTH))] * 2
    for position in range(80):
        with recorder.step(position, "predict"):
            hidden, *cache = one_token(hidden, *cache)
answer(1)
"""
    _, run = recorded(tmp_path, code)
    growing = answers(run, "CPU:0")[1]
    assert growing.status == "warning" and growing.sentence.endswith(": held tensors")
    # In a call there are keys and values of the tokens so far, and those with one more: 2 × 32 ×
    # 128 × 4 B for each.
    for snapshot in run.snapshots[1:]:
        held = sum(row.bytes for row in snapshot.ledger if row.category == "held_tensors")
        assert 32768 * snapshot.step <= held <= 32768 * (2 * snapshot.step + 1) + (1 << 16), (
            snapshot.step
        )
    # AND that is the only finding on the device
    (finding,) = (one.sentence for one in run.findings if one.device is not None)
    assert "kept alive by list `cache` in module __main__" in finding
