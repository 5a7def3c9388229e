"""What exceptions as TensorFlow raises them, and the graphs of a program, say about a failed allocation."""

import dataclasses
import time

import keras
import pytest
import tensorflow as tf

from tb_memplugin.importers.oom_log import Request
from tb_memplugin.recorder.failure.failure_maps import DumpFile
from tb_memplugin.recorder.failure.post_mortems import fact_of, is_forward
from tb_memplugin.recorder.failure.raised import memory_request, raised_now
from tb_memplugin.schema.trace import GraphFacts, OpFact

OOM = (
    "OOM when allocating tensor with shape[16,64] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by "
    "allocator GPU_0_bfc\n\t [[{{node net/dense/MatMul}}]]"
)
HINT = "Hint: If you want to see a list of allocated tensors when OOM happens, add report_tensor_allocations_upon_oom"
NO_ALGORITHM = (
    "No algorithm worked!  Error messages:\n  Profiling failure on CUDNN engine 1: RESOURCE_EXHAUSTED: Out of memory "
    "while trying to allocate 8388608 bytes.\n\t [[{{node net/conv/Conv2D}}]]"
)


ERROR = tf.errors.InternalError(None, None, "")


def error_of(kind: type, message: str) -> BaseException:
    error: BaseException = kind(None, None, message)
    return error


EXHAUSTED, MISSING, INTERNAL = tf.errors.ResourceExhaustedError, tf.errors.NotFoundError, tf.errors.InternalError
INVALID = tf.errors.InvalidArgumentError
REQUEST = Request(4096, "net/dense/MatMul", "[16,64] float", "GPU:0", "GPU_0_bfc")  # 16 * 64 numbers of 4 bytes


@pytest.mark.parametrize(
    ("kind", "message", "request_"),
    [
        (EXHAUSTED, OOM, REQUEST),
        (EXHAUSTED, "too many open files", None),
        (EXHAUSTED, "/data/BLOOM/x: too many open files", None),
        (EXHAUSTED, "/data/out of memory/x; Too many open files", None),
        (EXHAUSTED, f"/data/x: No space left on device\n{HINT}", None),
        (EXHAUSTED, "failed to allocate memory [Op:Sqrt] name: ", Request(op="Sqrt", eager=True)),
        (EXHAUSTED, OOM.replace("{{node", "{{function_node __inference_f_1}}{{node"), REQUEST),
        (EXHAUSTED, f"{OOM}\n\t [[IteratorGetNext]]", dataclasses.replace(REQUEST, pipeline=True)),
        (MISSING, NO_ALGORITHM, Request(op="net/conv/Conv2D", trials=True)),
        (MISSING, "No algorithm worked! RESOURCE_EXHAUSTED: scratch", Request(op=None, trials=True)),
        (MISSING, "No algorithm worked! UNIMPLEMENTED", None),
        (MISSING, "RESOURCE_EXHAUSTED: a file", None),
        (INTERNAL, "Dst tensor is not initialized.", Request()),
        (INTERNAL, "cuDNN launch failure", None),
    ],
)
def test_a_request_is_read_from_errors_about_memory_only(kind: type, message: str, request_: Request | None) -> None:
    assert memory_request(error_of(kind, message)) == request_
    assert memory_request(RuntimeError(message)) is None


@pytest.mark.parametrize(
    ("message", "request_"),
    [
        (
            '%cudnn-conv = (f32[8]) custom-call(), metadata={op_name="net/conv/Conv2D"} with error:\n'
            "NOT_FOUND: No valid config found!",
            Request(op="net/conv/Conv2D", trials=True),
        ),
        ("%gemm = f32[8]\nNo valid config found!", Request(op=None, trials=True)),
        ("%gemm = f32[8]: a bug", None),
    ],
)
def test_a_request_in_autotuning_is_of_the_op_that_was_tried(message: str, request_: Request | None) -> None:
    error = error_of(INTERNAL, f"Autotuning failed for HLO: {message}")
    assert memory_request(error) is None
    assert memory_request(error, [dump(0.0)]) == request_
    assert memory_request(RuntimeError(str(error)), [dump(0.0)]) is None


PROTO = """Cannot parse tensor from proto: goo.gle/debugstr
dtype: DT_FLOAT
tensor_shape {
  dim {
    size: 25088
  }
  dim {
    size: 4096
  }
}

\t [[{{node adam/kernel_momentum/Initializer/zeros}}]] [Op:__inference_initialize_variables_685]"""


