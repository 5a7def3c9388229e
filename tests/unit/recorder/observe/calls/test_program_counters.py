"""How often functions are traced and compiled, and why: read from real functions of TensorFlow."""

from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from tb_memplugin.recorder.observe.calls import program_counters as function_traces
from tb_memplugin.recorder.observe.calls.program_counters import (
    FunctionTraces,
    TracedFunction,
    changed_argument,
    shape_text,
    traces_of,
)


class Pair(NamedTuple):
    left: Any
    right: Any


def types_of(first: dict[str, Any], second: dict[str, Any], function: Any = None) -> list[Any]:
    """The types of a function that is traced for two sets of arguments."""
    made = tf.function(function or (lambda **arguments: None))
    return [made.get_concrete_function(**arguments).function_type for arguments in (first, second)]


def many(size: int) -> dict[str, Any]:
    return {"x": [tf.ones(2)] * size}


X = tf.ones((2, 3))


@pytest.mark.parametrize(
    ("first", "second", "phrase"),
    [
        ({"x": X}, {"x": tf.ones((4, 3))}, "the shape of argument `x` changed from (2, 3) to (4, 3)"),
        ({"x": X}, {"x": tf.ones(2)}, "the shape of argument `x` changed from (2, 3) to (2,)"),
        ({"x": X}, {"x": tf.ones((2, 3), tf.int32)}, "the dtype of argument `x` changed from float32 to int32"),
        ({"x": 1}, {"x": 2.5}, "argument `x` changed from 1 to 2.5 (Python value)"),
        ({"x": True}, {"x": None}, "argument `x` changed from True to None (Python value)"),
        ({"x": "Ann"}, {"x": "Bob"}, "argument `x` changed its value (Python str)"),
        ({"x": 1}, {"x": X}, "argument `x` changed its type"),
        ({"x": X}, {"x": X, "y": X}, "argument `y` is new"),
        ({"x": X, "y": X}, {"x": X}, "argument `y` is gone"),
        ({"x": (X, tf.ones(2))}, {"x": (X, tf.ones(5))}, "the shape of argument `x[1]` changed from (2,) to (5,)"),
        ({"x": [X, 1]}, {"x": [X, 2]}, "argument `x[1]` changed from 1 to 2 (Python value)"),
        (many(1), many(3), "argument `x` changed from 1 to 3 items"),
        ({"x": {"a": X}}, {"x": {"a": tf.ones(1)}}, "the shape of argument `x['a']` changed from (2, 3) to (1,)"),
        ({"x": {"a": X}}, {"x": {"b": X}}, "argument `x` changed from 1 to 1 items"),
        ({"x": Pair(X, X)}, {"x": Pair(X, tf.ones(1))}, "the shape of argument `x[1]` changed from (2, 3) to (1,)"),
        ({"x": X, "y": 1}, {"x": X, "y": 2}, "argument `y` changed from 1 to 2 (Python value)"),
        ({"x": X}, {"x": X}, None),
    ],
)
def test_the_first_argument_that_changed_is_named(
    first: dict[str, Any], second: dict[str, Any], phrase: str | None
) -> None:
    assert changed_argument(*types_of(first, second)) == phrase


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        (None, "unknown"),
        (tf.TensorShape(None), "unknown"),
        (tf.TensorShape([]), "()"),
        (tf.TensorShape([None]), "(?,)"),
        ((32,), "(32,)"),
        (tf.TensorShape([None, 8]), "(?, 8)"),
    ],
)
def test_shapes_have_marks_for_unknown_dimensions(shape: Any, text: str) -> None:
    assert shape_text(shape) == text


@pytest.mark.parametrize(("value", "text"), [("x" * 38, f"'{'x' * 38}'"), ("x" * 39, f"'{'x' * 38}…")])
def test_long_keys_are_cut(value: str, text: str) -> None:
    assert function_traces._text(value) == text


# --- counts -----------------------------------------------------------------------------------------------------------


def call(traces: FunctionTraces, function: Any, *args: Any, **kwargs: Any) -> None:
    """Call a function as the wrapper of its calls does."""
    before = traces_of(function)
    function(*args, **kwargs)
    traces.called(function, before, args, kwargs)


def only(traces: FunctionTraces) -> TracedFunction:
    (found,) = traces.functions.values()
    return found


def test_traces_are_counted_with_their_reason() -> None:
    def double(x: Any) -> Any:
        return 2 * x

    traces, function = FunctionTraces(), tf.function(double)
    call(traces, function, tf.ones(2))
    found = only(traces)
    assert (found.name, found.traces, found.retraced, found.signatures) == ("double", 1, None, 0)
    assert traces.changed
    traces.changed = False
    call(traces, function, tf.ones(2))
    assert not traces.changed and found.traces == 1
    call(traces, function, tf.ones((2, 2)))
    assert (found.traces, found.retraced) == (2, "the shape of argument `x` changed from (2,) to (2, 2)")
    # AND a function that is made anew from the same code is the same one
    call(traces, tf.function(double), tf.ones(2))
    assert (found.traces, found.retraced) == (3, "it was a new tf.function object") and len(traces.functions) == 1


