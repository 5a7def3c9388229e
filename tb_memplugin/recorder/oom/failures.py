"""What an exception and the program's graphs say about a failed allocation."""

import re
import traceback
from collections.abc import Mapping, Sequence

from tb_memplugin.importers.allocator.oom_log import Request, read_message
from tb_memplugin.model.trace import GraphFacts, OpFact, Pass

_NO_ALGORITHM = "No algorithm worked!"
_NO_SCRATCH = "RESOURCE_EXHAUSTED"
"""TensorFlow's message, in a NotFoundError, if no algorithm of a convolution got its scratch space."""
_AUTOTUNING = re.compile(
    r'Autotuning failed for HLO: (?:.*?op_name="(?P<op>[^"]+)")?.*No valid config found', re.DOTALL
)
"""XLA's message, in an InternalError, if no algorithm of an op could run while a module was compiled for a GPU."""
_COPY_FAILED = "Dst tensor is not initialized"
"""TensorFlow's message, in an InternalError, if a copy from the host to a GPU found no memory."""


def memory_request(error: BaseException) -> Request | None:
    """The request that failed according to an exception, None if the exception has another cause."""
    import tensorflow as tf

    if not isinstance(error, tf.errors.OpError):
        return None
    message = str(error)
    if isinstance(error, tf.errors.ResourceExhaustedError):
        return read_message(message)
    if _NO_ALGORITHM in message and _NO_SCRATCH in message:
        # It lists one request for each algorithm, so the size of the failed one is unknown.
        listed = read_message(message)
        return Request(op=None if listed is None else listed.op, trials=True)
    return Request() if _COPY_FAILED in message else None


def request_in_autotuning(error: BaseException) -> Request | None:
    """The request that failed if memory is why XLA found no algorithm for an op, which its message does not say.

    That an allocation of the same step failed shows it.
    """
    import tensorflow as tf

    found = _AUTOTUNING.search(str(error)) if isinstance(error, tf.errors.OpError) else None
    return None if found is None else Request(op=found["op"], trials=True)


def layer_of(op: str | None, graphs: Sequence[GraphFacts]) -> str | None:
    """The layer that made an op of a graph."""
    fact = _fact_of(op, graphs)
    return None if fact is None else fact.layer


def line_of(op: str | None, graphs: Sequence[GraphFacts]) -> str | None:
    """The user's line that called an op of a graph, or its layer."""
    fact = _fact_of(op, graphs)
    return None if fact is None else fact.line


def pass_of(op: str | None, graphs: Sequence[GraphFacts]) -> Pass | None:
    """The pass of an op that a layer made."""
    fact = _fact_of(op, graphs)
    return None if fact is None else fact.pass_name


def _fact_of(op: str | None, graphs: Sequence[GraphFacts]) -> OpFact | None:
    """The fact about an op that a layer made, from the newest graph that has it."""
    if op is None:
        return None
    for graph in reversed(graphs):
        for name in (op, op.partition("/")[2]):
            fact = graph.ops.get(name)
            if fact is not None and fact.layer is not None:
                return fact
    return None


def layer_in(error: BaseException, paths: Mapping[int, str]) -> str | None:
    """The innermost layer on the exception's traceback (in eager mode).

    Args:
        error: The exception.
        paths: id of a layer to its path.
    """
    innermost = None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        path = paths.get(id(frame.f_locals.get("self")))
        innermost = path if path is not None else innermost
    return innermost
