"""Graphs that `tf.compat.v1.Session` runs: their variables, of which only graph and session know.

The session keeps the values, at addresses that Python cannot read: attribution finds the chunks by
their sizes. A variable's layer is its name scope, a slot's that of its variable."""

from collections.abc import Iterable, Iterator
from typing import Any

from tb_memplugin.recorder.base import asked
from tb_memplugin.recorder.watch.variable_values import short_device
from tb_memplugin.schema import VariableFact, VariableRole

TRAINABLE = "trainable_variables"  # the name of TensorFlow's collection
_MAKES_VARIABLE = frozenset({"VarHandleOp", "Variable", "VariableV2"})


def is_session_graph(graph: Any) -> bool:
    """Whether a graph is none of a function."""
    return not hasattr(graph, "captures")


def scope_of(name: str) -> str | None:
    """The name scope of a variable or an op; None without one."""
    return name.rpartition("/")[0] or None


def made_variables(graph: Any) -> Iterator[Any]:
    """The ops of a session's graph that make its variables."""
    return (op for op in graph.get_operations() if op.type in _MAKES_VARIABLE)


def session_variables(graphs: Iterable[Any]) -> Iterator[VariableFact]:
    """The variables of those of the graphs that sessions run, without addresses."""
    import tensorflow as tf

    gpus = [one.name for one in tf.config.list_logical_devices("GPU")]
    for graph in filter(is_session_graph, graphs):
        trained = set(asked(graph, _trained) or ())
        for op in made_variables(graph):
            shape, dtype = tf.TensorShape(op.get_attr("shape")), op.get_attr("dtype")
            if not shape.is_fully_defined():
                continue
            role, name = _role(op.name, trained)
            device = short_device(op.device or (gpus or [""])[0])
            yield VariableFact(
                op.name,
                role,
                scope_of(name),
                None if role == "other_state" else True,
                int(shape.num_elements()) * int(dtype.size),
                device,
                None,
                None,
                tuple(shape.as_list()),
                dtype.name,
            )


def _trained(graph: Any) -> list[str]:
    return [variable.op.name for variable in graph.get_collection(TRAINABLE)]


def _role(name: str, trained: set[str]) -> tuple[VariableRole, str]:
    """Role of a variable, and the weight that it belongs to: a slot's name, such as
    ``dense/kernel/Adam``, begins with that of its weight."""
    if name in trained:
        return "weights", name
    of = scope_of(name)
    while of is not None and of not in trained:
        of = scope_of(of)
    return ("other_state", name) if of is None else ("optimizer_state", of)
