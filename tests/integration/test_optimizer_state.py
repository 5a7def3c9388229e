"""All variables of an optimizer that are as large as a weight are optimizer state of the weight's
layer: slots, moving averages and accumulated gradients."""

import pathlib
from typing import Any

import pytest
from child import run_child

LEDGERS = """
import keras, numpy as np, tensorflow as tf, tb_memplugin


def ledgers(run):
    return {
        one.step: [(row.layer, row.category, row.bytes) for row in one.ledger]
        for one in run.snapshots
    }


def sizes(layer):
    return sum(weight.numpy().nbytes for weight in layer.weights)
"""

AVERAGED = """
x = np.random.rand(96, 256).astype("float32")
layers = [keras.layers.Dense(256, name=name) for name in "ab"]
model = keras.Sequential([keras.Input((256,)), *layers], name="net")
model.compile(keras.optimizers.SGD(0.1, use_ema=True, gradient_accumulation_steps=4), "mse")
buffers = {}


class Buffers(keras.callbacks.Callback):
    # Address and bytes of the buffers that the optimizer's variables of a layer have at the begin
    # of a step.
    def on_train_batch_begin(self, batch, logs=None):
        buffers[batch] = [
            (
                np.from_dlpack(variable.value.read_value()).ctypes.data,
                variable.path,
                variable.numpy().nbytes,
            )
            for variable in model.optimizer.variables
            if "kernel" in variable.path or "bias" in variable.path
        ]


recorder = tb_memplugin.MemoryCallback(sys.argv[1], trace_steps=[3, 8, 10])
model.fit(x, x, batch_size=8, verbose=0, callbacks=[Buffers(), recorder])
(run,) = tb_memplugin.load(sys.argv[1]).values()
answer(
    {
        "buffers": buffers,
        "trainable": sizes(layers[0]),
        "ledgers": ledgers(run),
        "table": {layer.path: layer.optimizer_bytes for layer in run.layer_tables[-1].layers},
    }
)
"""

SEVERAL_STEPS = """
x = np.random.rand(256, 256).astype("float32")
data = tf.data.Dataset.from_tensor_slices((x, x)).cache().shuffle(256).batch(8)
layers = [keras.layers.Dense(256, activation="relu", name=name) for name in "abc"]
model = keras.Sequential([keras.Input((256,)), *layers], name="net")
model.compile("rmsprop", "mse", steps_per_execution=4)
model.fit(
    data, verbose=0, callbacks=[tb_memplugin.MemoryCallback(sys.argv[1], trace_steps=[1, 2, 3, 4])]
)
(run,) = tb_memplugin.load(sys.argv[1]).values()
answer({"trainable": sizes(layers[0]), "ledgers": ledgers(run)})
"""

RECOMPUTED = """
class Wide(keras.layers.Layer):
    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], shape[-1]), name="kernel")
    def call(self, x):
        return tf.nn.gelu(x @ self.kernel)
x = np.random.rand(960, 384).astype("float32")
with keras.RematScope(mode="full"):
    layers = [Wide(name=name) for name in "abc"]
model = keras.Sequential([keras.Input((384,)), *layers], name="net")
averages = {} if sys.argv[2] == "graph" else {"use_ema": True, "ema_overwrite_frequency": 3}
optimizer = keras.optimizers.Adam(**averages)
model.compile(optimizer, "mse", steps_per_execution=4, jit_compile=sys.argv[2] == "xla")
callback = tb_memplugin.MemoryCallback(sys.argv[1], trace_steps=range(1, 10))
model.fit(x, x, batch_size=24, verbose=0, callbacks=[callback])
callback.close()
(run,) = tb_memplugin.load(sys.argv[1]).values()
answer({"trainable": sizes(layers[0]), "ledgers": ledgers(run)})
"""

