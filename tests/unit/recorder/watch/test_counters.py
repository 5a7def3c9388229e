"""How often functions are traced and compiled, and why: read from real functions of TensorFlow."""

from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from tb_memplugin.recorder.watch import counters as function_traces
from tb_memplugin.recorder.watch.counters import FunctionTraces, TracedFunction, changed_argument, traces_of


class Pair(NamedTuple):
    left: Any
    right: Any


def types_of(*given: dict[str, Any]) -> list[Any]:
    """The types of a function that is traced for several sets of arguments."""
    function = tf.function(lambda **arguments: None)
    return [function.get_concrete_function(**arguments).function_type for arguments in given]


X = tf.ones((2, 3))


@pytest.mark.parametrize(
    ("first", "second", "phrase"),
    [
        (X, tf.ones((4, 3)), "the shape of argument `x` changed from (2, 3) to (4, 3)"),
        (X, tf.TensorSpec((None, 3), tf.float32), "the shape of argument `x` changed from (2, 3) to (?, 3)"),
        (X, tf.TensorSpec(None, tf.float32), "the shape of argument `x` changed from (2, 3) to unknown"),
        (X, tf.ones(2), "the shape of argument `x` changed from (2, 3) to (2,)"),
        (X, tf.ones((2, 3), tf.int32), "the dtype of argument `x` changed from float32 to int32"),
        (1, 2.5, "argument `x` changed from 1 to 2.5 (Python value)"),
        (True, None, "argument `x` changed from True to None (Python value)"),
        ("Ann", "Bob", "argument `x` changed its value (Python str)"),
        (1, X, "argument `x` changed its type"),
        ((X, tf.ones(2)), (X, tf.ones(5)), "the shape of argument `x[1]` changed from (2,) to (5,)"),
        ([X, 1], [X, 2], "argument `x[1]` changed from 1 to 2 (Python value)"),
        ([X], [X] * 3, "argument `x` changed from 1 to 3 items"),
        ({"a": X}, {"a": tf.ones(1)}, "the shape of argument `x['a']` changed from (2, 3) to (1,)"),
        *(
            ({name: 1}, {name: 2}, f"argument `x[{shown}]` changed from 1 to 2 (Python value)")
            for name, shown in (("x" * 38, f"'{'x' * 38}'"), ("x" * 39, f"'{'x' * 38}…"))
        ),
        ({"a": X}, {"b": X}, "argument `x` changed from 1 to 1 items"),
        (Pair(X, X), Pair(X, tf.ones(1)), "the shape of argument `x[1]` changed from (2, 3) to (1,)"),
        (X, X, None),
    ],
)
def test_the_first_argument_that_changed_is_named(first: Any, second: Any, phrase: str | None) -> None:
    assert changed_argument(*types_of({"x": first}, {"x": second})) == phrase


@pytest.mark.parametrize(
    ("first", "second", "phrase"),
    [
        ({"x": X}, {"x": X, "y": X}, "argument `y` is new"),
        ({"x": X, "y": X}, {"x": X}, "argument `y` is gone"),
        ({"x": X, "y": 1}, {"x": X, "y": 2}, "argument `y` changed from 1 to 2 (Python value)"),
    ],
)
def test_a_new_and_a_missing_argument_are_named(first: dict[str, Any], second: dict[str, Any], phrase: str) -> None:
    assert changed_argument(*types_of(first, second)) == phrase


def call(traces: FunctionTraces, function: Any, *args: Any, **kwargs: Any) -> None:
    """Call a function as the wrapper of its calls does."""
    before = traces_of(function)
    function(*args, **kwargs)
    traces.called(function, before, args, kwargs)


def only(traces: FunctionTraces) -> TracedFunction:
    (found,) = traces.functions.values()
    return found


def test_traces_are_counted_with_their_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def double(x: Any) -> Any:
        return 2 * x

    traces, function = FunctionTraces(), tf.function(double)
    call(traces, function, tf.ones(2))
    found = only(traces)
    assert (found.name, found.traces, found.retraced, len(found.signatures)) == ("double", 1, None, 0)
    assert traces.changed
    traces.changed = False
    call(traces, function, tf.ones(2))
    assert not traces.changed and found.traces == 1
    call(traces, function, tf.ones((2, 2)))
    assert (found.traces, found.retraced) == (2, "the shape of argument `x` changed from (2,) to (2, 2)")
    # AND a function that is made anew from the same code is the same one
    call(traces, tf.function(double), tf.ones(2))
    assert (found.traces, found.retraced) == (3, "it was a new tf.function object") and len(traces.functions) == 1
    # AND of one that was traced before, only new traces count
    later = FunctionTraces()
    call(later, function, 3)
    assert only(later).traces == 1
    # AND functions beyond the first ones are not counted
    monkeypatch.setattr(function_traces, "MAX_FUNCTIONS", 2)
    for other in (lambda x: x + 1, lambda x: x + 2):
        call(later, tf.function(other), 1)
    assert len(later.functions) == 2


@pytest.mark.parametrize(("before", "after", "count"), [(0, 1, 1), (0, 2, 1), (3, 5, 2)])
def test_a_first_call_that_makes_variables_traces_twice_and_counts_once(before: int, after: int, count: int) -> None:
    traces, function = FunctionTraces(), Compiled()
    function._jit_compile = None
    function.experimental_get_tracing_count = lambda: after  # type: ignore[method-assign]
    function._function_cache = SimpleNamespace(values=list)  # type: ignore[attr-defined]
    traces.called(function, before, (), {})
    assert only(traces).traces == count


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
    assert found is not None and len(found.signatures) == 2
    assert found.reshaped == "the shape of argument 0 changed from (2,) to (3,)"
    assert signatures(((tf.ones(2),), {}), jit_compile=None) is None
    named = signatures(((tf.ones(2),), {}), ((tf.ones(2),), {"training": True}))
    assert named is not None and len(named.signatures) == 2 and named.reshaped is None


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
    assert found is not None and len(found.signatures) == count
