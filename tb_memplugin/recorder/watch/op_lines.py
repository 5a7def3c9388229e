"""The user's line of each op of a function graph."""

from collections.abc import Mapping, Sequence

from tb_memplugin.recorder.heap import (
    SourceLines,
)
from tb_memplugin.recorder.watch.graph_ops import GRADIENT_SCOPE, GraphOps, OpLayers
from tb_memplugin.recorder.watch.notes import GraphNotes

_WITHOUT_LINE = frozenset({"Placeholder", "Const", "NoOp", "ReadVariableOp", "VarHandleOp"})
"""Types of ops that request no memory in a step."""


def op_lines(
    graph: GraphOps, notes: GraphNotes, layers: OpLayers, source_lines: SourceLines | None
) -> list[str | None]:
    """The line of each op. A gradient has that of its forward op; if that is unknown, of the call
    of the tape. A graph has no lines if reading them would exceed the recording's limit: with some
    of them, a gradient may get a wrong one."""
    lines: list[str | None] = [None] * len(graph)
    # each op that a tape or an optimizer made, to the first op of that call
    calls = {
        number: graph.ops[span.start]
        for span in notes.spans
        if span.kind != "layer"
        for number in range(span.start, min(span.end, len(graph)))
        if layers.pass_name[number] == span.kind and not layers.in_layer[number]
    }
    own = {
        number: graph.ops[number]
        for number, kind in enumerate(graph.types)
        if number not in calls and kind not in _WITHOUT_LINE
    }
    wanted = [*own.values(), *calls.values()]
    if source_lines is None or not source_lines.may_read(graph.graph, wanted):
        return lines
    for number, op in own.items():
        lines[number] = source_lines.of_op(graph.graph, op)
    # the innermost layer with a line decides
    for span in sorted(notes.spans, key=lambda span: -span.depth):
        layer = None if span.layer is None else span.layer()
        for number in range(span.start, min(span.end, len(lines))) if layer is not None else ():
            lines[number] = source_lines.made(layer, lines[number]) or lines[number]
    scopes: dict[str, str | None] = {}  # None if the forward ops in one have several lines
    for op, line in zip(graph.ops, lines, strict=True):
        if line is not None and GRADIENT_SCOPE not in op.name:
            scope = op.name.rpartition("/")[0]
            scopes[scope] = line if scopes.get(scope, line) == line else None
    for number, call in calls.items():
        line = _forward_line(graph, graph.ops[number].name, lines, scopes)
        lines[number] = source_lines.of_op(graph.graph, call) if line is None else line
    return lines


def _forward_line(
    graph: GraphOps, name: str, lines: Sequence[str | None], scopes: Mapping[str, str | None]
) -> str | None:
    """The line of the forward op, or of those in the scope, that the name of a gradient op refers
    to."""
    _, gradient, scope = name.rpartition(GRADIENT_SCOPE)
    while gradient and (scope := scope.rpartition("/")[0]):
        if scope in graph.number:
            return lines[graph.number[scope]]
        if scope in scopes:
            return scopes[scope]
    return None
