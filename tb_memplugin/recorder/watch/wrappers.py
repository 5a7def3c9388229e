"""Wrappers of the calls that are observed, and `Hooks`, which installs them while at least one
observer needs them.

A function that runs from its graph calls no layer, ``Optimizer.apply`` or tape, so observing these
costs nothing then. Each such call has a span: a range of ops in the graph, or in eager mode a span
on the profile's timeline. `enter` and `leave`, which begin and end it, never raise: they run inside
the user's training code."""

import contextlib
import functools
import math
import pathlib
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

from tb_memplugin.attribution import BACKWARD, DIFFERENTIATED_BACKWARD, KEEPING_BACKWARD
from tb_memplugin.environment import OWN_FILES
from tb_memplugin.recorder.base import (
    abandon_in_child,
    changes,
    contained,
    is_a,
    own,
    own_list,
    quiet,
)
from tb_memplugin.recorder.devices import keep_peak, tensor_address
from tb_memplugin.recorder.heap import (
    DATASET_METHODS,
    TRAINER_METHODS,
)
from tb_memplugin.recorder.watch.batches import batch_notes, tape_records
from tb_memplugin.recorder.watch.counters import program_counters, traces_of
from tb_memplugin.recorder.watch.datasets import data_pipelines
from tb_memplugin.recorder.watch.layers import packages
from tb_memplugin.recorder.watch.notes import (
    DATA_ARGUMENTS,
    CallKind,
    Span,
    call_notes,
    input_notes,
)
from tb_memplugin.recorder.watch.variable_values import replicas, tensor_size
from tb_memplugin.schema import LAYER_PREFIX, LINE_MARK

# called instead of a method, with the method itself before its arguments
Wrapper: TypeAlias = Callable[..., Any]


class _HiddenFiles:
    """The files of this package, in the place of a filter of TensorFlow's for the lines at which an
    op is defined."""

    def __init__(self) -> None:
        from tensorflow.python.util import tf_stack

        self.internal_set = tf_stack.StackTraceFilter().internal_set
        self._files = frozenset(map(str, pathlib.Path(OWN_FILES).rglob("*.py")))
        self.internal_set.update_to(set(self._files))
        self.stacks = tf_stack.StackTraceFilter._stack_dict

    def get_filtered_filenames(self) -> frozenset[str]:
        return self._files


@functools.cache
@quiet
def _hidden_files() -> _HiddenFiles | None:
    """None if lines of this package stay in TensorFlow's messages."""
    return _HiddenFiles()


@contextlib.contextmanager
def _without_own_lines() -> Iterator[None]:
    """Leave out the lines of this package where TensorFlow says at which an op was defined that it
    adds meanwhile."""
    hidden = _hidden_files()
    stack = [] if hidden is None else hidden.stacks[threading.get_ident()]
    stack.append(hidden)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            stack.remove(hidden)


def _hide_frames() -> None:
    """Have TensorFlow and Keras leave the frames of this package out of tracebacks, as they do with
    their own ones."""
    of_keras = (f"{keras.__name__}.src.utils.traceback_utils" for keras in packages())
    for utils in map(sys.modules.get, ("tensorflow.python.util.traceback_utils", *of_keras)):
        with contextlib.suppress(AttributeError):
            if OWN_FILES not in utils._EXCLUDED_PATHS:  # type: ignore[union-attr]  # None has none
                utils._EXCLUDED_PATHS = (*utils._EXCLUDED_PATHS, OWN_FILES)  # type: ignore[union-attr]


class OpenCall(NamedTuple):
    graph: Any  # the function graph that is being traced; None in eager mode
    start: int  # number of its first op
    kind: CallKind
    layer: Any  # a strong reference
    trace: Any  # the profiler's span in eager mode


@quiet
def enter(kind: CallKind, layer: Any, tape: Any = None) -> OpenCall | None:
    """Note where a call begins; return None if there is nothing to note. A backward pass has a
    `tape`."""
    if not call_notes.active:
        return None
    import tensorflow as tf

    if tf.executing_eagerly():
        return _enter_eager(tf, kind, layer, tape)
    graph = tf.compat.v1.get_default_graph()
    here = call_notes.of_thread
    if None not in here.stack:  # a recomputation has a tape of its own
        here.again.clear()
    elif kind == "layer":
        here.again.add(id(layer))
        import keras

        # Whether the call changes no variables: statistics and seeds.
        call_notes.recomputed[layer] = bool(
            keras.src.backend.common.stateless_scope.in_stateless_scope()
        )
    here.stack.append(layer)
    return OpenCall(graph, graph.version, kind, layer, None)


