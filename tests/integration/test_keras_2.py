"""Trainings with Keras 2, as ``tf_keras`` and as ``tf.keras``: recorded like Keras 3, and with the
same result."""

import pathlib
from typing import Any

import pytest
from child import run_child

import tb_memplugin
from tb_memplugin.schema import Run, Snapshot

PROGRAM = """
import gc, os
import numpy as np, tensorflow as tf
{keras}
import tb_memplugin
rng = np.random.default_rng(0)
x, y = rng.random((80, 8, 8, 3), "float32"), rng.integers(0, 4, 80)
def make_model():
    keras.utils.set_random_seed(1)
    inputs = keras.Input((8, 8, 3))
    hidden = keras.layers.Conv2D(8, 3, activation="relu", name="conv")(inputs)
    hidden = keras.layers.BatchNormalization(name="norm")(hidden)
    hidden = keras.layers.Dropout(0.2, name="drop")(hidden)
    logits = keras.layers.Dense(4, name="logits")(keras.layers.Flatten()(hidden))
    return keras.Model(inputs, logits, name="net")
def nbytes(variables): return sum(int(np.prod(v.shape)) * v.dtype.size for v in variables)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
"""
AS_PACKAGE = "import tf_keras as keras"
AS_TF_KERAS = "keras = tf.keras"

FIT = """
def losses(callbacks, eager):
    model = make_model()
    model.get_layer("conv").trainable = False
    model.compile({optimizer}, loss, metrics=["accuracy"], run_eagerly=eager)
    history = model.fit(
        x, y, batch_size=16, epochs=2, verbose=0, validation_data=(x, y), callbacks=callbacks
    )
    model.predict(x, batch_size=16, verbose=0, callbacks=callbacks)
    return history.history, model


original_call, told = keras.layers.Layer.__call__, {{}}
for eager in (False, True):
    gc.collect()  # an earlier training's model is garbage, which is not read
    run = os.path.join(sys.argv[1], "eager" if eager else "graph")
    callback = tb_memplugin.MemoryCallback(run, trace_steps=[3, 7])
    with_it, model = losses([callback], eager)
    callback.close()
    told[os.path.basename(run)] = {{
        "same": with_it == losses([], eager)[0],
        "weights": nbytes(model.trainable_weights),
        "frozen": nbytes(model.non_trainable_weights),
        "restored": keras.layers.Layer.__call__ is original_call,
    }}
answer(told)
"""


def requested(
    snapshot: Snapshot, category: str, trainable: bool | None = None, layer: str = ""
) -> int:
    return sum(
        row.bytes
        for row in snapshot.ledger
        if row.category == category
        and (trainable is None or row.trainable is trainable)
        and (row.layer or "").startswith(layer)
    )


def check(run: Run, told: dict[str, Any]) -> None:
    assert sorted(set(run.samples.phase.tolist())) == [0, 1, 2]
    assert not run.notes, run.notes
    # Every layer is known, with the weights and slots that Keras itself counts.
    layers = run.layer_tables[-1].layers
    assert [layer.path for layer in layers][:2] == ["net", "net/conv"]
    assert sum(layer.trainable_weight_bytes for layer in layers) == told["weights"]
    assert [snapshot.step for snapshot in run.snapshots] == [3, 7]
    for snapshot in run.snapshots:
        assert requested(snapshot, "weights", trainable=True, layer="net/") == told["weights"]
        assert requested(snapshot, "weights", trainable=False, layer="net/") == told["frozen"]
        assert requested(snapshot, "optimizer_state", layer="net/") == 2 * told["weights"]
        assert requested(snapshot, "unattributed") <= 0.001 * snapshot.in_use_bytes
        saved = {row.layer for row in snapshot.saved_for_backward}
        assert {"net/conv", "net/norm"} & saved, saved


@pytest.mark.parametrize(
    ("keras", "optimizer", "environment"),
    [
        (AS_PACKAGE, "keras.optimizers.Adam()", {}),
        pytest.param(AS_PACKAGE, "keras.optimizers.legacy.Adam()", {}, marks=pytest.mark.long),
        pytest.param(AS_TF_KERAS, '"adam"', {"TF_USE_LEGACY_KERAS": "1"}, marks=pytest.mark.long),
    ],
    ids=["tf_keras", "legacy optimizer", "tf.keras"],
)
def test_fit_is_recorded_and_has_the_same_result(tmp_path, keras, optimizer, environment) -> None:
    code = PROGRAM.format(keras=keras) + FIT.format(optimizer=optimizer)
    told = run_child(code, str(tmp_path), environment=environment)
    runs = tb_memplugin.load(tmp_path)
    for name in ("graph", "eager"):
        assert told[name]["same"], name
        assert told[name]["restored"]
        check(runs[name], told[name])


