"""What `remat` returns and what it refuses. tests/integration/test_remat.py trains whole models."""

import pathlib
import types
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tb_memplugin
from tb_memplugin.errors import RecomputationError
from tb_memplugin.recorder.watch import cut_points
from tb_memplugin.training.recompute import Segment
from tb_memplugin.training.remat_model import recomputing

L = keras.layers


def make_model() -> keras.Model:
    inputs = keras.Input((6,))
    tensor = L.Dropout(0.4, name="drop")(
        L.BatchNormalization(name="norm")(L.Dense(8, name="first")(inputs))
    )
    tensor = L.Dense(8, "relu", activity_regularizer="l2", name="second")(tensor)
    return keras.Model(inputs, L.Dense(3, name="out")(tensor), name="small")


def recomputed_calls(model: Any) -> list[list[str]]:
    return [
        [call.name for call in step.calls]
        for step in model.segmented_steps
        if hasattr(step, "calls")
    ]


def same_gradients(make: Any, cuts: Any, x: Any, tolerance: float = 1e-6) -> None:
    """Losses, gradients and every variable after a step, against the plain model."""
    results = []
    for use in (False, True):
        keras.utils.set_random_seed(3)
        plain = make()
        model = tb_memplugin.remat(plain, cuts) if use else plain
        with tf.GradientTape() as tape:
            outputs = model(x, training=True)
            loss = sum(tf.reduce_sum(output**2) for output in keras.tree.flatten(outputs)) + sum(
                model.losses
            )
        gradients = tape.gradient(loss, plain.trainable_variables)
        assert all(gradient is not None for gradient in gradients)
        results.append(
            [loss, *map(tf.convert_to_tensor, gradients), *(v.value for v in plain.variables)]
        )
    for expected, received in zip(*results, strict=True):
        np.testing.assert_allclose(
            np.asarray(received), np.asarray(expected), rtol=tolerance, atol=tolerance
        )


X = np.random.default_rng(0).normal(size=(4, 6)).astype("float32")


def test_losses_gradients_statistics_and_seeds_are_those_of_the_plain_model() -> None:
    same_gradients(make_model, ["drop", "second"], X)
    same_gradients(lambda: with_layer(GlobalSeed(name="odd")), ["odd"], X)


def make_sequential() -> Any:
    return keras.Sequential([keras.Input((6,)), L.Dense(4), L.BatchNormalization(), L.Dense(2)])


@pytest.mark.parametrize("make", [make_model, make_sequential])
def test_weights_are_shared_and_each_model_loads_what_the_other_saved(
    make: Any, tmp_path: pathlib.Path
) -> None:
    plain = make()
    model = tb_memplugin.remat(plain, cut_points(plain))
    assert [id(v) for v in model.weights] == [id(v) for v in plain.weights]
    assert make is make_sequential or [one.name for one in model.layers] == [
        one.name for one in plain.layers
    ]
    other = make()
    for source, target in (
        (model, make()),
        (plain, tb_memplugin.remat(other, cut_points(other)[:1])),
    ):
        source.save_weights(tmp_path / "a.weights.h5")
        target.load_weights(tmp_path / "a.weights.h5")
        np.testing.assert_array_equal(target.predict(X, verbose=0), plain.predict(X, verbose=0))
    model.save(tmp_path / "a.keras")
    loaded = keras.saving.load_model(tmp_path / "a.keras")
    np.testing.assert_array_equal(loaded.predict(X, verbose=0), plain.predict(X, verbose=0))


class Best(L.Layer):
    """Returns a number, which has no gradient."""

    def call(self, inputs: Any) -> Any:
        return keras.ops.argmax(inputs, axis=-1)


def test_a_plan_names_segments_and_segments_may_have_several_inputs_and_outputs() -> None:
    def make() -> Any:
        inputs, side = keras.Input((6,)), keras.Input((6,))
        left, right = L.Dense(5, name="left")(inputs), L.Dense(5, name="right")(side)
        tensor = L.Add(name="add")([left, right])
        outputs = [
            L.Embedding(5, 2)(Best(name="best")(tensor)),
            L.Dense(2, name="two")(left),
            L.Dense(2)(tensor),
        ]
        return keras.Model([inputs, side], outputs)

    same_gradients(
        make, types.SimpleNamespace(segments=(("left", "right", "add", "best"),)), [X, X]
    )