def _enter_eager(tf: Any, kind: CallKind, layer: Any, tape: Any) -> OpenCall | None:
    paths, lines = call_notes.eager_paths, call_notes.eager_lines
    if paths is None:
        return None
    name = paths.get(id(layer)) if kind == "layer" else f"({kind})"
    if tape is not None:
        differentiated = not tape._recording and tape_records()
        kept = KEEPING_BACKWARD if tape._persistent else BACKWARD
        name = DIFFERENTIATED_BACKWARD if differentiated else kept
    if name is None:
        return None
    line = None if lines is None else lines.calling(layer)
    name = LAYER_PREFIX + name + ("" if line is None else LINE_MARK + line)
    trace = tf.profiler.experimental.Trace(name)
    trace.__enter__()
    return OpenCall(None, 0, kind, layer, trace)


def _is_outermost(layer: Any) -> bool:
    callers = (caller for caller in call_notes.of_thread.stack if caller is not None)
    return next(callers, layer) is layer


@quiet
def leave(call: OpenCall | None, target: Any = None) -> None:
    """Note where a call ends; `target` is what a backward pass differentiates."""
    if call is None:
        return
    if call.trace is not None:
        call.trace.__exit__(None, None, None)
        return
    call_notes.traced_calls += 1
    changes.note()
    stack = call_notes.of_thread.stack
    stack.pop()
    notes = call_notes.notes(call.graph)
    if call.kind == "backward":
        batch_notes.backward_passes += 1
        # Layers of the graph that it has not called again are not recomputed.
        for span in notes.spans if None not in stack else ():
            layer = None if span.layer is None else span.layer()
            if layer is not None and id(layer) not in call_notes.of_thread.again:
                call_notes.recomputed.pop(layer)
    if call.layer is not None and _is_outermost(call.layer):
        call_notes.outermost_layers.add(call.layer)
    targets = (one for one in _flat(target) if getattr(one, "graph", None) is call.graph)
    span = Span(
        start=call.start,
        end=call.graph.version,
        depth=len(stack),
        thread=threading.get_ident(),
        kind=call.kind,
        layer=None if call.layer is None else weakref.ref(call.layer),
        targets=tuple(one.op.name for one in targets),
        recorded=call.kind == "backward" and tape_records(),
    )
    notes.spans.append(span)


def layer_call(original: Any, self: Any, /, *args: Any, **kwargs: Any) -> Any:
    opened, outermost = enter("layer", self), input_notes.begin()
    if opened is not None and opened.graph is not None and _is_outermost(self):
        batch_notes.model_called(args, kwargs)
    if outermost:
        batch_notes.given([args, kwargs])
        input_notes.data([args, kwargs], is_argument=True)
    try:
        result = original(self, *args, **kwargs)
    except BaseException:
        if outermost:
            batch_notes.given([args, kwargs], failed=True)
        raise
    finally:
        input_notes.end(outermost)
        leave(opened)
    if outermost:
        input_notes.results(result)
    return result


def optimizer_apply(
    original: Any, self: Any, /, grads: Any, trainable_variables: Any = None
) -> Any:
    opened = enter("update", None)
    if opened is not None:
        grads = _listed(grads)
        if trainable_variables is None:
            _note_gradients(own_list(self, "_trainable_variables"), grads)
        else:
            trainable_variables = _listed(trainable_variables)
            _note_gradients(trainable_variables, grads)
    return _update(self, opened, original, grads, trainable_variables)


def optimizer_apply_gradients(
    original: Any, self: Any, /, grads_and_vars: Any, *args: Any, **kwargs: Any
) -> Any:
    opened = enter("update", None)
    if opened is not None:
        grads_and_vars = _listed(grads_and_vars)
        _note_gradients(
            [variable for _, variable in grads_and_vars],
            [gradient for gradient, _ in grads_and_vars],
        )
    return _update(self, opened, original, grads_and_vars, *args, **kwargs)


def _update(
    optimizer: Any, opened: OpenCall | None, original: Any, /, *args: Any, **kwargs: Any
) -> Any:
    try:
        if opened is not None:
            call_notes.optimizers.add(optimizer)
        result = original(optimizer, *args, **kwargs)
    finally:
        leave(opened)
    if call_notes.active:
        program_counters.models.applied(optimizer)
    return result


def tape_gradient(original: Any, self: Any, /, target: Any, *args: Any, **kwargs: Any) -> Any:
    """Of ``gradient``, ``jacobian`` and ``batch_jacobian``, whose argument is called ``source``."""
    opened = enter("backward", None, self)
    try:
        result = original(self, target, *args, **kwargs)
    finally:
        leave(opened, target)
    if opened is not None:
        _note_gradients(args[0] if args else kwargs.get("sources", kwargs.get("source")), result)
    return result


