"""What exceptions as TensorFlow raises them, and the graphs of a program, say about a failed allocation."""

import keras
import pytest
import tensorflow as tf

from tb_memplugin.importers.allocator.oom_log import Request
from tb_memplugin.model.trace import GraphFacts, OpFact
from tb_memplugin.recorder.oom.failures import (
    layer_in,
    layer_of,
    line_of,
    memory_request,
    pass_of,
    request_in_autotuning,
)

OOM = (
    "OOM when allocating tensor with shape[16,64] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by "
    "allocator GPU_0_bfc\n\t [[{{node net/dense/MatMul}}]]"
)
NO_ALGORITHM = (
    "No algorithm worked!  Error messages:\n  Profiling failure on CUDNN engine 1: RESOURCE_EXHAUSTED: Out of memory "
    "while trying to allocate 8388608 bytes.\n\t [[{{node net/conv/Conv2D}}]]"
)


def error_of(kind: type, message: str) -> BaseException:
    error: BaseException = kind(None, None, message)
    return error


@pytest.mark.parametrize(
    ("error", "request_"),
    [
        (
            error_of(tf.errors.ResourceExhaustedError, OOM),
            # 16 * 64 numbers of 4 bytes
            Request(4096, "net/dense/MatMul", "[16,64] float", "GPU:0", "GPU_0_bfc"),
        ),
        (error_of(tf.errors.ResourceExhaustedError, "too many open files"), None),
        (error_of(tf.errors.NotFoundError, NO_ALGORITHM), Request(op="net/conv/Conv2D", trials=True)),
        (
            error_of(tf.errors.NotFoundError, "No algorithm worked! RESOURCE_EXHAUSTED: scratch"),
            Request(op=None, trials=True),
        ),
        (error_of(tf.errors.NotFoundError, "No algorithm worked! UNIMPLEMENTED"), None),
        (error_of(tf.errors.NotFoundError, "RESOURCE_EXHAUSTED: a file"), None),
        (error_of(tf.errors.InternalError, "Dst tensor is not initialized."), Request()),
        (error_of(tf.errors.InternalError, "cuDNN launch failure"), None),
        (RuntimeError(OOM), None),
        (RuntimeError("Dst tensor is not initialized."), None),
    ],
)
def test_a_request_is_read_from_errors_about_memory_only(error: BaseException, request_: Request | None) -> None:
    assert memory_request(error) == request_


@pytest.mark.parametrize(
    ("error", "request_"),
    [
        (
            error_of(
                tf.errors.InternalError,
                'Autotuning failed for HLO: %cudnn-conv = (f32[8]) custom-call(), metadata={op_name="net/conv/Conv2D"} '
                "with error:\nNOT_FOUND: No valid config found!",
            ),
            Request(op="net/conv/Conv2D", trials=True),
        ),
        (
            error_of(tf.errors.InternalError, "Autotuning failed for HLO: %gemm = f32[8]\nNo valid config found!"),
            Request(op=None, trials=True),
        ),
        (error_of(tf.errors.InternalError, "Autotuning failed for HLO: %gemm = f32[8]: a bug"), None),
        (RuntimeError("Autotuning failed for HLO: x\nNo valid config found!"), None),
    ],
)
def test_a_request_in_autotuning_is_of_the_op_that_was_tried(error: BaseException, request_: Request | None) -> None:
    assert request_in_autotuning(error) == request_


def graph(name: str, **ops: OpFact) -> GraphFacts:
    return GraphFacts(name, {op.replace("_", "/"): fact for op, fact in ops.items()}, {}, True)


def test_the_newest_graph_in_which_a_layer_made_the_op_names_it() -> None:
    graphs = [
        graph("old", net_MatMul=OpFact("net/old", "backward", line="old.py:1")),
        graph("new", net_MatMul=OpFact("net/new", "forward", line="new.py:2"), net_Relu=OpFact("net/act", "forward")),
        graph("newest", net_MatMul=OpFact(None, "other", line="newest.py:3")),
    ]
    assert layer_of("net/MatMul", graphs) == "net/new"
    assert line_of("net/MatMul", graphs) == "new.py:2"
    assert pass_of("net/MatMul", graphs) == "forward"
    # AND an op that is inlined into its caller has the caller's name before its own
    assert layer_of("StatefulPartitionedCall/net/Relu", graphs) == "net/act"
    assert line_of("net/Relu", graphs) is None


@pytest.mark.parametrize("op", [None, "net/Add", "Relu"])
def test_an_op_that_no_layer_made_has_no_facts(op: str | None) -> None:
    graphs = [graph("step", net_MatMul=OpFact("net", "forward", line="a.py:1"))]
    assert (layer_of(op, graphs), line_of(op, graphs), pass_of(op, graphs)) == (None, None, None)


class Failing(keras.layers.Layer):  # type: ignore[misc]
    def call(self, values: object) -> object:
        return self._fail()

    def _fail(self) -> object:
        raise RuntimeError


class Outer(keras.layers.Layer):  # type: ignore[misc]
    def __init__(self, inner: keras.layers.Layer) -> None:
        super().__init__()
        self.inner = inner

    def call(self, values: object) -> object:
        return self.inner(values)


def test_the_innermost_known_layer_on_the_traceback_is_found() -> None:
    inner = Failing()
    outer = Outer(inner)
    with pytest.raises(RuntimeError) as raised:
        outer(tf.ones(1))
    paths = {id(outer): "net", id(inner): "net/inner"}
    assert layer_in(raised.value, paths) == "net/inner"
    # AND frames of other objects behind it change nothing
    assert layer_in(raised.value, {id(outer): "net"}) == "net"
    assert layer_in(raised.value, {}) is None
    assert layer_in(RuntimeError(), paths) is None