def test_masks_reach_the_layers_behind_a_segment() -> None:
    def make() -> Any:
        inputs = keras.Input((5,), dtype="int32")
        tensor = L.Dropout(0.3, name="drop")(
            L.Embedding(7, 4, mask_zero=True, name="words")(inputs)
        )
        tensor = L.LSTM(4, return_sequences=True, name="lstm")(tensor)
        return keras.Model(inputs, L.Dense(2)(L.GlobalAveragePooling1D(name="pool")(tensor)))

    same_gradients(make, ["drop", "lstm"], np.array([[1, 2, 0, 0, 0], [3, 4, 5, 6, 0]], "int32"))


def test_stateful_and_shared_layers_are_repeated_from_the_state_of_the_first_pass() -> None:
    def make() -> Any:
        inputs = keras.Input(batch_shape=(4, 3, 6))
        tensor = L.GRU(5, stateful=True, return_sequences=True, name="gru")(inputs)
        dense, norm = L.Dense(5, name="shared"), L.BatchNormalization(name="norm")
        tensor = L.ReLU(name="between")(norm(dense(tensor)))
        tensor = L.ReLU(name="after")(norm(dense(tensor)))
        return keras.Model(inputs, L.Dense(2)(tensor))

    same_gradients(make, ["gru", "between", "after"], np.repeat(X[:, None], 3, 1))


class TwoSteps(keras.Model):
    """A subclassed model with layers in a list and a training step of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = [
            L.Dense(6, "relu", name="a"),
            L.Dropout(0.5, name="b"),
            L.Dense(6, "relu", name="c"),
        ]
        self.head = L.Dense(2)
        self.steps = 0

    def call(self, inputs: Any, training: Any = None) -> Any:
        for block in self.blocks:
            inputs = block(inputs, training=training) if block.name == "b" else block(inputs)
        return self.head(inputs)

    def train_step(self, data: Any) -> Any:
        self.steps += 1
        return super().train_step(data)


def make_subclassed() -> Any:
    model = TwoSteps()
    model(X)
    return model


def test_subclassed_models_keep_their_own_step_and_recompute_single_layers() -> None:
    same_gradients(make_subclassed, ["a", "b", "c"], X)
    plain = make_subclassed()
    assert cut_points(plain) == ("a", "b", "c")
    model = tb_memplugin.remat(plain, ["a"])
    model.compile("sgd", "mse", run_eagerly=True)
    model.fit(X, X[:, :2], verbose=0)
    assert isinstance(model, TwoSteps) and model.steps == 1 and plain.steps == 0
    assert "call" not in vars(plain.blocks[0])


class Random(L.Layer):
    def call(self, inputs: Any) -> Any:
        return inputs * tf.random.uniform(tf.shape(inputs))


class RawVariable(L.Layer):
    def build(self, shape: Any) -> None:
        self.scale = tf.Variable(2.0)

    def call(self, inputs: Any) -> Any:
        return inputs * self.scale


class GlobalSeed(L.Layer):
    """Draws from Keras's global seed generator, which no layer tracks."""

    def call(self, inputs: Any) -> Any:
        return inputs * keras.random.uniform(keras.ops.shape(inputs))


def with_layer(layer: Any) -> keras.Model:
    inputs = keras.Input((6,))
    return keras.Model(inputs, L.Dense(2, name="out")(layer(L.Dense(6, name="first")(inputs))))


@pytest.mark.parametrize(
    ("layer", "why"),
    [
        (lambda: Random(name="odd"), "RandomUniform"),
        (lambda: RawVariable(name="odd"), "ReadVariableOp"),
        (lambda: L.SpectralNormalization(L.Dense(6), name="odd"), "trainable weight"),
    ],
)
def test_layers_that_a_second_pass_would_not_repeat_run_once_and_are_named(
    layer: Any, why: str
) -> None:
    with pytest.warns(
        UserWarning, match=f"Layer odd cannot be recomputed exactly: .*{why}.* runs once"
    ):
        model = tb_memplugin.remat(with_layer(layer()), ["odd"])
    assert recomputed_calls(model) == [["first"]]
    model.compile("sgd", "mse")
    model.fit(X, X[:, :2], verbose=0)
    # AND where nothing else is left to recompute, they are refused
    with pytest.raises(RecomputationError, match="Layer odd cannot"):
        tb_memplugin.remat(with_layer(layer()), [("odd", "odd")])


def test_a_layer_of_a_subclassed_model_that_cannot_be_repeated_runs_once() -> None:
    class WithRandom(TwoSteps):
        def __init__(self) -> None:
            super().__init__()
            self.random = Random(name="odd")

        def call(self, inputs: Any, training: Any = None) -> Any:
            return super().call(self.random(inputs), training)

    model = WithRandom()
    model(X)
    recomputed = tb_memplugin.remat(model, ["a", "odd"])
    recomputed.compile("sgd", "mse")
    with pytest.warns(UserWarning, match="Layer odd cannot be recomputed exactly: .*RandomUniform"):
        recomputed.fit(X, X[:, :2], verbose=0)