def test_traced_steps_are_not_called_slow(tmp_path: pathlib.Path) -> None:
    """Keras 2 warns of hooks that take longer than the first batches: of a slow callback, not of
    tracing."""
    code = """
import logging, time

said = []


class Collect(logging.Handler):
    def emit(self, record):
        said.append(record.getMessage())


tf.get_logger().addHandler(Collect())


class Slow(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        time.sleep(2.0)


def warned(*callbacks):
    del said[:]
    model = make_model()
    model.compile("adam", loss)
    recorder = tb_memplugin.MemoryCallback(
        os.path.join(sys.argv[1], str(len(callbacks))), trace_steps=[1, 2, 3, 4]
    )
    model.fit(x, y, batch_size=8, verbose=0, callbacks=[recorder, *callbacks])
    recorder.close()
    return [sentence for sentence in said if "is slow" in sentence]


answer({"alone": warned(), "slow": warned(Slow())})
"""
    told = run_child(PROGRAM.format(keras=AS_PACKAGE) + code, str(tmp_path))
    assert told["alone"] == [] and len(told["slow"]) == 1
    assert [snapshot.step for snapshot in tb_memplugin.load(tmp_path)["0"].snapshots] == [
        1,
        2,
        3,
        4,
    ]


def test_a_loop_of_its_own_is_recorded(tmp_path: pathlib.Path) -> None:
    code = """
model, optimizer = make_model(), keras.optimizers.SGD(momentum=0.9)
with tb_memplugin.MemoryRecorder(sys.argv[1], model, optimizer, trace_steps=[2]) as recorder:

    @tf.function
    def train(images, labels):
        with tf.GradientTape() as tape:
            value = loss(labels, model(images, training=True))
        optimizer.apply_gradients(
            zip(tape.gradient(value, model.trainable_variables), model.trainable_variables)
        )
        return value

    batches = [
        (tf.constant(x[at : at + 16]), tf.constant(y[at : at + 16])) for at in range(0, 80, 16)
    ]
    for step, batch in enumerate(batches):
        with recorder.step(step):
            train(*batch)
answer({"weights": nbytes(model.trainable_weights), "frozen": nbytes(model.non_trainable_weights)})
"""
    told = run_child(PROGRAM.format(keras=AS_PACKAGE) + code, str(tmp_path / "run"))
    (snapshot,) = tb_memplugin.load(tmp_path)["run"].snapshots
    assert requested(snapshot, "weights", trainable=True, layer="net/") == told["weights"]
    assert requested(snapshot, "optimizer_state", layer="net/") == told["weights"]
    assert requested(snapshot, "unattributed") <= 0.001 * snapshot.in_use_bytes
    # The peak may lie where these were freed again: in the scratch space of the convolution's
    # gradient.
    assert {"net/conv", "net/norm", "net/logits"} <= {
        row.layer for row in snapshot.saved_for_backward
    }


EMBEDDINGS = """
rows = rng.integers(0, 1500, (200, 16))
tables = [keras.layers.Embedding(1500, 64, name=f"table_{at}") for at in range(2)]
rows_in = keras.Input((16,))
hidden = keras.layers.Concatenate()([table(rows_in) for table in tables])
logits = keras.layers.Dense(4)(keras.layers.GlobalAveragePooling1D()(hidden))
model = keras.Model(rows_in, logits)
model.compile("adam", loss)
callback = tb_memplugin.MemoryCallback(sys.argv[1], trace_steps=list(range(4, 12)))
model.fit(rows, rng.integers(0, 4, 200), batch_size=16, verbose=0, callbacks=[callback])
callback.close()
answer(nbytes(model.weights))
"""


def test_sparsely_updated_weights_and_their_slots_count_once_in_each_step(
    tmp_path: pathlib.Path,
) -> None:
    # GIVEN embeddings of one size, whose lookups and slots are read as copies
    program = "import sys" + PROGRAM.format(keras=AS_PACKAGE) + EMBEDDINGS
    weights = run_child(program, str(tmp_path / "run"))
    (run,) = tb_memplugin.load(tmp_path).values()
    # THEN Adam has two slots for each weight
    found = {
        snapshot.step: [
            sum(
                row.bytes
                for row in snapshot.ledger
                if row.category == category and row.layer is not None
            )
            for category in ("weights", "optimizer_state")
        ]
        for snapshot in run.snapshots
    }
    assert found == {step: [weights, 2 * weights] for step in range(4, 12)}
