"""Failed allocations are seen as TensorFlow makes their exceptions, once, and what these say."""

import dataclasses
import os
import pathlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import keras
import pytest
import tensorflow as tf
from dump_cases import make_dump

from tb_memplugin.importers import Request
from tb_memplugin.recorder.failure import memory_request, raised_now
from tb_memplugin.recorder.failure import raised as module
from tb_memplugin.recorder.failure.dumps import VARIABLE, DumpFile, DumpFiles
from tb_memplugin.recorder.failure.post_mortems import fact_of
from tb_memplugin.recorder.failure.raised import RaisedErrors
from tb_memplugin.recorder.helper.recent_steps import is_forward
from tb_memplugin.schema import GraphFacts, OpFact

OOM = (
    "OOM when allocating tensor with shape[16,64] and type float on "
    "/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc\n\t [[{{node "
    "net/dense/MatMul}}]]"
)
HINT = (
    "Hint: If you want to see a list of allocated tensors when OOM happens, add "
    "report_tensor_allocations_upon_oom"
)
NO_ALGORITHM = (
    "No algorithm worked!  Error messages:\n  Profiling failure on CUDNN "
    "engine "
    "1: "
    "RESOURCE_EXHAUSTED: "
    "Out "
    "of "
    "memory "
    "while trying to allocate 8388608 bytes.\n\t [[{{node net/conv/Conv2D}}]]"
)
EXHAUSTED, ABSENT, INTERNAL = (
    tf.errors.ResourceExhaustedError,
    tf.errors.NotFoundError,
    tf.errors.InternalError,
)
INVALID = tf.errors.InvalidArgumentError
CUBLAS = Request(library="cuBLAS")
ERROR = INTERNAL(None, None, "")
# 16 * 64 numbers of 4 bytes
REQUEST = Request(4096, "net/dense/MatMul", "[16,64] float", "GPU:0", "GPU_0_bfc")


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
        (ABSENT, NO_ALGORITHM, Request(op="net/conv/Conv2D", trials=True)),
        (ABSENT, "No algorithm worked! RESOURCE_EXHAUSTED: scratch", Request(op=None, trials=True)),
        (ABSENT, "No algorithm worked! UNIMPLEMENTED", None),
        (ABSENT, "RESOURCE_EXHAUSTED: a file", None),
        (INTERNAL, "Dst tensor is not initialized.", Request()),
        (INTERNAL, "cuDNN launch failure", None),
        (
            INTERNAL,
            "Failed to allocate 67108864 bytes for new constant [[{{node cluster_1/xla_run}}]]",
            Request(67108864, "cluster_1/xla_run", compiled=True),
        ),
        (
            INTERNAL,
            "Failed to allocate request for 8.00MiB (8388608B) on device ordinal 0",
            Request(8388608, compiled=True),
        ),
        (
            INTERNAL,
            "Autotuning failed for HLO: %gemm = f32[8]: RESOURCE_EXHAUSTED: Out of memory while "
            "trying to allocate 8388608 bytes",
            Request(trials=True),
        ),
        (INTERNAL, "Autotuning failed for HLO: %gemm = f32[8]: UNIMPLEMENTED", None),
        (INTERNAL, "failed to create cublas handle: CUBLAS_STATUS_NOT_INITIALIZED", CUBLAS),
        (ABSENT, "CUBLAS_STATUS_ALLOC_FAILED", CUBLAS),
        (INTERNAL, "in 'status': CUDNN_STATUS_ALLOC_FAILED", Request(library="cuDNN")),
        (INTERNAL, "CUDNN_STATUS_NOT_SUPPORTED", None),
        (INTERNAL, "Failed to allocate a port", None),
    ],
)
def test_a_request_is_read_from_errors_about_memory_only(
    kind: Any, message: str, request_: Request | None
) -> None:
    assert memory_request(kind(None, None, message)) == request_
    assert memory_request(RuntimeError(message)) is None


@pytest.mark.parametrize(
    ("message", "request_"),
    [
        (
            "%cudnn-conv = (f32[8]) custom-call(), "
            'metadata={op_name="net/conv/Conv2D"} '
            "with "
            "error:\n"
            "NOT_FOUND: No valid config found!",
            Request(op="net/conv/Conv2D", trials=True),
        ),
        ("%gemm = f32[8]\nNo valid config found!", Request(op=None, trials=True)),
        ("%gemm = f32[8]: a bug", None),
    ],
)
def test_a_request_in_autotuning_is_of_the_op_that_was_tried(
    message: str, request_: Request | None
) -> None:
    error = INTERNAL(None, None, f"Autotuning failed for HLO: {message}")
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
        (
            PROTO,
            Request(
                25088 * 4096 * 4, "adam/kernel_momentum/Initializer/zeros", "[25088,4096] float"
            ),
        ),
        (
            "Cannot parse tensor from proto: dtype: DT_DOUBLE\ntensor_shape {\n}",
            Request(8, None, "[] double"),
        ),
        ("Cannot parse tensor from proto: ...", Request()),
    ],
)
def test_a_constant_that_found_no_memory_has_the_size_of_its_proto(
    message: str, request_: Request
) -> None:
    error = INVALID(None, None, message)
    assert memory_request(error, [dump(0.0)]) == request_
    # Without a failed allocation the proto is at fault.
    assert memory_request(error) is None and memory_request(error, [dump(5.0)]) is None
    # Writing 64 MiB into the message takes TensorFlow some seconds after it gave up.
    gave_up = [dump(ago) for ago in (15.001, 15.0, 5.001, 5.0)]
    assert memory_request(error, gave_up) == request_
    assert memory_request(error, gave_up[:2]) is None


