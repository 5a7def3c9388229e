"""An odd object of the program costs itself only: the layers and variables beside it are read."""

from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tb_memplugin.recorder.base import Faults
from tb_memplugin.recorder.heap import SourceLines
from tb_memplugin.recorder.watch import LayerWatch, hooks
from tb_memplugin.recorder.watch.batches import BatchNotes
from tb_memplugin.recorder.watch.datasets import DatasetCaches
from tb_memplugin.recorder.watch.layer_table import build_layer_table


class NoInit(tf.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        self.v = tf.Variable(1.0)


class Raises(tf.Module):  # type: ignore[misc]
    @property
    def variables(self) -> Any:
        raise ValueError("no variables before the first call")


class Method(tf.Module):  # type: ignore[misc]
    def variables(self) -> Any:
        return []


class Equal(tf.Module):  # type: ignore[misc]
    def __eq__(self, other: object) -> Any:  # and so no hash
        raise ValueError("compared")

    def __len__(self) -> int:
        raise ValueError("counted")

    __bool__ = __len__  # type: ignore[assignment]


class Anything(tf.Module):  # type: ignore[misc]
    def __getattr__(self, name: str) -> Any:
        return [self]


class Endless(tf.Module):  # type: ignore[misc]
    @property
    def variables(self) -> Any:
        while True:
            yield 1


kept: list[Any] = []


@pytest.mark.parametrize("kind", [NoInit, Raises, Method, Equal, Anything, Endless])
def test_the_layers_beside_an_odd_module_are_read(kind: type) -> None:
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4, name="a")], name="net")
    notes: list[str] = []
    kept[:] = [kind(), model]
    try:
        watch = LayerWatch(Faults(notes.append))
        watch.watch(model)
        watch.changed_table(0)
        watch.begin_window()
        facts = watch.end_window("CPU:0")
    finally:
        kept.clear()
    assert [
        one.layer for one in facts.variables if one.role == "weights" and one.layer == "net/a"
    ] == ["net/a"] * 2
    assert not [note for note in notes if "stopped" in note]


class OddError(BaseException):
    """What no ``except Exception`` catches."""


def raises(this: Any, *arguments: Any) -> Any:
    raise OddError


class Plain:
    pass


def turned(thing: Any, *names: str) -> Any:
    """An object that raises from now on when it is asked for an attribute."""
    thing.__class__ = type("Odd", (type(thing),), {name: property(raises) for name in names})
    return thing


def rows() -> Any:
    return tf.data.Dataset.from_tensor_slices(np.zeros((8, 3), np.float32))


def test_the_arguments_beside_an_odd_one_are_the_batch() -> None:
    notes = BatchNotes()
    notes.begin([turned(keras.Sequential(), "distribute_strategy", "loss"), object()])
    odd = turned(Plain(), "shape", "assign", "_iterator_resource")
    notes.given([(odd, tf.ones((4, 3)), turned(rows(), "element_spec", "_inputs")), {}])
    assert notes.end().components == (((4, 3), "float32"),)
    # AND a function with an odd argument runs as without notes
    hooks.acquire()
    try:
        assert tf.function(lambda odd, x: x + 1)(odd, tf.constant(1)) == 2
    finally:
        hooks.release()


def test_the_caches_beside_an_odd_data_set_are_known() -> None:
    odd, known = rows().batch(2), DatasetCaches()
    several = tf.data.Dataset.zip(odd, rows().cache(), rows().batch(2).cache())
    turned(odd, "element_spec")._inputs = lambda: raises(odd)
    known.iterated(SimpleNamespace(_dataset=several))
    assert known.now()[0] == 2


def test_the_layers_beside_an_odd_variable_optimizer_and_output_are_in_the_table() -> None:
    layers = [keras.layers.Dense(4, name=name) for name in ("odd", "plain")]
    model = keras.Sequential([keras.Input((8,)), *layers], name="net")
    turned(layers[0].kernel, "shape", "dtype", "trainable")
    del layers[0].kernel.__dict__["_shape"]
    layers[0]._inbound_nodes[0].outputs = [turned(Plain(), "shape")]
    optimizer = turned(keras.optimizers.SGD(momentum=0.9), "variables", "iterations")
    optimizer.__dict__["_index_dict"] = object()
    table = build_layer_table(model, optimizer, step=0, previous=None)
    plain = next(layer for layer in table.layers if layer.path == "net/plain")
    assert (plain.parameters, plain.weight_bytes, plain.output_shape) == (20, 80, (-1, 4))


def test_a_layer_that_cannot_be_hashed_has_a_line_or_none() -> None:
    layer = keras.layers.Dense(4)
    layer.__class__ = type(
        "Odd", (keras.layers.Dense,), {"__eq__": raises, "name": property(raises)}
    )
    assert SourceLines().calling(layer) is not None
