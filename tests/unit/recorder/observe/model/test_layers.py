"""The tree of a model's layers or of a module's parts, and the weights of each, from real models."""

import gc
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tb_memplugin.recorder.observe.model.layers import (
    children,
    is_layer,
    is_module,
    own_variables,
    variable_bytes,
    variables_of,
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


def test_layers_are_walked_in_order_without_inputs() -> None:
    inner = keras.Sequential([keras.Input((4,)), L.Dense(3, name="a"), L.Dense(3, name="b")], name="inner")
    model = keras.Sequential([keras.Input((4,)), inner, L.Dense(2, name="head")], name="net")
    assert paths(model) == ["net", "net/inner", "net/inner/a", "net/inner/b", "net/head"]


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


def test_modules_are_walked_by_their_attributes() -> None:
    found = dict.fromkeys(paths(Mlp()))
    assert list(found) == ["mlp", "mlp/head/out", "mlp/inner", "mlp/layers/0", "mlp/layers/1"]


def test_layers_and_modules_are_told_apart() -> None:
    layer, module = L.Dense(2), Dense(2)
    assert [(is_layer(one), is_module(one)) for one in (layer, module, object())] == [
        *((True, False), (False, True), (False, False)),
    ]
    assert [name for name, _ in children(keras.Sequential([L.Dense(2, name="a")]))] == ["a"]


def test_each_weight_is_owned_by_the_innermost_layer() -> None:
    class Block(L.Layer):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(name="block")
            self.dense = L.Dense(3, name="dense")
            self.scale = self.add_weight(shape=(7,), name="scale")

        def call(self, x: Any) -> Any:
            return self.dense(x)

    block = Block()
    block(tf.ones((1, 2)))
    found = own_variables(walk(block))
    assert {path: [tuple(weight.shape) for weight in weights] for path, weights in found.items()} == {
        "block": [(7,)],
        "block/dense": [(2, 3), (3,)],
    }


@pytest.mark.parametrize("backbone_first", [True, False])
@pytest.mark.parametrize("nested", [True, False])
def test_layers_shared_by_sub_models_own_their_weights(backbone_first: bool, nested: bool) -> None:
    """A feature extractor over a backbone's layers tracks them as well, wherever their node is."""
    inputs = keras.Input((8,))
    block = keras.Sequential([L.Dense(4, name="c1"), L.Dense(5, name="c2")], name="block")
    layers = [block] if nested else [L.Dense(4, name="c1"), L.Dense(5, name="c2")]
    outputs = [inputs]
    for layer in layers:
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
    found = {path: sum(int(np.prod(one.shape)) for one in own) for path, own in own_variables(walk(model)).items()}
    sizes = {path.rpartition("/")[2]: size for path, size in found.items()}
    assert sizes == {"net": 0, "backbone": 0, "features": 0, "c1": 36, "c2": 25, "top": 12, "head": 18} | (
        {"block": 0} if nested else {}
    )
    assert sum(found.values()) == sum(int(np.prod(weight.shape)) for weight in model.weights)


def test_weights_of_a_module_are_its_variables_and_those_of_its_layers_once() -> None:
    module = Mlp()
    module.again = module.inner
    sizes = [int(np.prod(variable.shape)) for variable in variables_of(module, "weights")]
    assert sorted(sizes) == [1, 1, 1, 2, 3, 4, 5, 10]
    trained = [int(np.prod(variable.shape)) for variable in variables_of(module, "trainable_weights")]
    assert sorted(trained) == [2, 3, 4, 5, 10]
    found = own_variables(walk(module))
    assert [int(np.prod(variable.shape)) for variable in found["mlp/layers/1"]] in ([3, 1], [1, 3])
    assert found["mlp"] == []


def test_a_model_without_weights_yet_has_none() -> None:
    class Unbuilt:
        @property
        def weights(self) -> list[Any]:
            raise ValueError("it is not built")

    assert variables_of(Unbuilt(), "weights") == []
    layer = L.Dense(2)
    layer.build((None, 3))
    assert variables_of(layer, "weights") == layer.weights


@pytest.mark.parametrize("shape", [(), (3,), (2, 5)])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "int64", "bool", "uint16"])
def test_bytes_of_a_variable_are_those_of_its_values(shape: tuple[int, ...], dtype: str) -> None:
    values = np.zeros(shape, dtype)
    assert variable_bytes(tf.Variable(values)) == values.nbytes
    assert variable_bytes(keras.Variable(values, dtype=dtype, trainable=False)) == values.nbytes


@pytest.mark.parametrize(("dtype", "size"), [("bfloat16", 2), ("float8_e4m3fn", 1), ("float8_e5m2", 1)])
def test_types_that_numpy_does_not_know_have_their_size(dtype: str, size: int) -> None:
    class Weight:
        shape = (6,)

    Weight.dtype = dtype  # type: ignore[attr-defined]
    assert variable_bytes(Weight()) == 6 * size


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