def test_a_function_that_was_traced_before_counts_its_new_traces() -> None:
    function = tf.function(lambda x: x)
    function(1)
    function(2)
    traces = FunctionTraces()
    call(traces, function, 3)
    assert only(traces).traces == 1 and only(traces).retraced == "argument `x` changed from 2 to 3 (Python value)"


@pytest.mark.parametrize(("before", "after", "count"), [(0, 1, 1), (0, 2, 1), (3, 5, 2)])
def test_a_first_call_that_makes_variables_traces_twice_and_counts_once(before: int, after: int, count: int) -> None:
    traces, function = FunctionTraces(), Compiled()
    function._jit_compile = None
    function.experimental_get_tracing_count = lambda: after  # type: ignore[method-assign]
    function._function_cache = SimpleNamespace(values=list)  # type: ignore[attr-defined]
    traces.called(function, before, (), {})
    assert only(traces).traces == count


def test_callable_objects_are_known_by_their_class() -> None:
    class Step:
        def __call__(self, x: Any) -> Any:
            return x

    traces = FunctionTraces()
    function = tf.function(Step())
    call(traces, function, 1)
    call(traces, function, 2)
    assert only(traces).traces == 2 and only(traces).name in ("Step", "__call__")


def test_an_object_that_is_no_function_raises_nothing() -> None:
    traces = FunctionTraces()
    traces.called(object(), 0, (), {})
    assert traces.functions == {} and traces_of(object()) == 0


def test_functions_beyond_the_first_ones_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function_traces, "MAX_FUNCTIONS", 2)
    traces = FunctionTraces()
    for function in (lambda x: x + 1, lambda x: x + 2, lambda x: x + 3):
        call(traces, tf.function(function), 1)
    assert len(traces.functions) == 2


class Compiled:
    """A function that XLA compiles, as far as calls of it show."""

    _jit_compile: bool | None = True

    def __init__(self) -> None:
        self._python_function = self.step

    def step(self) -> None:
        pass

    def experimental_get_tracing_count(self) -> int:
        return 1


def signatures(
    *calls: tuple[tuple[Any, ...], dict[str, Any]], jit_compile: bool | None = True
) -> TracedFunction | None:
    traces, function = FunctionTraces(), Compiled()
    function._jit_compile = jit_compile
    for args, kwargs in calls:
        traces.called(function, 1, args, kwargs)
    return next(iter(traces.functions.values()), None)


def test_a_compiled_function_has_a_signature_for_each_shape() -> None:
    found = signatures(((tf.ones(2),), {}), ((tf.ones(2),), {}), ((tf.ones(3),), {}), ((tf.ones(2),), {}))
    assert found is not None and found.signatures == 2
    assert found.reshaped == "the shape of argument 0 changed from (2,) to (3,)"
    assert signatures(((tf.ones(2),), {}), jit_compile=None) is None
    named = signatures(((tf.ones(2),), {}), ((tf.ones(2),), {"training": True}))
    assert named is not None and named.signatures == 2 and named.reshaped is None


@pytest.mark.parametrize(
    ("first", "second", "count"),
    [
        # Whatever changes the compiled program is part of the signature.
        ((tf.ones(2),), (tf.ones(2, tf.int32),), 2),
        ((tf.ones(2),), (np.ones(2, np.float32),), 2),
        ((tf.ones(2),), (tf.ones(2), 1), 2),
        ((tf.ones(2),), ([tf.ones(2)],), 2),
        ((tf.ones(2),), (tf.ones(2),), 1),
        # Plain values count, and other objects do not.
        ((object(),), (object(),), 1),
        ((SimpleNamespace(shape=(2,)),), (SimpleNamespace(shape=(3,)),), 1),
        ((np.ones(2),), (np.ones(3),), 2),
        (("a",), ("b",), 2),
        (({"k": 1},), ({"k": 2},), 2),
        (({"k": 1},), ({"l": 1},), 2),
        ((None,), (1,), 2),
        # Only the first items belong to it.
        (([0] * 40,), ([0] * 32 + [1] * 8,), 1),
        (([0] * 40,), ([0] * 31 + [1] * 9,), 2),
    ],
)
def test_what_belongs_to_a_signature(first: Any, second: Any, count: int) -> None:
    found = signatures((first, {}), (second, {}))
    assert found is not None and found.signatures == count


def test_signatures_are_counted_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function_traces, "MAX_SIGNATURES", 2)
    found = TracedFunction("step", None)
    assert [found.add_signature((size,)) for size in (1, 1, 2, 3)] == [True, False, True, False]
    assert found.signatures == 2
