"""Which constants of a traced function are read: the large ones, with the layer and line that used them."""

import gc
import weakref

import numpy as np
import tensorflow as tf

from tb_memplugin.recorder.observe.graph.constants import constants_of
from tb_memplugin.recorder.observe.graph.graphs import graph_facts
from tb_memplugin.recorder.observe.graph.source_lines import SourceLines


def test_large_constants_are_read_with_their_function_and_line() -> None:
    table, small = np.ones((16, 64), np.float32), np.ones(8, np.float32)

    @tf.function
    def project(values: tf.Tensor) -> tf.Tensor:
        return (
            values @ table + tf.reduce_sum(small) + len("text") * tf.cast(tf.constant(["x" * 5000]) == "x", tf.float32)
        )

    graph = project.get_concrete_function(tf.ones((4, 16))).graph
    assert [(one.shape, one.dtype, one.bytes) for one in constants_of(graph)] == [((16, 64), "float32", 4096)]
    # Graphs of other tests that are still alive are read, too; the other graphs come last.
    facts = graph_facts({}, lambda item: None, SourceLines(), others=[graph])[-1]
    assert not facts.root and not facts.ops
    (constant,) = facts.constants
    assert (constant.requested_bytes, constant.function, constant.layer) == (4096, "project", None)
    assert constant.line is not None and constant.line.startswith(
        "tests/unit/recorder/observe/graph/test_constants.py:"
    )
    assert not constant.of_input


def test_a_graph_whose_constants_were_read_can_be_collected() -> None:
    table = np.ones((16, 64), np.float32)
    graph = tf.function(lambda values: values @ table).get_concrete_function(tf.ones((4, 16))).graph
    assert len(constants_of(graph)) == 1
    reference = weakref.ref(graph)
    del graph
    gc.collect()
    assert reference() is None


def test_constants_of_a_data_sets_function_are_of_the_input() -> None:
    table = np.ones((16, 64), np.float32)
    data = tf.data.Dataset.range(3).map(lambda number: tf.gather(table, number))
    facts = graph_facts({}, lambda item: None, None, others=[data._map_func._function.graph])[-1]
    assert [constant.of_input for constant in facts.constants] == [True]