@pytest.mark.parametrize(
    "words",
    [
        lambda: L.TextVectorization(output_sequence_length=3, vocabulary=["a", "b"], name="words"),
        lambda: L.StringLookup(vocabulary=["a", "b"], name="words"),
        lambda: L.Hashing(5, name="words"),
    ],
)
def test_layers_that_read_text_are_recomputed(words: Any) -> None:
    def make() -> Any:
        inputs = keras.Input((1,), dtype="string")
        tensor = L.Flatten(name="flat")(L.Embedding(5, 4, name="embedding")(words()(inputs)))
        return keras.Model(inputs, L.Dense(2)(L.Dense(6, "gelu", name="deep")(tensor)))

    same_gradients(make, [("words", "deep")], tf.constant([["a"], ["b"], ["c"]]))


def test_a_layer_that_is_built_by_its_first_call_is_refused_before() -> None:
    class Lazy(L.Layer):
        def __init__(self) -> None:
            super().__init__(name="lazy")
            self.inner = L.Dense(6, name="inner")

        def build(self, shape: Any) -> None:
            pass

        def call(self, inputs: Any) -> Any:
            return self.inner(inputs)

        def compute_output_spec(self, inputs: Any) -> Any:
            return keras.KerasTensor(inputs.shape, "float32")

    plain = with_layer(Lazy())
    with pytest.raises(
        RecomputationError,
        match=r"Layer inner cannot .*not "
        r"built\. "
        r"Call "
        r"the "
        r"model on a "
        r"batch "
        r"first",
    ):
        tb_memplugin.remat(plain, [("lazy", "lazy")])
    assert not plain.get_layer("lazy").inner.built
    plain(X)
    tb_memplugin.remat(plain, [("lazy", "lazy")])


def test_one_name_is_one_cut() -> None:
    assert recomputed_calls(tb_memplugin.remat(make_model(), "drop")) == [["first", "norm", "drop"]]


def test_xla_compiles_it_as_it_does_other_models() -> None:
    plain, model = make_model(), tb_memplugin.remat(make_model(), ["drop"])
    for arguments in ({}, {"jit_compile": True}, {"jit_compile": False}):
        for one in (plain, model):
            one.compile("sgd", "mse", **arguments)
        assert model.jit_compile is plain.jit_compile and model._jit_compile == plain._jit_compile


def test_a_layers_call_is_back_after_the_models_call_as_the_user_had_replaced_it_and_after_an_error() -> (
    None
):
    layer = keras.layers.Dense(2)
    layer.build((None, 3))
    with recomputing(layer, Segment([layer])):
        assert "call" in vars(layer)
    assert "call" not in vars(layer)
    layer.call = own = lambda inputs: inputs
    with pytest.raises(ZeroDivisionError), recomputing(layer, Segment([layer])):
        assert layer.call is not own
        raise ZeroDivisionError
    assert layer.call is own


def of(*segments: tuple[str, ...]) -> Any:
    return types.SimpleNamespace(segments=segments)


@pytest.mark.parametrize(
    ("make", "cuts", "said"),
    [
        (make_model, of(("first", "drop")), "norm lies between"),
        (make_model, of(("nowhere",)), "no layer 'nowhere'; in order: first"),
        (make_model, 3, r"Pass names of layers, pairs of names, or a plan\. Received: 3"),
        (lambda: "model", [], "Pass a model of Keras 3"),
        (make_subclassed, of(("a", "b")), "Layers a and b are one segment"),
        (make_subclassed, ["nowhere"], "no layer nowhere"),
        (TwoSteps, ["a"], "not built"),
    ],
)
def test_models_and_segments_that_cannot_be_recomputed_are_refused(
    make: Any, cuts: Any, said: str
) -> None:
    with pytest.raises(RecomputationError, match=said):
        tb_memplugin.remat(make(), cuts)


def test_only_dense_tensors_are_taken() -> None:
    segment = Segment([L.Dense(2, name="dense")])
    with pytest.raises(RecomputationError) as raised:
        segment.recompute(lambda tensors, after: tensors, [tf.ragged.constant([[1.0], [2.0]])])
    assert str(raised.value) == (
        "Layer dense cannot be recomputed exactly: it takes a RaggedTensor. Only dense tensors "
        "can be."
    )
