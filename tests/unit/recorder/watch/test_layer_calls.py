"""What is noted of calls of layers, tapes and optimizers while TensorFlow traces a function, and eagerly."""

import contextlib
import functools
import gc
import operator
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tb_memplugin.recorder.watch import wrappers
from tb_memplugin.recorder.watch.batches import batch_notes
from tb_memplugin.recorder.watch.notes import call_notes, input_notes
from tb_memplugin.recorder.watch.wrappers import hooks

X = tf.ones((4, 3))


@pytest.fixture(autouse=True)
def observed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(batch_notes, "failed", None)
    hooks.acquire()
    yield
    hooks.release()


@pytest.fixture
def window(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the spans on the profile's timeline while a window is open."""
    names: list[str] = []

    @contextlib.contextmanager
    def trace(name: str) -> Iterator[None]:
        names.append(name.removeprefix("tb_memplugin/layer:"))
        yield
        names.append("end")

    monkeypatch.setattr(tf.profiler.experimental, "Trace", trace)
    monkeypatch.setattr(call_notes, "eager_paths", {})
    monkeypatch.setattr(call_notes, "eager_gradients", [])
    return names


class Outer(keras.layers.Layer):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__(name="outer")
        self.inner = keras.layers.Dense(2, name="inner")

    def build(self, shape: Any) -> None:
        self.inner.build(shape)
        super().build(shape)

    def call(self, x: Any) -> Any:
        return self.inner(x)


def built() -> Outer:
    layer = Outer()
    layer.build((None, 3))
    return layer


def traced(function: Any) -> tuple[Any, Any]:
    """The concrete function and the notes on its graph."""
    concrete = tf.function(function).get_concrete_function()
    return concrete, call_notes.graphs.get(concrete.graph)


def test_each_call_has_the_ops_that_it_made() -> None:
    layer, optimizer = built(), keras.optimizers.SGD()
    optimizer.build(layer.trainable_variables)

    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(X))
        optimizer.apply(tape.gradient(loss, layer.trainable_variables), layer.trainable_variables)
        return loss

    calls = call_notes.traced_calls
    concrete, notes = traced(step)
    assert call_notes.traced_calls == calls + 4
    ops = concrete.graph.get_operations()
    found = {(one.kind, None if one.layer is None else one.layer().name): one for one in notes.spans}
    assert set(found) == {("layer", "inner"), ("layer", "outer"), ("backward", None), ("update", None)}
    inner, outer = found["layer", "inner"], found["layer", "outer"]
    assert (outer.depth, inner.depth) == (0, 1)
    assert outer.start <= inner.start < inner.end <= outer.end
    assert "MatMul" in [op.type for op in ops[inner.start : inner.end]]
    backward, update = found["backward", None], found["update", None]
    assert outer.end <= backward.start < backward.end <= update.start < update.end
    # AND the outermost layer is known, and the optimizer that made an update
    assert layer in call_notes.outermost_layers and layer.inner not in call_notes.outermost_layers
    assert optimizer in call_notes.optimizers and call_notes.of_thread.stack == []


def test_gradients_are_noted_with_their_variables() -> None:
    layer, table = built(), tf.Variable(tf.ones((5, 2)))

    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, [1, 1])) + 0 * tf.reduce_sum(layer.inner.bias.value)
        unused = layer.inner.kernel.value
        tape.gradient(loss, {"b": unused, "a": (table, layer.inner.bias.value)})
        return loss

    concrete, notes = traced(step)
    names = [(reference() is table, reference() is layer.inner.bias.value) for _, _, reference in notes.gradients]
    # THEN a sparse one has two tensors, and a missing one none
    assert names == [(True, False), (True, False), (False, True)]
    assert all(name in {op.name for op in concrete.graph.get_operations()} for name, _, _ in notes.gradients)


@pytest.mark.parametrize("given", [True, False])
def test_an_optimizer_reads_generators_once(given: bool) -> None:
    layer, optimizer = built(), keras.optimizers.SGD(1.0)
    variables = layer.trainable_variables
    optimizer.build(variables)

    def step() -> None:
        optimizer.apply((tf.ones(one.shape) for one in variables), (one for one in variables) if given else None)

    before = layer.inner.kernel.numpy()
    concrete, notes = traced(step)
    concrete()
    np.testing.assert_allclose(layer.inner.kernel.numpy(), before - 1)
    noted = [reference() for _, _, reference in notes.gradients]
    assert len(noted) == 2 and all(map(operator.is_, noted, variables))


