"""What a program's own objects say that its recorded run has to show, without the recorder.

Variables have shapes and dtypes; the traced graph has the ops of the backward pass and what they
read. The profiler, the allocator and the recorder's observation of layers are not involved.
"""

import hashlib
import math
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

BACKWARD = "gradient_tape/"
"""Part of the names of ops that ``tf.GradientTape`` makes in a graph."""
REUSED = {
    "ExpandDims",
    "Identity",
    "IdentityN",
    "PreventGradient",
    "Reshape",
    "Snapshot",
    "Squeeze",
    "StopGradient",
}
"""Ops whose results are the buffers of their inputs."""
SHAPES = {"BroadcastGradientArgs", "Rank", "Shape", "ShapeN", "Size"}
"""Ops that read the shape of a tensor and not its values, and whose results are on the host."""
UNCOUNTED = {*SHAPES, "Const", "ReadVariableOp"}
"""Ops whose results are no activations: shapes, constants and the buffers of variables."""
POOLING = "MaxPool"
"""In float32 and 16-bit types oneDNN's max pooling may keep one byte for each result, the place of
the maximum, which the graph does not show."""


class Graphs:
    """The graphs of functions that TensorFlow traces from now on, noted weakly."""

    def __init__(self) -> None:
        self._graphs: list[weakref.ref[Any]] = []
        kind = tf.__internal__.FuncGraph
        original = kind.__init__

        def noted(graph: Any, *arguments: Any, **options: Any) -> None:
            original(graph, *arguments, **options)
            self._graphs.append(weakref.ref(graph))

        kind.__init__ = noted

    def of_training(self) -> Any:
        """The graph with the most ops of a backward pass, of equal ones the last; None if there is
        none."""
        graphs = [
            graph for graph in (reference() for reference in self._graphs) if graph is not None
        ]
        return max(reversed(graphs), key=_backward_ops, default=None)


def _backward_ops(graph: Any) -> int:
    return sum(BACKWARD in op.name for op in graph.get_operations())


def saved_bytes(graph: Any, batch: int) -> tuple[int, int] | None:
    """Bytes of the tensors that ops of the backward pass read and that the forward pass made.

    Args:
        graph: A function's graph.
        batch: Size of unknown first dimensions of its arguments.

    Returns:
        The bytes without and with the function's arguments and what oneDNN's pooling may keep; None
        for a graph without a backward pass, with loops or replicas, of which the graph does not
        tell how many run at once, and with other unknown dimensions.
    """
    ops = graph.get_operations()
    names = _saved_tensors(graph)
    if not names or any(
        "While" in op.type or "TensorList" in op.type or "replica_1/" in op.name for op in ops
    ):
        return None
    results = others = 0
    for tensor in _with_shapes(graph, batch, names):
        if not tensor.shape.is_fully_defined():
            return None
        count = math.prod(tensor.shape)
        if tensor.op.type == "Placeholder":
            others += count * tensor.dtype.size
        else:
            results += count * tensor.dtype.size
            others += count * (tensor.op.type == POOLING)
    return results, results + others


def _saved_tensors(graph: Any) -> list[str]:
    """Names of the tensors, each buffer once."""
    ops = graph.get_operations()
    live = _ancestors(
        [*(tensor.op for tensor in graph.outputs), *graph.control_outputs], waits=True
    )
    after: dict[str, Any] = {}  # live ops made after the backward pass began
    dependent: dict[str, Any] = {}  # of them, those that depend on a gradient op, and these
    for op in ops:  # in the order in which they were made
        gradient = BACKWARD in op.name
        if op.name in live and (gradient or after):
            after[op.name] = op
            if gradient or any(tensor.op.name in dependent for tensor in op.inputs):
                dependent[op.name] = op
    backward = after.keys() & _ancestors(dependent.values(), waits=False)
    saved: dict[str, None] = {}
    for name in backward:
        op = after[name]
        for tensor in () if op.type in SHAPES else op.inputs:
            while _reuses(tensor.op) and tensor.op.name not in backward:
                tensor = tensor.op.inputs[tensor.value_index]
            kept = tensor.op.type not in UNCOUNTED and tensor.dtype not in (tf.resource, tf.variant)
            if kept and tensor.op.name not in backward:
                saved[tensor.name] = None
    return sorted(saved)


