"""Watches a program while TensorFlow traces its functions, and learns which layer made which op.

Name scopes do not identify layers, so nothing is read from names that can be seen happening:
`keras.layers.Layer.__call__` is wrapped for as long as somebody has acquired the `hooks`, and notes in which range of
the function graph under construction each layer's call made its ops. The same is done for ``GradientTape.gradient``
(which op made the gradient of which variable) and for ``Optimizer.apply``. A function that runs from its graph passes
none of these, so observing costs nothing then. What was seen stays with the process, weakly held by graph, so that a
later observer knows the functions that an earlier one saw being traced.
"""

import functools
import logging
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from tb_memplugin.importers.xplane import LAYER_PREFIX

logger = logging.getLogger("tb_memplugin")


class Span(NamedTuple):
    """A range of ops of one graph that one call made.

    `layer` is the layer that was called (weakly held), `outermost` the first one on the stack of calls; both None for
    other `kind`s (``backward``, ``update``). `depth` is the number of calls round it on its thread: the replicas of a
    distributed step are traced in turn, each on a thread of its own, while the optimizers of those before wait.
    """

    start: int
    end: int
    depth: int
    thread: int
    kind: str
    layer: Any
    outermost: Any


class GraphNotes:
    """What was seen while one function graph was made."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.gradients: list[tuple[str, int, Any]] = []  # op, which of its results, weak reference to the variable


class _Seen:
    """Process-wide notes, and the stack of calls of each thread."""

    def __init__(self) -> None:
        self.graphs: weakref.WeakKeyDictionary[Any, GraphNotes] = weakref.WeakKeyDictionary()
        self.outermost: weakref.WeakSet[Any] = weakref.WeakSet()
        self.optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self.eager_gradients: list[tuple[int, int, Any]] | None = None
        self.calls_in_graphs = 0
        self.lock = threading.Lock()
        self._local = threading.local()

    @property
    def stack(self) -> list[Any]:
        """Calls that this thread is in: layers, or None for a pass."""
        try:
            stack: list[Any] = self._local.stack
        except AttributeError:
            stack = self._local.stack = []
        return stack

    def notes(self, graph: Any) -> GraphNotes:
        with self.lock:
            notes = self.graphs.get(graph)
            if notes is None:
                notes = self.graphs[graph] = GraphNotes()
            return notes


seen = _Seen()


class _Hooks:
    """The wrappers, in place while at least one observer is installed."""

    def __init__(self) -> None:
        self.users = 0
        self._originals: list[tuple[Any, str, Any, Any]] = []
        self._lock = threading.Lock()
        self.tracing: Mapping[int, str] | None = None  # id(layer) -> path while a profiler window is open

    def acquire(self) -> None:
        with self._lock:
            self.users += 1
            if self.users == 1:
                try:
                    self._place()
                except Exception:
                    self._restore()
                    self.users = 0
                    raise

    def release(self) -> None:
        with self._lock:
            self.users = max(0, self.users - 1)
            if not self.users:
                self._restore()

    def _place(self) -> None:
        import keras
        import tensorflow as tf

        self._wrap(keras.layers.Layer, "__call__", _layer_call)
        for optimizer in {keras.optimizers.Optimizer, keras.optimizers.LossScaleOptimizer}:
            owner = next(kind for kind in optimizer.__mro__ if "apply" in vars(kind))
            if not any(owner is kind for kind, *_ in self._originals):
                self._wrap(owner, "apply", _apply)
        self._wrap(tf.GradientTape, "gradient", _gradient)

    def _wrap(self, owner: Any, name: str, wrapper: Callable[[Any], Any]) -> None:
        original = vars(owner)[name]
        replacement = wrapper(original)
        setattr(owner, name, replacement)
        self._originals.append((owner, name, original, replacement))

    def _restore(self) -> None:
        for owner, name, original, replacement in reversed(self._originals):
            # If somebody wrapped ours, theirs stays, and calls ours, which then only calls on.
            if vars(owner).get(name) is replacement:
                setattr(owner, name, original)
        self._originals.clear()


hooks = _Hooks()


def _layer_call(original: Any) -> Any:
    # functools.wraps keeps Keras's module name, by which AutoGraph knows that the function is not to be converted.
    @functools.wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        mark = _enter("layer", self)
        try:
            return original(self, *args, **kwargs)
        finally:
            if mark is not None:
                _leave(mark)

    return call


def _apply(original: Any) -> Any:
    @functools.wraps(original)
    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        mark = _enter("update", None)
        if mark is not None:
            seen.optimizers.add(self)
            variables = (
                trainable_variables if trainable_variables is not None else getattr(self, "_trainable_variables", ())
            )
            grads, variables = _listed(grads), _listed(variables)
            trainable_variables = None if trainable_variables is None else variables
            _note_gradients(variables, grads)
        try:
            return original(self, grads, trainable_variables)
        finally:
            if mark is not None:
                _leave(mark)

    return apply


def _listed(values: Any) -> Any:
    # A generator can be read only once: the optimizer gets what was read of it.
    return values if isinstance(values, (list, tuple)) else list(values)


def _gradient(original: Any) -> Any:
    @functools.wraps(original)
    def gradient(self: Any, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        mark = _enter("backward", None)
        try:
            result = original(self, target, sources, *args, **kwargs)
        finally:
            if mark is not None:
                _leave(mark)
        if mark is not None:
            _note_gradients(sources, result)
        return result

    return gradient


class _Mark(NamedTuple):
    graph: Any
    start: int
    kind: str
    layer: Any
    span: Any  # the profiler's span in eager mode


def _enter(kind: str, layer: Any) -> _Mark | None:
    """Notes where a call begins; None if there is nothing to note. Never raises."""
    try:
        if not hooks.users:
            return None
        import tensorflow as tf

        if tf.executing_eagerly():
            return _enter_eager(tf, kind, layer)
        graph = tf.compat.v1.get_default_graph()
        seen.stack.append(layer)
        return _Mark(graph, graph.version, kind, layer, None)
    except Exception:
        logger.debug("a %s call could not be observed", kind, exc_info=True)
        return None


def _enter_eager(tf: Any, kind: str, layer: Any) -> _Mark | None:
    paths = hooks.tracing
    if paths is None:
        return None
    name = paths.get(id(layer)) if kind == "layer" else f"({kind})"
    if name is None:
        return None
    span = tf.profiler.experimental.Trace(LAYER_PREFIX + name)
    span.__enter__()
    return _Mark(None, 0, kind, layer, span)


def _leave(mark: _Mark) -> None:
    """Notes where a call ends. Never raises."""
    try:
        if mark.span is not None:
            mark.span.__exit__(None, None, None)
            return
        seen.calls_in_graphs += 1
        stack = seen.stack
        stack.pop()
        layer = outermost = None
        if mark.layer is not None:
            first = next(caller for caller in (*stack, mark.layer) if caller is not None)
            layer, outermost = weakref.ref(mark.layer), weakref.ref(first)
            if first is mark.layer:
                seen.outermost.add(first)
        seen.notes(mark.graph).spans.append(
            Span(mark.start, mark.graph.version, len(stack), threading.get_ident(), mark.kind, layer, outermost)
        )
    except Exception:
        logger.debug("a %s call could not be observed", mark.kind, exc_info=True)


def _note_gradients(sources: Any, results: Any) -> None:
    """Notes which op made the gradient of which variable. Never raises."""
    try:
        import tensorflow as tf

        for variable, gradient in zip(_flat(sources), _flat(results), strict=False):
            handle = getattr(getattr(variable, "value", variable), "handle", None)
            handle = getattr(variable, "handle", None) if handle is None else handle
            if gradient is None or handle is None:
                continue
            reference = weakref.ref(variable)
            sparse = isinstance(gradient, tf.IndexedSlices)
            for tensor in (gradient.values, gradient.indices) if sparse else (gradient,):
                if tf.executing_eagerly():
                    if hooks.tracing is not None and seen.eager_gradients is not None:
                        from tb_memplugin.recorder.observe_variables import tensor_address

                        address = tensor_address(tensor)
                        if address is not None:
                            seen.eager_gradients.append(
                                (address, tensor.shape.num_elements() * tensor.dtype.size, reference)
                            )
                else:
                    seen.notes(tensor.graph).gradients.append((tensor.op.name, tensor.value_index, reference))
    except Exception:
        logger.debug("gradients could not be observed", exc_info=True)


def _flat(values: Any) -> Iterable[Any]:
    import tensorflow as tf

    if isinstance(values, (list, tuple)):
        return (item for value in values for item in _flat(value))
    if isinstance(values, dict):
        return (item for key in sorted(values) for item in _flat(values[key]))
    return (values,) if not isinstance(values, tf.RaggedTensor) else (values.flat_values,)
