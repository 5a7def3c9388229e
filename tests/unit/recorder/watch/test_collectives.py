"""When the replicas of a program have met, by the functions that were traced."""

import pytest
import tensorflow as tf
from collective_cases import all_reduce

from tb_memplugin.recorder.base import Faults
from tb_memplugin.recorder.watch import LayerWatch, call_notes


def in_branch(value: tf.Tensor) -> tf.Tensor:
    return tf.cond(value > 0, lambda: all_reduce(value), lambda: value)


def in_function(value: tf.Tensor) -> tf.Tensor:
    return tf.function(all_reduce)(value)


def nested(graph, found):
    """A graph and those of the functions that it calls."""
    found.append(graph)
    for op in graph.get_operations():
        for attribute in ("f", "then_branch", "else_branch"):
            if attribute in op.node_def.attr:
                nested(graph._get_function(op.get_attr(attribute).name).graph, found)
    return found


@pytest.mark.parametrize(
    ("functions", "updates", "met"),
    [
        # Without an operation: none may come, or it is in a function that did not run yet.
        *(([tf.identity], updates, (updates, True)) for updates in (False, True)),
        # An operation that always runs brings the replicas together, also for one that may run.
        *(([one], False, (True, True)) for one in (all_reduce, in_function)),
        *(([in_branch], updates, (False, False)) for updates in (False, True)),
        ([in_branch, in_function], False, (True, True)),
    ],
)
def test_replicas_met_in_an_operation_that_always_runs(
    functions, updates, met, monkeypatch
) -> None:
    monkeypatch.setattr(call_notes, "optimizers", {1} if updates else set())
    graphs = [
        graph
        for function in functions
        for graph in nested(
            tf.function(function).get_concrete_function(tf.TensorSpec(())).graph, []
        )
    ]
    monkeypatch.setattr(call_notes, "graphs", dict.fromkeys(graphs))
    watch = LayerWatch(Faults())
    assert (watch.replicas_met(trains=True), watch.replicas_met(trains=False)) == met
    # AND a graph that cannot be read may have an operation
    call_notes.graphs.clear()
    call_notes.graphs[object()] = None
    call_notes.traced_calls += 1
    assert not watch.replicas_met(trains=True) and not watch.replicas_met(trains=False)
