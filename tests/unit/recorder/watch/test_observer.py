"""What a recorder reads anew of the program from window to window."""

import gc
from collections.abc import Callable
from typing import Any

import keras
import pytest
import tensorflow as tf

from tb_memplugin.recorder.base import Faults
from tb_memplugin.recorder.watch import LayerWatch, observer
from tb_memplugin.schema import VariableFact

L = keras.layers
CPU = "CPU:0"


class Recompiled(keras.Model):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__(name="net")
        self.first, self.second = L.Dense(3, name="first"), L.Dense(2, name="second")
        self.dropout = L.Dropout(0.5)
        self.inner = keras.Sequential([L.Dense(3, name="inner")], name="block")
        self.later = L.Dense(1, name="later")  # built by a change

    def call(self, inputs: Any, training: bool = False) -> Any:
        return self.second(self.dropout(self.inner(self.first(inputs)), training=training))


def trained() -> Any:
    model = Recompiled()
    model.compile("adam", "mse")
    model.train_on_batch(tf.ones((1, 2)), tf.ones((1, 2)))
    return model


def recompile(model: Any) -> None:
    model.compile(keras.optimizers.SGD(momentum=0.9), "mse", metrics=["mae"])
    model.train_on_batch(tf.ones((1, 2)), tf.ones((1, 2)))


def add_layer(model: Any) -> None:
    model.inner.add(L.Dense(4, name="third"))
    model.inner.build((1, 3))


CHANGES: dict[str, Callable[[Any], object]] = {
    "another optimizer and metrics": recompile,
    "a frozen layer": lambda model: setattr(model.first, "trainable", False),
    "a frozen weight": lambda model: setattr(model.second.bias, "trainable", False),
    "another name": lambda model: setattr(model.second, "name", "renamed"),
    "a new layer": add_layer,
    "new weights": lambda model: model.later.build((None, 2)),
}


def facts(watch: LayerWatch) -> tuple[set[VariableFact], dict[str, bool]]:
    watch.begin_window()
    found = watch.end_window(CPU)
    watch.close_window()
    return set(found.variables), dict(found.trainable)


@pytest.mark.parametrize("change", CHANGES)
def test_variables_are_read_anew_only_after_a_change(
    monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    model, made = trained(), list[int]()

    class Counted(observer.Variables):
        def __init__(self, *args: Any) -> None:
            made.append(1)
            super().__init__(*args)

    def watched() -> LayerWatch:
        watch = LayerWatch(Faults(print))
        watch.watch(model, model.optimizer)
        watch.changed_table(0)
        return watch

    gc.collect()  # models of earlier tests
    watch = watched()
    first = facts(watch)
    facts(watch)
    monkeypatch.setattr(observer, "Variables", Counted)
    assert facts(watch) == first and not made
    CHANGES[change](model)
    # a Sequential leaves the function that it was before; a recorder that begins now never saw it
    gc.collect()
    assert facts(watch)[1].keys() >= first[1].keys() - {"net/second"} and made
    # AND the facts are those of a recorder that begins now
    assert facts(watch) == facts(watched())


def test_a_table_that_waits_to_be_written_has_the_sizes_that_are_learnt_meanwhile() -> None:
    model = keras.Sequential([keras.Input((5,)), L.Dense(3, name="a"), L.Dense(2, name="b")])
    model.compile("sgd", "mse")
    watch = LayerWatch(Faults(print))
    watch.watch(model, model.optimizer)
    waits = watch.changed_table(0)
    assert waits is not None and {layer.output_bytes for layer in waits.layers} == {None}
    watch.batch_size = 16  # as the analysis of an earlier step ends
    learnt, written = watch.completed_table(), watch.completed(waits)
    assert learnt == written
    sizes = {layer.path.split("/")[-1]: layer.output_bytes for layer in written.layers}
    assert (sizes["a"], sizes["b"]) == (16 * 3 * 4, 16 * 2 * 4)
    assert watch.completed_table() is None
