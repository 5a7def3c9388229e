"""How often functions are traced and compiled: read from real functions of TensorFlow."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tb_memplugin.recorder.watch import counters as function_traces
from tb_memplugin.recorder.watch.counters import FunctionTraces, traces_of


def call(traces: FunctionTraces, function: Any, *args: Any, **kwargs: Any) -> None:
    """Call a function as the wrapper of its calls does."""
    before = traces_of(function)
    function(*args, **kwargs)
    traces.called(function, before, args, kwargs)


def test_traces_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def double(x: Any) -> Any:
        return 2 * x

    traces, function = FunctionTraces(), tf.function(double)
    call(traces, function, tf.ones(2))
    (found,) = traces.functions.values()
    assert (found.name, found.traces, len(found.signatures)) == ("double", 1, 0)
    assert traces.changed
    traces.changed = False
    call(traces, function, tf.ones(2))
    assert not traces.changed and found.traces == 1
    call(traces, function, tf.ones((2, 2)))
    assert found.traces == 2
    # AND a function that is made anew from the same code is the same one
    call(traces, tf.function(double), tf.ones(2))
    assert found.traces == 3 and len(traces.functions) == 1
    # AND of one that was traced before, only new traces count
    later = FunctionTraces()
    call(later, function, 3)
    assert [one.traces for one in later.functions.values()] == [1]
    # AND functions beyond the first ones are not counted
    monkeypatch.setattr(function_traces, "MAX_FUNCTIONS", 2)
    for other in (lambda x: x + 1, lambda x: x + 2):
        call(later, tf.function(other), 1)
    assert len(later.functions) == 2


def after_calls(
    *calls: Any, compiled: Any = True, traces: tuple[int, int] = (1, 1), **last: Any
) -> Any:
    """What is known of a function after calls, the last one with keywords, too, by its traces
    before and after them."""
    known = FunctionTraces()
    function = SimpleNamespace(_jit_compile=compiled, _python_function=call)
    function.experimental_get_tracing_count = lambda: traces[1]
    for at, args in enumerate(calls, 1):
        known.called(function, traces[0], args, last if at == len(calls) else {})
    return next(iter(known.functions.values()), None)


@pytest.mark.parametrize(("before", "after", "count"), [(0, 1, 1), (0, 2, 1), (3, 5, 2)])
def test_a_first_call_that_makes_variables_traces_twice_and_counts_once(
    before: int, after: int, count: int
) -> None:
    assert after_calls((), compiled=None, traces=(before, after)).traces == count


def test_a_compiled_function_has_a_signature_for_each_shape() -> None:
    two = (tf.ones(2),)
    found = after_calls(two, two, (tf.ones(3),), two)
    assert len(found.signatures) == 2
    assert after_calls(two, compiled=None) is None
    assert len(after_calls(two, two, training=True).signatures) == 2


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
    assert len(after_calls(first, second).signatures) == count