def test_any_error_right_after_tensorflow_gave_up_an_allocation_is_out_of_memory() -> None:
    error = INTERNAL(None, None, "Failed to run [[{{node net/dense/MatMul}}]]")
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
        graph(
            "new",
            net_MatMul=OpFact("net/new", "forward", line="new.py:2"),
            net_Relu=OpFact("net/act", "forward"),
        ),
        graph("newest", net_MatMul=OpFact(None, "other", line="newest.py:3")),
    ]
    assert fact_of("net/MatMul", graphs) == graphs[1].ops["net/MatMul"] and is_forward(
        "net/MatMul", graphs
    )
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


MESSAGE = (
    "OOM when allocating tensor with shape[1024] and type float on CPU:0 by allocator cpu "
    "[Op:Fill] name: "
)


class Session:
    """A session that notes what it receives."""

    closed = False

    def __init__(self, is_open: bool = False, began: float = 0.0, guards: bool = False) -> None:
        self.active_since, self.guards_this_thread = (is_open, began), guards
        self.received: list[Request] = []

    def close_without_waiting(self) -> None:
        self.closed = True

    def on_raised(self, error: BaseException, request: Request, since: float) -> None:
        # an error of the recorder's own is none of the program's
        tf.errors.ResourceExhaustedError(None, None, MESSAGE)
        self.received.append(request)


@pytest.fixture
def raised(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RaisedErrors]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(module, "dump_files", DumpFiles())
    raised = RaisedErrors()
    yield raised
    raised._abandon()
    raised._remove()


def fail(message: str = MESSAGE, kind: Any = EXHAUSTED) -> None:
    kind(None, None, message)


def test_a_failure_is_seen_also_if_the_program_catches_it_and_on_any_thread(
    raised: RaisedErrors,
) -> None:
    session = Session()
    raised.add(session)
    with pytest.raises(EXHAUSTED):
        raise EXHAUSTED(None, None, MESSAGE)
    assert [request.requested_bytes for request in session.received] == [4096]
    thread = threading.Thread(target=fail, args=[MESSAGE.replace("1024", "2048")])
    thread.start()
    thread.join()
    assert [request.requested_bytes for request in session.received] == [4096, 8192]
    # AND other errors are none
    fail("End of sequence", tf.errors.OutOfRangeError)
    fail("/data/BLOOM/x: too many open files")
    fail("logits and labels must be broadcastable", INVALID)
    assert len(session.received) == 2


def test_an_error_that_wraps_the_last_one_is_the_same_failure(raised: RaisedErrors) -> None:
    session = Session()
    raised.add(session)
    fail()
    fail(f"Exception encountered when calling layer 'dense'.\n{MESSAGE}")
    assert len(session.received) == 1
    # AND a further failure with the same message has a dump of its own
    time.sleep(0.01)
    path = f"{module.dump_files._directory.path}/dump_cpu.{int(time.time() * 1e6)}"  # type: ignore[union-attr]
    pathlib.Path(path).write_bytes(make_dump(b"cpu"))
    fail()
    fail(f"Error in user-defined function: {MESSAGE}")
    assert len(session.received) == 2


def test_the_session_with_the_running_or_latest_step_gets_it(raised: RaisedErrors) -> None:
    sessions: list[Session] = []
    for number, expected in ((4, 1), (1, 0)):
        for session in sessions:
            session.closed = True
        sessions = [Session(False, 9.0), Session(True, 5.0), Session(), Session()]
        for session in sessions[:number]:
            raised.add(session)
        fail(MESSAGE.replace("1024", str(number)))
        assert [bool(session.received) for session in sessions].index(True) == expected
    # AND of those without a step the last one
    sessions[0].closed = True
    for session in sessions[2:]:
        raised.add(session)
    fail("failed to allocate memory")
    assert [len(session.received) for session in sessions] == [1, 0, 0, 1]


def test_a_session_is_opened_for_a_failure_that_has_none(raised: RaisedErrors) -> None:
    opened: list[Session] = []

    def opener() -> None:
        opened.append(Session())
        raised.add(opened[-1])

    raised.open_with(opener)
    fail("a wrong argument", INVALID)
    assert opened == []
    fail()
    fail("failed to allocate memory")
    assert [len(session.received) for session in opened] == [2]


def test_a_dropped_session_receives_failures_until_the_next_one_is_made(
    raised: RaisedErrors,
) -> None:
    dropped, other, last = Session(), Session(), Session()
    raised.add(dropped)
    raised.keep(dropped)
    fail()
    assert len(dropped.received) == 1 and not dropped.closed
    raised.add(other)
    assert dropped.closed
    raised.keep(other)
    raised.keep(last)
    assert other.closed and not last.closed
    fail("failed to allocate memory")
    assert len(dropped.received) == 1


def test_the_users_own_prefix_of_dumps_is_kept(
    raised: RaisedErrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "mine")
    raised.add(Session())
    assert os.environ[VARIABLE] == "mine"


def test_a_fault_while_an_exception_is_made_changes_nothing(raised, monkeypatch) -> None:
    session = Session()
    raised.add(session)
    monkeypatch.setattr(session, "on_raised", None)
    with pytest.raises(EXHAUSTED) as error:
        raise EXHAUSTED(None, None, MESSAGE)
    assert str(error.value) == MESSAGE and error.value.__context__ is None
