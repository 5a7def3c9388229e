"""The tree of a model's layers or of a module's parts, the weights of each, and the layer table, from real models."""

import gc
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tb_memplugin.recorder.watch import variables_of
from tb_memplugin.recorder.watch.layers import (
    build_layer_table,
    call_notes,
    own_variables,
    signature,
    slots,
    variable_bytes,
    walk,
)

L = keras.layers


class Dense(tf.Module):  # type: ignore[misc]
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = tf.Variable(tf.ones(size))
        self.fixed = tf.Variable(tf.ones(1), trainable=False)


class Mlp(tf.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__(name="mlp")
        self.layers = [Dense(2), Dense(3)]
        self.head = {"out": Dense(4)}
        self.inner = L.Dense(5)
        self.inner.build((None, 2))


def paths(model: Any) -> list[str]:
    return [node.path for node in walk(model)]


def test_layers_are_walked_in_order_without_inputs_and_modules_by_their_attributes() -> None:
    inner = keras.Sequential([keras.Input((4,)), L.Dense(3, name="a"), L.Dense(3, name="b")], name="inner")
    model = keras.Sequential([keras.Input((4,)), inner, L.Dense(2, name="head")], name="net")
    assert paths(model) == ["net", "net/inner", "net/inner/a", "net/inner/b", "net/head"]
    found = list(dict.fromkeys(paths(Mlp())))
    assert found == ["mlp", "mlp/head/out", "mlp/inner", "mlp/layers/0", "mlp/layers/1"]


def test_a_shared_layer_is_walked_once_and_siblings_of_one_name_are_numbered() -> None:
    class Model(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(name="net")
            shared = L.Dense(2, name="shared")
            self.first = keras.Sequential([shared], name="block")
            self.second = keras.Sequential([L.Dense(2, name="own"), shared], name="block")
            self.third = keras.Sequential([], name="block")

    found = paths(Model())
    assert found == ["net", "net/block", "net/block/shared", "net/block#2", "net/block#2/own", "net/block#3"]


@pytest.mark.parametrize("backbone_first", [True, False])
@pytest.mark.parametrize("nested", [True, False])
def test_layers_shared_by_sub_models_own_their_weights(backbone_first: bool, nested: bool) -> None:
    """A feature extractor over a backbone's layers tracks them as well, wherever their node is."""
    inputs = keras.Input((8,))
    layers = [L.Dense(4, name="c1"), L.Dense(5, name="c2")]
    outputs = [inputs]
    for layer in [keras.Sequential(layers, name="block")] if nested else layers:
        outputs.append(layer(outputs[-1]))
    backbone = keras.Model(inputs, L.Dense(2, name="top")(outputs[-1]), name="backbone")
    features = keras.Model(backbone.inputs, outputs[1:], name="features")

    class Segmenter(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(name="net")
            parts = {"backbone": backbone, "features": features}
            for name in sorted(parts, reverse=not backbone_first):
                setattr(self, name, parts[name])
            self.head = L.Dense(3, name="head")

    model = Segmenter()
    model.head.build((None, 5))
    found = {path.rpartition("/")[2]: sum(sizes(own)) for path, own in own_variables(walk(model)).items()}
    expected = {"net": 0, "backbone": 0, "features": 0, "c1": 36, "c2": 25, "top": 12, "head": 18}
    assert found == expected | ({"block": 0} if nested else {})
    assert sum(found.values()) == sum(sizes(model.weights))


def sizes(variables: Any) -> list[int]:
    return [int(np.prod(variable.shape)) for variable in variables]


def test_weights_of_a_module_are_its_variables_and_those_of_its_layers_once() -> None:
    module = Mlp()
    module.again = module.inner
    assert sorted(sizes(variables_of(module, "weights"))) == [1, 1, 1, 2, 3, 4, 5, 10]
    assert sorted(sizes(variables_of(module, "trainable_weights"))) == [2, 3, 4, 5, 10]
    found = own_variables(walk(module))
    assert sorted(sizes(found["mlp/layers/1"])) == [1, 3] and found["mlp"] == []

    class Unbuilt:
        @property
        def weights(self) -> list[Any]:
            raise ValueError("it is not built")

    assert variables_of(Unbuilt(), "weights") == []


@pytest.mark.parametrize("shape", [(), (3,), (2, 5)])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "int64", "bool", "uint16"])
def test_bytes_of_a_variable_are_those_of_its_values(shape: tuple[int, ...], dtype: str) -> None:
    values = np.zeros(shape, dtype)
    assert variable_bytes(tf.Variable(values)) == values.nbytes
    assert variable_bytes(keras.Variable(values, dtype=dtype, trainable=False)) == values.nbytes
    # AND types that numpy does not know have their size
    for name, size in (("bfloat16", 2), ("float8_e4m3fn", 1), ("float8_e5m2", 1)):
        assert variable_bytes(SimpleNamespace(shape=shape, dtype=name)) == values.size * size


def test_reading_weights_leaves_no_garbage() -> None:
    """Garbage that refers to weights keeps a dropped model until a collection of old objects."""
    model = keras.Sequential([keras.Input((2,)), L.Dense(3), L.Dense(4)])
    own_variables(walk(model))  # what is made once
    gc.collect()
    gc.disable()
    try:
        assert len(own_variables(walk(model))) == 3
        assert gc.collect() == 0
    finally:
        gc.enable()


def built(optimizer: Any, *shapes: tuple[int, ...]) -> list[Any]:
    """The weights of an optimizer that is built for them."""
    weights = [keras.Variable(np.zeros(shape, np.float32), name=f"w{at}") for at, shape in enumerate(shapes)]
    optimizer.build(weights)
    return weights


@pytest.mark.parametrize(
    ("optimizer", "shapes", "served"),
    [
        (lambda: keras.optimizers.Adam(), ((3, 2), (5,)), [2, 2]),
        (lambda: keras.optimizers.SGD(momentum=0.9), ((3,),), [1]),
        # Averages and accumulated gradients.
        (lambda: keras.optimizers.SGD(use_ema=True, gradient_accumulation_steps=4), ((3, 2), (5,)), [2, 2]),
        # As many variables of the optimizer as weights: their own list is parallel to that of the weights, too.
        (lambda: keras.optimizers.SGD(), ((3,), (4,)), [0, 0]),
        # Rows and columns of matrices, placeholders for vectors.
        (lambda: keras.optimizers.Adafactor(), ((8, 6), (5,)), [3, 3]),
        (lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam()), ((3,),), [2]),
    ],
)
def test_slots_serve_their_weights_and_scalars_serve_none(optimizer: Any, shapes: Any, served: list[int]) -> None:
    made = optimizer()
    weights = built(made, *shapes)
    found = slots(made, weights)
    assert [sum(slot.of is weight for slot in found) for weight in weights] == served
    assert sum(slot.of is not None for slot in found) == sum(served)
    assert not any(slot.variable is weight for slot in found for weight in weights)
    # AND all variables of the optimizer are found, each once
    keys = [id(slot.variable) for slot in found]
    assert len(set(keys)) == len(keys) and {id(variable) for variable in made.variables} <= set(keys)


