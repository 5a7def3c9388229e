"""An odd object of the program costs itself only: the layers and variables beside it are read."""

from typing import Any

import keras
import pytest
import tensorflow as tf

from tb_memplugin.recorder.base import Faults
from tb_memplugin.recorder.watch import LayerWatch


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