def _listed(values: Any) -> Any:
    # A generator can be read only once: the optimizer gets the list.
    return values if isinstance(values, (list, tuple)) else list(values)


@quiet
def _note_gradients(sources: Any, gradients: Any) -> None:
    """Note which op made the gradient of which variable."""
    import tensorflow as tf

    is_eager, noted = tf.executing_eagerly(), call_notes.eager_gradients
    for variable, gradient in zip(_flat(sources), _flat(gradients), strict=False):
        if gradient is None or not replicas(variable):
            continue
        reference = weakref.ref(variable)
        sparse = is_a(gradient, tf.IndexedSlices)
        for tensor in (gradient.values, gradient.indices) if sparse else (gradient,):
            if not is_eager:
                output = tensor.op.name, tensor.value_index, reference
                call_notes.notes(tensor.graph).gradients.append(output)
            elif call_notes.eager_paths is not None and noted is not None:
                address = tensor_address(tensor)
                if address is not None:
                    noted.append((address, tensor_size(tensor), reference))


def _flat(values: Any) -> list[Any]:
    import tensorflow as tf

    flat = tf.nest.flatten(values)
    return [one.flat_values if is_a(one, tf.RaggedTensor) else one for one in flat]


def returns_data(original: Any, self: Any, /, *args: Any, **kwargs: Any) -> Any:
    result = original(self, *args, **kwargs)
    input_notes.data(result)
    return result


def next_element(original: Any, self: Any, /, *args: Any, **kwargs: Any) -> Any:
    if input_notes.active:
        program_counters.datasets.iterated(self)
        batch_notes.iterated(self)
        input_notes.iterator(self)
        _note_pipeline(self)
    result = original(self, *args, **kwargs)
    if input_notes.active:
        input_notes.data(result, line=input_notes.drawing_line())
    return result


def makes_iterator(original: Any, self: Any, /, *args: Any, **kwargs: Any) -> None:
    original(self, *args, **kwargs)
    _note_pipeline(self)


def _note_pipeline(iterator: Any) -> None:
    try:
        data_pipelines.note(iterator)
    except Exception:  # recording must not stop the program
        data_pipelines.active = False


def makes_model(original: Any, self: Any, /, *args: Any, **kwargs: Any) -> None:
    original(self, *args, **kwargs)
    if input_notes.active:
        program_counters.models.note(self)


def loads_model(original: Any, self: Any, /, *args: Any, **kwargs: Any) -> None:
    original(self, *args, **kwargs)
    if input_notes.active:
        functions = contained(own(self, "_concrete_functions")) or []
        graphs = [own(function, "_func_graph") for function in functions]
        program_counters.models.loaded(own_list(self, "_nodes"), graphs)


def takes_data(original: Any, self: Any, /, *args: Any, **kwargs: Any) -> Any:
    if input_notes.active:
        program_counters.models.note(self)
    values = [*args, *(kwargs.get(name) for name in DATA_ARGUMENTS)]
    input_notes.data(values, math.inf if original.__name__ in DATASET_METHODS else None)
    try:
        result = original(self, *args, **kwargs)
    finally:
        input_notes.data(values)
    program_counters.models.used(self)
    return result


def function_call(original: Any, self: Any, /, *args: Any, **kwargs: Any) -> Any:
    outermost = input_notes.begin()
    if outermost is None:
        return original(self, *args, **kwargs)
    traced_calls, traces, tracing = call_notes.traced_calls, traces_of(self), batch_notes.tracing()
    try:
        with _without_own_lines() if outermost else contextlib.nullcontext():
            result = original(self, *args, **kwargs)
    except BaseException:
        if outermost:
            known = batch_notes.function_called(self, tracing)
            batch_notes.given([args, kwargs], self, known, failed=True)
        raise
    finally:
        input_notes.end(outermost)
    if input_notes.active:
        program_counters.functions.called(self, traces, args, kwargs)
        for arg in args:
            if own(arg, "_iterator_resource") is not None:
                program_counters.datasets.iterated(arg)
    if call_notes.traced_calls != traced_calls:
        input_notes.function(self)
    known, calls_layers = batch_notes.function_called(self, tracing), input_notes.calls_layers(self)
    if outermost and (calls_layers or (known is not None and known.trains)):
        batch_notes.given([args, kwargs], self, known)
    if outermost and calls_layers:
        input_notes.data([args, kwargs], is_argument=True)
        input_notes.results(result)
    return result


def session_run(original: Any, self: Any, /, *args: Any, **kwargs: Any) -> Any:
    if call_notes.active:
        _note_session(self, args, kwargs)
    return original(self, *args, **kwargs)