def dump(seconds_ago: float) -> DumpFile:
    return DumpFile(time.time() - seconds_ago, "cpu", "")


@pytest.mark.parametrize(
    ("message", "request_"),
    [
        (PROTO, Request(25088 * 4096 * 4, "adam/kernel_momentum/Initializer/zeros", "[25088,4096] float")),
        ("Cannot parse tensor from proto: dtype: DT_DOUBLE\ntensor_shape {\n}", Request(8, None, "[] double")),
        ("Cannot parse tensor from proto: ...", Request()),
    ],
)
def test_a_constant_that_found_no_memory_has_the_size_of_its_proto(message: str, request_: Request) -> None:
    error = error_of(INVALID, message)
    assert memory_request(error, [dump(0.0)]) == request_
    # Without a failed allocation the proto is at fault.
    assert memory_request(error) is None and memory_request(error, [dump(5.0)]) is None


def test_any_error_right_after_tensorflow_gave_up_an_allocation_is_out_of_memory() -> None:
    error = error_of(tf.errors.InternalError, "Failed to run [[{{node net/dense/MatMul}}]]")
    # TensorFlow dumps twice as it begins to wait, and twice as it gives up.
    gave_up = [dump(ago) for ago in (10.001, 10.0, 0.001, 0.0)]
    assert memory_request(error, gave_up) == Request(op="net/dense/MatMul")
    for other in (gave_up[:2], [dump(0.0)], [dump(ago) for ago in (15.001, 15.0, 5.001, 5.0)]):
        assert memory_request(error, other) is None


def graph(name: str, **ops: OpFact) -> GraphFacts:
    return GraphFacts(name, {op.replace("_", "/"): fact for op, fact in ops.items()}, {}, True)


def test_the_newest_graph_in_which_a_layer_made_the_op_names_it() -> None:
    graphs = [
        graph("old", net_MatMul=OpFact("net/old", "backward", line="old.py:1")),
        graph("new", net_MatMul=OpFact("net/new", "forward", line="new.py:2"), net_Relu=OpFact("net/act", "forward")),
        graph("newest", net_MatMul=OpFact(None, "other", line="newest.py:3")),
    ]
    assert fact_of("net/MatMul", graphs) == graphs[1].ops["net/MatMul"] and is_forward("net/MatMul", graphs)
    # AND an op that is inlined into its caller has the caller's name before its own
    assert fact_of("StatefulPartitionedCall/net/Relu", graphs) == graphs[1].ops["net/Relu"]
    # AND an op that no layer made has none
    for op in (None, "net/Add", "Relu"):
        assert fact_of(op, graphs) is None and not is_forward(op, graphs)


class Failing(keras.layers.Layer):  # type: ignore[misc]
    def call(self, values: object) -> object:
        self.raised = raised_now(ERROR, Request(), lambda layer: f"line of {layer.name}")
        return values


class Outer(keras.layers.Layer):  # type: ignore[misc]
    def __init__(self, inner: keras.layers.Layer) -> None:
        super().__init__()
        self.inner = inner

    def call(self, values: object) -> object:
        return self.inner(values)

    def fit(self) -> object:
        """A method whose layer does not run the op."""
        return raised_now(ERROR, Request(), lambda layer: None)


class Built(keras.layers.Layer):  # type: ignore[misc]
    def build(self, shape: object) -> None:
        self.raised = raised_now(ERROR, Request(), lambda layer: None)

    def call(self, values: tf.Tensor) -> tf.Tensor:
        return values


def test_the_layers_that_run_are_found_on_the_stack_the_innermost_first() -> None:
    inner = Failing(name="inner")
    outer = Outer(inner)
    outer(tf.ones(1))
    raised = inner.raised
    assert list(dict.fromkeys(raised.layers)) == [id(inner), id(outer)]
    assert (raised.layer_name, raised.line, raised.builds) == ("inner", "line of inner", False)
    # AND a model that trains is none of them
    found = outer.fit()
    assert (found.layers, found.layer_name, found.builds) == ((), None, False)
    # AND a layer that is built is
    built = Built()
    built(tf.ones(1))
    assert id(built) in built.raised.layers and built.raised.builds