MIXED = """
keras.mixed_precision.set_global_policy("mixed_float16")
x, y = np.random.rand(256, 8, 8, 3).astype("float32"), np.random.randint(0, 10, 256)
answers = []
for trial in range(3):
    layers = [
        keras.layers.Conv2D(16, 3, activation="relu"),
        keras.layers.Conv2D(32, 3),
        keras.layers.Flatten(),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dense(10, dtype="float32"),
    ]
    model = keras.Sequential([keras.Input((8, 8, 3)), *layers])
    model.compile("adam", "sparse_categorical_crossentropy", steps_per_execution=2)
    callback = tb_memplugin.MemoryCallback(f"{sys.argv[1]}/{trial}", trace_steps=[2, 6, 10, 14])
    model.fit(x, y, batch_size=16, epochs=2, verbose=0, callbacks=[callback])
    callback.close()
    (run,) = tb_memplugin.load(f"{sys.argv[1]}/{trial}").values()
    weights = {f"{model.name}/{layer.name}": sizes(layer) for layer in layers if layer.weights}
    answers.append({"weights": weights, "ledgers": ledgers(run)})
answer(answers)
"""


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return run_child(LEDGERS + AVERAGED, str(tmp_path_factory.mktemp("optimizer")))


def state(answer: Any, step: int) -> dict[str, int]:
    """Bytes of optimizer state by layer at a step."""
    rows = answer["ledgers"][str(step)]
    return {
        layer: size
        for layer, category, size in rows
        if category == "optimizer_state" and layer is not None
    }


def test_averages_and_accumulated_gradients_are_optimizer_state_of_their_layers(
    answer: Any,
) -> None:
    whole = 2 * answer["trainable"]  # an average and an accumulator
    assert state(answer, 10) == {"net/a": whole, "net/b": whole}
    assert answer["table"] == {"net": 0, "net/a": whole, "net/b": whole}
    assert not any(
        category == "other_state" and layer for layer, category, _ in answer["ledgers"]["10"]
    )


def test_emptied_accumulators_that_share_a_buffer_are_counted_once(answer: Any) -> None:
    # TensorFlow assigns one constant of zeros to all accumulators of a shape.
    held = answer["buffers"]["8"]
    by_address = {address: size for address, _, size in held}
    assert len(by_address) < len(held) == 8
    assert sum(state(answer, 8).values()) == sum(by_address.values())


@pytest.mark.parametrize("mode", ["graph", "averaged", pytest.param("xla", marks=pytest.mark.long)])
def test_several_steps_of_recomputed_layers_have_weights_and_slots_once(
    tmp_path: pathlib.Path, mode: str
) -> None:
    # GIVEN layers that the backward pass runs again; in two modes, averages overwrite their weights
    # every third step, WHEN each execution has four steps, THEN momentum, velocity and average
    # count once. An average that has just overwritten a weight is that weight's buffer.
    answer = run_child(LEDGERS + RECOMPUTED, str(tmp_path), mode)
    assert len(answer["ledgers"]) >= 7
    for step, rows in answer["ledgers"].items():
        weights = {layer: size for layer, category, size in rows if category == "weights"}
        assert weights == dict.fromkeys(("net/a", "net/b", "net/c"), answer["trainable"]), step
        slots = {layer: size / answer["trainable"] for layer, size in state(answer, step).items()}
        possible = {"graph": [2], "xla": [3], "averaged": [2, 3]}[mode]
        assert slots in [dict.fromkeys(weights, count) for count in possible], step


def test_slots_that_each_step_of_an_execution_replaces_stay_optimizer_state(
    tmp_path: pathlib.Path,
) -> None:
    answer = run_child(LEDGERS + SEVERAL_STEPS, str(tmp_path))
    assert len(answer["ledgers"]) >= 3
    for step in answer["ledgers"]:
        assert state(answer, step) == dict.fromkeys(
            ("net/a", "net/b", "net/c"), answer["trainable"]
        ), step


@pytest.mark.long
def test_no_bias_is_missing_from_the_weights_in_mixed_precision_with_several_steps_per_execution(
    tmp_path,
) -> None:
    """At each traced step of three trainings: how the steps of an execution overlap differs from
    one to the next."""
    for trial in run_child(LEDGERS + MIXED, str(tmp_path)):
        assert len(trial["ledgers"]) == 4
        for step, ledger in trial["ledgers"].items():
            held = dict.fromkeys(trial["weights"], 0)
            for layer, category, size in ledger:
                held[layer] = held.get(layer, 0) + (
                    size if category == "weights" and layer in held else 0
                )
            assert {layer: held[layer] for layer in trial["weights"]} == trial["weights"], step
            whole = sum(size for _, _, size in ledger)
            assert (
                sum(size for _, category, size in ledger if category == "unattributed")
                <= 0.001 * whole
            )