@quiet
def _note_session(session: Any, args: Any, kwargs: Any) -> None:
    call_notes.notes(session.graph)
    fed = args[1] if len(args) > 1 else kwargs.get("feed_dict")
    batch_notes.given([list((fed or {}).values())])


def resets_peak(original: Callable[..., Any], context: Any, device: str) -> Any:
    if call_notes.active:
        with contextlib.suppress(Exception):  # an unknown device, which TensorFlow reports
            keep_peak(device)
            changes.note()
    return original(context, device)


class Hooks:
    """Counts observers; the first one installs the wrappers and the last one removes them.
    Thread-safe."""

    def __init__(self) -> None:
        self._users = 0
        self._originals: list[tuple[Any, str, Any, Any]] = []
        self._lock = threading.Lock()

    def acquire(self) -> None:
        with self._lock:
            self._users += 1
            if self._users > 1:
                return
            call_notes.active = True
            try:
                _hide_frames()
                for (owner, name), wrapper in places().items():
                    original = vars(owner)[name]
                    replacement = _wrapped(original, wrapper)
                    setattr(owner, name, replacement)
                    self._originals.append((owner, name, original, replacement))
                input_notes.active = data_pipelines.active = True
            except Exception:
                self._restore()
                self._users = 0
                raise

    def release(self) -> None:
        with self._lock:
            self._users = max(0, self._users - 1)
            if not self._users:
                self._restore()

    @property
    def busy(self) -> bool:
        """Whether a thread, maybe this one, is inside a method; a finalizer must not wait for
        that."""
        return self._lock.locked()

    def _abandon(self) -> None:
        self._lock, self._users = threading.Lock(), 0
        self._restore()
        call_notes.abandon()

    def _restore(self) -> None:
        call_notes.active = input_notes.active = data_pipelines.active = False
        for owner, name, original, replacement in reversed(self._originals):
            # If somebody else wrapped our wrapper, theirs stays and calls ours, which then only
            # calls the original.
            if vars(owner).get(name) is replacement:
                setattr(owner, name, original)
        self._originals.clear()


def _wrapped(original: Any, wrapper: Wrapper) -> Any:
    # functools.wraps keeps Keras's module name; AutoGraph does not convert functions of that
    # module.
    @functools.wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return wrapper(original, self, *args, **kwargs)

    return call


def places() -> dict[tuple[Any, str], Wrapper]:
    """(class that defines a method, its name) to the wrapper, for each method that this TensorFlow
    and Keras have."""
    import tensorflow as tf
    from tensorflow.python.client.session import BaseSession
    from tensorflow.python.data.ops import iterator_ops, multi_device_iterator_ops, optional_ops
    from tensorflow.python.eager.context import Context
    from tensorflow.python.eager.polymorphic_function import polymorphic_function
    from tensorflow.python.saved_model import load

    iterator = getattr(iterator_ops, "OwnedIterator", None)
    several = getattr(multi_device_iterator_ops, "OwnedMultiDeviceIterator", None)
    methods: list[tuple[Any, str, Wrapper]] = [
        (tf.GradientTape, "gradient", tape_gradient),
        (tf.GradientTape, "jacobian", tape_gradient),
        (tf.GradientTape, "batch_jacobian", tape_gradient),
        (iterator, "_next_internal", next_element),
        (iterator, "__init__", makes_iterator),
        (several, "__init__", makes_iterator),
        (getattr(optional_ops, "_OptionalImpl", None), "get_value", returns_data),
        (getattr(polymorphic_function, "Function", None), "_call", function_call),
        (BaseSession, "run", session_run),
        (Context, "reset_memory_stats", resets_peak),
        (getattr(load, "Loader", None), "__init__", loads_model),
    ]
    for keras in packages():
        methods += [
            (keras.layers.Layer, "__call__", layer_call),
            (keras.Model, "__init__", makes_model),
        ]
        methods += [(keras.Model, name, takes_data) for name in TRAINER_METHODS]
        optimizers, base = keras.optimizers, keras.optimizers.Optimizer
        if hasattr(base, "apply"):
            kinds = base, optimizers.LossScaleOptimizer
            methods += [(kind, "apply", optimizer_apply) for kind in kinds]
        else:
            kinds = base, optimizers.legacy.Optimizer
            methods += [(kind, "apply_gradients", optimizer_apply_gradients) for kind in kinds]
    found: dict[tuple[Any, str], Wrapper] = {}
    for kind, name, wrapper in methods:
        for owner in getattr(kind, "__mro__", ())[:-1]:
            if name in vars(owner):
                found[owner, name] = wrapper
                break
    return found


hooks = Hooks()
abandon_in_child(hooks)
