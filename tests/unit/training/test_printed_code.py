"""The lines that a plan prints run as they stand, on models of each kind, and change what they
say."""

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tb_memplugin.fit import PlanOption
from tb_memplugin.fit.plans import code_of
from tb_memplugin.schema import Layer

L = keras.layers


class Block(L.Layer):
    def __init__(self, name: str) -> None:
        super().__init__(name=name)
        self.parts = [L.Dense(8, "relu", name="wide"), L.Dense(4, name="narrow")]

    def call(self, inputs: Any) -> Any:
        for part in self.parts:
            inputs = part(inputs)
        return inputs


class Subclassed(keras.Model):
    def __init__(self) -> None:
        super().__init__(name="net")
        self.blocks = [Block("one"), Block("two")]

    def call(self, inputs: Any) -> Any:
        for block in self.blocks:
            inputs = block(inputs)
        return inputs


def functional() -> Any:
    inputs = keras.Input((4,))
    return keras.Model(inputs, Block("two")(Block("one")(inputs)), name="net")


MADE = {
    "Functional": functional,
    "Sequential": lambda: keras.Sequential([Block("one"), Block("two")], name="net"),
    "Subclassed": Subclassed,
}


def loss(truth: Any, found: Any) -> Any:
    """A function of the user, which Keras cannot load from a configuration."""
    return keras.ops.mean(keras.ops.square(truth - found), axis=-1)


def layer(path: str, kind: str) -> Layer:
    return Layer(path, kind, True, 1, 4, 4, 0, None, None, None)


@pytest.mark.parametrize("kind", MADE)
@pytest.mark.parametrize(
    "changed",
    [
        {"kind": "recompute", "segments": (("one",), ("two",))},
        {"kind": "accumulate", "accumulation": 3},
        {"kind": "recompute_and_accumulate", "segments": (("one",),), "accumulation": 2},
        {"kind": "freeze", "frozen": ("one/wide", "two")},
        {"kind": "optimizer"},
        {"kind": "recompute_and_batch_size", "segments": (("two",),)},
    ],
    ids=lambda changed: changed["kind"],
)
def test_the_printed_lines_run_as_they_stand(kind: str, changed: dict[str, Any]) -> None:
    x, y = np.ones((6, 4), "float32"), np.zeros((6, 4), "float32")
    # a subclassed and a sequential one without an input have seen no batch yet
    model = MADE[kind]()
    rate = keras.optimizers.schedules.CosineDecay(0.01, 100)
    model.compile(keras.optimizers.Adam(rate, beta_1=0.8), loss)
    wanted = {"segments": (), "batch_size": 2, "accumulation": 1, **changed}
    option = PlanOption(
        sentence="", peak_bytes=0, low_bytes=0, high_bytes=0, fits=True, extra_time=None, **wanted
    )
    names = {"model": model, "x": x}
    exec(
        code_of(
            option,
            "Adam",
            [layer("net", kind), layer("net/one", "Block"), layer("net/two", "Block")],
        ),
        names,
    )
    trained = names["model"]
    trained.fit(x, y, batch_size=names.get("batch_size", 6), verbose=0)
    # THEN the new model trains with the changes, and with the loss and the optimizer's settings as
    # before
    assert trained.loss is loss and (trained is model) is not bool(option.segments)
    assert (trained.optimizer.gradient_accumulation_steps or 1) == option.accumulation
    is_sgd = isinstance(trained.optimizer, keras.optimizers.SGD)
    assert is_sgd is (option.kind == "optimizer") and (is_sgd or trained.optimizer.beta_1 == 0.8)
    assert names.get("batch_size") == (
        2 if option.accumulation > 1 or "batch" in option.kind else None
    )
    frozen = {
        weight.path for weight in trained.non_trainable_variables if "seed" not in weight.path
    }
    parts = [part for path in option.frozen for part in path.split("/")[-1:]]
    assert bool(frozen) is bool(parts) and all("wide" in path or "two" in path for path in frozen)
    assert len(trained.trainable_variables) == (2 if option.frozen else 8)


OTHER = {
    "accumulate": {"accumulation": 3},
    "freeze": {"frozen": ("one/wide", "two")},
    "optimizer": {},
    "precision": {},
    "batch_size": {},
    "xla": {},
    "graph_optimizer": {},
}


def code_for(kind: Any, keras_package: str) -> str:
    wanted = {"segments": (), "batch_size": 2, "accumulation": 1, **OTHER[kind]}
    option = PlanOption(
        kind, "", peak_bytes=0, low_bytes=0, high_bytes=0, fits=True, extra_time=None, **wanted
    )
    layers = [layer("net", "Model"), layer("net/one", "Block"), layer("net/two", "Dense")]
    return code_of(option, "Adam", layers, keras=keras_package)


@pytest.mark.parametrize("kind", OTHER)
def test_the_lines_for_keras_2_run_with_a_model_of_it(kind: str) -> None:
    keras_2 = pytest.importorskip("tf_keras")

    class Block2(keras_2.layers.Layer):  # type: ignore[misc, name-defined]
        def __init__(self, name: str) -> None:
            super().__init__(name=name)
            self.wide = keras_2.layers.Dense(8, "relu", name="wide")

        def call(self, inputs: Any) -> Any:
            return self.wide(inputs)

    inputs = keras_2.Input((4,))
    model = keras_2.Model(inputs, keras_2.layers.Dense(4, name="two")(Block2("one")(inputs)))
    model.compile(keras_2.optimizers.Adam(0.01, beta_1=0.8), loss="mse")
    names = {"model": model}
    before = tf.config.optimizer.get_experimental_options()
    try:
        exec(code := code_for(kind, "tf_keras"), names)
    finally:
        keras_2.mixed_precision.set_global_policy("float32")
        if kind == "graph_optimizer":
            tf.config.optimizer.set_experimental_options(
                {"disable_meta_optimizer": before.get("disable_meta_optimizer", False)}
            )
    # THEN the model trains with the change, or with what a comment says of it
    x, y = np.ones((6, 4), "float32"), np.zeros((6, 4), "float32")
    trained: Any = names["model"]
    trained.fit(x, y, batch_size=names.get("batch_size", 6), verbose=0)
    assert isinstance(trained.optimizer, keras_2.optimizers.SGD) is (kind == "optimizer")
    assert len(trained.trainable_variables) == (0 if kind == "freeze" else 4)
    assert (names.get("batch_size") == 2) is (kind in ("accumulate", "batch_size"))
    assert ("# sum the gradients of 3 batches of 2" in code) is (kind == "accumulate")


@pytest.mark.parametrize("kind", OTHER)
def test_for_a_loop_words_say_what_no_line_can_change(kind: str) -> None:
    # GIVEN a model that was never compiled
    model: Any = functional()
    names = {"model": model}
    code = code_for(kind, "")
    if kind == "freeze":
        exec(code, names)
        assert len(model.trainable_variables) == 2
    if kind != "graph_optimizer":
        exec(code, names)
    assert "compile(" not in code and "import keras" not in code
    said = {
        "accumulate": "# sum the gradients of 3 batches of 2 and apply their mean in one update",
        "optimizer": "# use an SGD optimizer without momentum instead of Adam",
        "precision": "# dtype policy mixed_float16  # before the model is made",
        "xla": "# make the step a tf.function(step, jit_compile=True)",
    }
    assert said.get(kind, "") in code and code.count("#") >= (kind in said)
