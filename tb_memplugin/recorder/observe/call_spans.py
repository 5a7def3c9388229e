"""Begins and ends the span of one call: a range of ops in the graph, or in eager mode a span on the profile's timeline.

`enter` and `leave` never raise: they run inside the user's training code.
"""

import logging
import threading
import weakref
from typing import Any, NamedTuple

from tb_memplugin.attribution.eager import KEEPING_BACKWARD
from tb_memplugin.model.trace import LAYER_PREFIX, LINE_MARK
from tb_memplugin.recorder.base.due import changes
from tb_memplugin.recorder.observe.call_notes import CallKind, Span, call_notes

logger = logging.getLogger("tb_memplugin")


class OpenCall(NamedTuple):
    """A call that has begun.

    Attributes:
        graph: The function graph that is being traced; None in eager mode.
        start: Number of its first op.
        kind, layer: As in `Span`, but a strong reference.
        trace: The profiler's span in eager mode.
    """

    graph: Any
    start: int
    kind: CallKind
    layer: Any
    trace: Any


def enter(kind: CallKind, layer: Any, persistent: bool = False) -> OpenCall | None:
    """Note where a call begins; return None if there is nothing to note.

    Args:
        kind: The kind of call.
        layer: The layer, None for other kinds.
        persistent: Whether the tape of a backward pass keeps its tensors saved for backward afterwards.
    """
    try:
        if not call_notes.active:
            return None
        import tensorflow as tf

        if tf.executing_eagerly():
            return _enter_eager(tf, kind, layer, persistent)
        graph = tf.compat.v1.get_default_graph()
        call_notes.stack.append(layer)
        return OpenCall(graph, graph.version, kind, layer, None)
    except Exception:
        logger.debug("a %s call could not be observed", kind, exc_info=True)
        return None


def _enter_eager(tf: Any, kind: CallKind, layer: Any, persistent: bool) -> OpenCall | None:
    paths = call_notes.eager_paths
    if paths is None:
        return None
    name = paths.get(id(layer)) if kind == "layer" else KEEPING_BACKWARD if persistent else f"({kind})"
    if name is None:
        return None
    lines = call_notes.eager_lines
    line = None if lines is None else lines.calling()
    trace = tf.profiler.experimental.Trace(LAYER_PREFIX + name + ("" if line is None else LINE_MARK + line))
    trace.__enter__()
    return OpenCall(None, 0, kind, layer, trace)


def leave(call: OpenCall) -> None:
    """Note where a call ends."""
    try:
        if call.trace is not None:
            call.trace.__exit__(None, None, None)
            return
        call_notes.traced_calls += 1
        changes.note()
        stack = call_notes.stack
        stack.pop()
        layer = None
        if call.layer is not None:
            layer = weakref.ref(call.layer)
            if next(caller for caller in (*stack, call.layer) if caller is not None) is call.layer:
                call_notes.outermost_layers.add(call.layer)
        call_notes.notes(call.graph).spans.append(
            Span(call.start, call.graph.version, len(stack), threading.get_ident(), call.kind, layer)
        )
    except Exception:
        logger.debug("a %s call could not be observed", call.kind, exc_info=True)