def test_a_call_that_fails_ends_and_its_batch_is_noted() -> None:
    class Failing(keras.layers.Layer):  # type: ignore[misc]
        def call(self, x: Any) -> Any:
            raise RuntimeError

    with pytest.raises(RuntimeError):
        Failing()(tf.ones((9, 3)))
    assert batch_notes.failed is not None and batch_notes.failed.size == 9
    assert input_notes.begin() is True
    input_notes.end(True)
    with pytest.raises(RuntimeError):
        tf.function(lambda: Failing()(X))()
    assert call_notes.of_thread.stack == []


def test_arguments_of_outermost_calls_are_data_and_their_results_are_not() -> None:
    class Named(keras.layers.Layer):  # type: ignore[misc]
        def call(self, x: Any, original: Any) -> Any:
            return x + original

    x, y = tf.ones((4, 3)), tf.ones((4, 3))
    result = Named()(x, original=y)  # an argument may have any name
    assert input_notes.is_input(x) and input_notes.is_input(y) and not input_notes.is_input(result)
    assert tf.function(lambda original: original + 1)(original=1) == 2


def test_layers_that_the_backward_pass_calls_again_are_recomputed() -> None:
    layer, other = built(), built()

    def step(*, again: bool) -> Any:
        call = tf.recompute_grad(lambda x: layer(x)) if again else layer
        with tf.GradientTape() as tape:
            tape.watch(X)
            loss = tf.reduce_sum(call(X)) + tf.reduce_sum(other(X))
        return tape.gradient(loss, X)

    kept = [traced(functools.partial(step, again=True))]
    assert call_notes.recomputed.get(layer) is False and other not in call_notes.recomputed
    # AND no more once a function of it is traced without that
    kept.append(traced(functools.partial(step, again=False)))
    assert layer not in call_notes.recomputed
    # AND a recomputation that changes nothing is told apart
    assert wrappers._without_effect() is False
    with keras.StatelessScope():
        assert wrappers._without_effect() is True


def test_after_the_last_observer_nothing_is_noted() -> None:
    layer = built()
    hooks.release()
    concrete, notes = traced(lambda: layer(X))
    assert notes is None and layer not in call_notes.outermost_layers
    hooks.acquire()
    del concrete


# --- eager calls ------------------------------------------------------------------------------------------------------


def test_eager_calls_are_spans_while_a_window_is_open(window: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    layer, lines = built(), iter(["train.py:7", None])
    monkeypatch.setattr(call_notes, "eager_paths", {id(layer): "net/outer"})
    layer(X)
    assert window == ["net/outer", "end"]  # and none of a layer that is not known
    # AND they have the user's line, if that is known
    monkeypatch.setattr(call_notes, "eager_lines", SimpleNamespace(calling=lambda layer: next(lines)))
    layer(X)
    layer(X)
    assert window[2:] == ["net/outer\x1ftrain.py:7", "end", "net/outer", "end"]


@pytest.mark.parametrize("persistent", [False, True])
def test_eager_backward_passes_and_updates_are_spans(window: list[str], persistent: bool) -> None:
    weight, optimizer = tf.Variable([1.0, 2.0]), keras.optimizers.SGD()
    with tf.GradientTape(persistent=persistent) as tape:
        loss = tf.reduce_sum(weight * weight)
    gradient = tape.gradient(loss, weight)
    assert len(window) == 2 and (window[0] == "(backward)") is not persistent
    # AND the gradient's place is noted
    ((address, size, reference),) = call_notes.eager_gradients  # type: ignore[misc]
    assert address == np.from_dlpack(gradient).ctypes.data and size == 8 and reference() is weight
    del window[:]
    kernel = keras.Variable(1.0)
    optimizer.build([kernel])
    optimizer.apply([tf.constant(1.0)], [kernel])
    assert window == ["(update)", "end"]


def test_outside_of_a_window_no_gradient_is_noted(window: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    weight = tf.Variable(1.0)
    for name in ("eager_paths", "eager_gradients"):
        with monkeypatch.context() as closed:
            kept = call_notes.eager_gradients
            closed.setattr(call_notes, name, None)
            with tf.GradientTape() as tape:
                loss = weight * weight
            assert float(tape.gradient(loss, weight)) == 2.0
            assert kept == []


def test_notes_go_with_their_graph() -> None:
    layer = built()
    concrete, notes = traced(lambda: layer(X))
    call_notes.forget(concrete.graph)
    assert concrete.graph not in call_notes.graphs and notes.spans
    reference = weakref.ref(concrete.graph)
    del concrete
    gc.collect()
    assert reference() is None
