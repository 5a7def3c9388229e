"""What an exception and the program's graphs say about a failed allocation."""

import dataclasses
import re
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from tb_memplugin.importers import Request, read_message, read_proto_message
from tb_memplugin.recorder.failure.failure_maps import DumpFile, gave_up
from tb_memplugin.recorder.heap import running_functions
from tb_memplugin.schema import GraphFacts, OpFact

_NO_ALGORITHM = "No algorithm worked!"
_NO_SCRATCH = "RESOURCE_EXHAUSTED"
"""TensorFlow's message, in a NotFoundError, if no algorithm of a convolution got its scratch space."""
_AUTOTUNING = re.compile(
    r'Autotuning failed for HLO: (?:.*?op_name="(?P<op>[^"]+)")?.*No valid config found', re.DOTALL
)
"""XLA's message, in an InternalError, if no algorithm of an op could run while a module was compiled for a GPU."""
_COPY_FAILED = "Dst tensor is not initialized"
"""TensorFlow's message, in an InternalError, if a copy from the host to a GPU found no memory."""
_PROTO_FAILED = "Cannot parse tensor from proto"
"""TensorFlow's message, in an InvalidArgumentError, if a kernel that holds a constant found no memory for it."""
_RAISED_SECONDS = 2.0  # longest time from TensorFlow's last dump of a failed allocation to the exception


def memory_request(error: BaseException, dumps: Sequence[DumpFile] = ()) -> Request | None:
    """The request that failed according to an exception that was just made, None if it has another cause. Some kernels
    report a failed allocation as another error. That TensorFlow dumped its memory shows it: `dumps` are those of the
    step or, between steps, since the last one."""
    import tensorflow as tf

    if not isinstance(error, tf.errors.OpError):
        return None
    message = str(error)
    exhausted = isinstance(error, tf.errors.ResourceExhaustedError)
    if not exhausted and not dumps and _NO_ALGORITHM not in message and _COPY_FAILED not in message:
        return None  # soon: TensorFlow makes an error for each op that it traces
    request = read_message(message)
    if exhausted and request is not None:
        return request
    op = None if request is None else request.op
    if _NO_ALGORITHM in message and _NO_SCRATCH in message:
        # It lists one request for each algorithm, so the size of the failed one is unknown.
        return Request(op=op, trials=True)
    if _COPY_FAILED in message:
        return Request()
    if not dumps:
        return None
    tuned = _AUTOTUNING.search(message)
    if tuned is not None:
        return Request(op=tuned["op"], trials=True)
    just_now = time.time() - dumps[-1].wall_time < _RAISED_SECONDS
    if just_now and (_PROTO_FAILED in message or gave_up(dumps)):
        return read_proto_message(message)
    return None


@dataclasses.dataclass(frozen=True)
class RaisedError:
    """A failed allocation that TensorFlow reports to Python, as its exception is made."""

    request: Request
    error: Callable[[], BaseException | None]  # weak: the exception's frames hold the tensors of the failed step
    message: str
    layers: tuple[int, ...]  # ids of the layers whose calls were running, the innermost first
    layer_name: str | None  # of the innermost one, None without one
    line: str | None  # the user's line that was running, None if lines are not recorded
    builds: bool  # whether a layer was being built


_LAYER_CALLS = ("__call__", "call", "build")


def raised_now(error: BaseException, request: Request, line_of: Callable[[Any], str | None]) -> RaisedError:
    """The failure of an exception that this thread makes now. `line_of` gives the innermost layer's line."""
    layers, builds = [], False
    for frame, variables in running_functions():
        layer = variables.get("self")
        # A model whose `fit` runs is no layer that runs: the op may belong to the loss or the input pipeline.
        if frame.f_code.co_name in _LAYER_CALLS and hasattr(type(layer), "trainable_variables"):
            layers.append(layer)
            builds = builds or frame.f_code.co_name == "build"
    innermost = layers[0] if layers else None
    return RaisedError(
        request,
        weakref.ref(error),
        str(error),
        tuple(map(id, layers)),
        getattr(innermost, "name", None),
        line_of(innermost),
        builds,
    )


def fact_of(op: str | None, graphs: Sequence[GraphFacts]) -> OpFact | None:
    """The fact about an op that a layer made, from the newest graph that has it."""
    if op is None:
        return None
    for graph in reversed(graphs):
        for name in (op, op.partition("/")[2]):
            fact = graph.ops.get(name)
            if fact is not None and fact.layer is not None:
                return fact
    return None


def is_forward(op: str | None, graphs: Sequence[GraphFacts]) -> bool:
    """Whether an op is known to be one of a layer's forward pass."""
    fact = fact_of(op, graphs)
    return fact is not None and fact.pass_name == "forward"