def test_placeholders_that_an_optimizer_does_not_list_serve_their_weights() -> None:
    # GIVEN Adafactor as some versions of Keras have it: placeholders for vectors, which its variables leave out
    weights = [keras.Variable(np.zeros(shape, np.float32)) for shape in ((8, 6), (5,))]
    rows = keras.Variable(np.zeros(8, np.float32))
    optimizer = SimpleNamespace(
        variables=[rows], _variables=[rows], _trainable_variables=weights, _r=[rows, keras.Variable(0.0)]
    )
    # THEN no other object in a list of this length is taken for one, nor are the weights themselves
    others = {"names": ["first", "second"], "same": list(weights), "constants": [SimpleNamespace(value=1)] * 2}
    for more in ({}, others):
        vars(optimizer).update(more)
        found = [(slot.variable is rows, slot.of) for slot in slots(optimizer)]
        assert found == [(True, weights[0]), (False, weights[1])]


def test_a_distributed_variable_of_keras_2_has_the_key_of_its_container() -> None:
    container, plain = SimpleNamespace(_unique_id="dense_1"), SimpleNamespace(_unique_id="dense_2")
    weight = SimpleNamespace(_unique_id="dense_1_replica_0", _distributed_container=lambda: container)
    made = [SimpleNamespace(), SimpleNamespace()]
    keys = {"dense_1": {"momentum": made[0]}, "dense_2": {"momentum": made[1]}}
    found = slots(SimpleNamespace(variables=made, _slots=keys), [weight, plain])
    assert [
        slot.variable is one and slot.of is of for slot, one, of in zip(found, made, (weight, plain), strict=True)
    ] == [True] * 2


def test_a_recomputed_layer_makes_a_new_table_that_says_so_and_one_of_another_model_none() -> None:
    model, other = (keras.Sequential([keras.Input((4,)), L.Dense(2, name="dense")], name="net") for _ in range(2))
    before, table = signature(model, None), build_layer_table(model, None, step=0, previous=None)
    call_notes.recomputed[other.layers[0]] = True
    assert signature(model, None) == before
    call_notes.recomputed[model.layers[0]] = False
    assert signature(model, None) != before
    table = build_layer_table(model, None, step=1, previous=table)
    assert table.reason == "dense runs again in the backward pass"
    assert [layer.recomputed for layer in table.layers] == [None, "anew"]


def test_neighbors_between_cut_points_have_consecutive_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = [L.Dense(4, name="first"), L.Dropout(0.1, name="drop"), L.Dense(2, name="last")]
    model, module = keras.Sequential([keras.Input((8,)), *layers], name="net"), Mlp()

    def made(*arguments: Any, **keywords: Any) -> None:
        raise AssertionError("a model or an input was made: it would count among the program's and take a name")

    monkeypatch.setattr(keras.Model, "__init__", made)
    monkeypatch.setattr(keras, "Input", made)
    table = build_layer_table(model, None, step=0, previous=None)
    first, drop = (layer.unit for layer in table.layers if layer.path in ("net/first", "net/drop"))
    assert first is not None and drop == first + 1
    # AND a model without a layer graph has none
    table = build_layer_table(module, None, step=0, previous=None)
    assert {layer.unit for layer in table.layers} == {None}