def _ancestors(ops: Iterable[Any], waits: bool) -> set[str]:
    """Names of the ops and of all ops that they need; `waits`: also of those that they only wait
    for."""
    found: set[str] = set()
    pending = list(ops)
    while pending:
        op = pending.pop()
        if op.name not in found:
            found.add(op.name)
            pending += [tensor.op for tensor in op.inputs]
            pending += op.control_inputs if waits else []
    return found


def _reuses(op: Any) -> bool:
    """Whether an op's results are its inputs.

    Also a transposed matrix, as matrix products read either layout, and what a dense layer
    transposes: nothing.
    """
    matrix = op.outputs[0].shape.rank == 2 or "/Tensordot/transpose" in op.name
    return op.type in REUSED or (op.type == "Transpose" and matrix)


def _with_shapes(graph: Any, batch: int, names: list[str]) -> list[Any]:
    """The tensors in a copy of the graph whose arguments have no unknown dimension."""
    captured = {internal.name: external for external, internal in graph.captures}
    replaced = {}
    with tf.__internal__.FuncGraph("copy").as_default() as copy:
        for tensor in graph.inputs:
            shape = tensor.shape.as_list() if tensor.shape.rank is not None else [None, None]
            external = _outermost(captured.get(tensor.name))
            if external is not None and tensor.dtype in (tf.resource, tf.variant):
                replaced[tensor.name] = copy.capture(external)
            elif None not in shape[1:]:
                shape = [batch if size is None else size for size in shape]
                replaced[tensor.name] = tf.compat.v1.placeholder(tensor.dtype, shape)
        tf.graph_util.import_graph_def(graph.as_graph_def(), input_map=replaced, name="copy")
        return [
            replaced[name] if name in replaced else copy.get_tensor_by_name(f"copy/{name}")
            for name in names
        ]


def _outermost(tensor: Any) -> Any:
    """The tensor outside all functions that was captured, through functions in functions."""
    while tensor is not None and isinstance(
        getattr(tensor, "graph", None), tf.__internal__.FuncGraph
    ):
        captured = {id(internal): external for external, internal in tensor.graph.captures}
        tensor = captured.get(id(tensor))
    return tensor


def variable_bytes(program: Mapping[str, Any]) -> dict[str, int]:
    """Bytes of the weights of a program's models, and of its optimizers' variables without
    scalars."""
    models = [value for value in program.values() if _is_model(value)]
    optimizers = [
        value for value in program.values() if hasattr(value, "iterations") and _variables(value)
    ]
    optimizers += [
        model.optimizer for model in models if getattr(model, "optimizer", None) is not None
    ]
    weights = [
        weight for model in models for weight in getattr(model, "weights", None) or model.variables
    ]
    slots = [slot for one in optimizers for slot in _variables(one) if len(slot.shape)]
    return {"weights": _bytes_of(weights), "slots": _bytes_of(slots)}


def digest(program: Mapping[str, Any]) -> str:
    """A text that differs if one bit of the program's losses or of its models' variables does."""
    found = hashlib.sha256()
    for name, value in sorted(program.items()):
        if name == "losses":
            found.update(repr(value).encode())
        elif hasattr(value, "history") and hasattr(value, "epoch"):
            found.update(repr(sorted(value.history.items())).encode())
        elif _is_model(value):
            for variable in value.variables:
                found.update(np.asarray(variable).tobytes())
    return found.hexdigest()


def _is_model(value: Any) -> bool:
    return hasattr(value, "trainable_variables") and not isinstance(value, type)


def _variables(optimizer: Any) -> list[Any]:
    found = optimizer.variables
    return list(found() if callable(found) else found)


def _bytes_of(variables: Iterable[Any]) -> int:
    """Bytes of the variables, each once, of all replicas."""
    return sum(
        math.prod(one.shape) * tf.as_dtype(one.dtype).size
        for one in {id(one): one for variable in variables for one in _replicas(variable)}.values()
    )


def _replicas(variable: Any) -> Iterator[Any]:
    yield from getattr(getattr(variable, "value", variable), "values", None) or [variable]
