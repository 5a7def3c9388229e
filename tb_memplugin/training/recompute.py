"""Runs a segment of layers so that its results are computed again in the backward pass instead of
being saved.

In a pass, Keras's variables are given tensors, so that a second pass repeats the first. The segment
is traced once before: which variables it reads, and whether a second pass would repeat the
first."""

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf
from keras.src.backend.common import global_state
from tensorflow.python.ops import control_flow_util

from tb_memplugin.errors import RecomputationError
from tb_memplugin.recorder.watch import repeats

ONLY_DENSE = "Only dense tensors can be."
Run = Callable[[list[Any], Callable[[str], None]], list[Any]]
"""Runs a segment's layers on flat tensors and returns flat tensors; calls back with the name of
each layer that ran."""


def refuse(layer: str, why: str, instead: str = "") -> RecomputationError:
    return RecomputationError(
        f"Layer {layer} cannot be recomputed exactly: {why}. {instead}".rstrip()
    )


class RecordingScope(keras.StatelessScope):  # type: ignore[misc]
    """A stateless scope that remembers which variables were read without a given value, and which
    were updated."""

    def __init__(self, values: Iterable[tuple[Any, Any]] = ()) -> None:
        super().__init__(state_mapping=list(values), collect_losses=True)
        self.unknown: dict[int, Any] = {}
        self.updated: dict[int, Any] = {}

    def get_current_value(self, variable: Any) -> Any:
        value = super().get_current_value(variable)
        if value is None:
            self.unknown[id(variable)] = variable
        return value

    def add_update(self, update: tuple[Any, Any]) -> None:
        self.updated[id(update[0])] = update[0]
        super().add_update(update)


class Passed(NamedTuple):
    """What a pass returned."""

    outputs: list[Any]
    losses: list[tuple[Any, Any]]  # the layer that added each
    updates: list[tuple[Any, Any]]  # variable and its last value
    unknown: list[Any]  # variables that were read and given no value

    def differentiable(self) -> list[Any]:
        return [
            tensor
            for tensor in (*self.outputs, *(loss for _, loss in self.losses))
            if is_floating(tensor)
        ]


class _Context(keras.layers.Layer):  # type: ignore[misc]
    """Calls a function as Keras calls a layer: layers inside inherit `training`, and no dtype is
    cast."""

    def __init__(self) -> None:
        super().__init__(name="recomputed", autocast=False, dtype="float32")

    def call(self, *tensors: Any, training: Any = None) -> Any:
        return self.function(list(tensors), training)

    def compute_mask(self, inputs: Any, previous_mask: Any) -> None:
        """Nothing: the layers inside have put their masks on their outputs."""


def call_in_context(
    function: Callable[[list[Any], Any], Any], tensors: Sequence[Any], training: Any = None
) -> Any:
    """`training` is the caller's unless it is given."""
    context = _Context()
    object.__setattr__(context, "function", function)
    return context(*tensors) if training is None else context(*tensors, training=training)


def exact_pass(
    run: Run,
    layers: Sequence[Any],
    tensors: Sequence[Any],
    masks: Sequence[Any],
    values: Iterable[tuple[Any, Any]],
    after: Callable[[str], None] = lambda name: None,
) -> Passed:
    """Run a segment on tensors with these masks and with these values of variables. No variable
    changes."""
    for tensor, mask in zip(tensors, masks, strict=True):
        if mask is not None:
            tensor._keras_mask = mask
    with RecordingScope(values) as scope:
        outputs = run(list(tensors), after)
    every = [sub for layer in layers for sub in layer._flatten_layers()]
    losses = []
    for loss in scope.losses:
        owners = [layer for layer in every if id(loss) in layer._loss_ids]
        losses.append(((owners or layers)[0], loss))
        for owner in owners:
            owner._loss_ids.discard(id(loss))
    updates = [(variable, scope.get_current_value(variable)) for variable in scope.updated.values()]
    return Passed(outputs, losses, updates, list(scope.unknown.values()))


def is_floating(tensor: Any) -> bool:
    dtype = getattr(tensor, "dtype", None)
    return bool(getattr(dtype, "is_floating", False) or getattr(dtype, "is_complex", False))


def _read_variables(
    run: Run, layers: Sequence[Any], tensors: Sequence[Any], masks: Sequence[Any]
) -> list[Any]:
    for layer in layers:
        for sub in layer._flatten_layers():
            if getattr(sub, "_remat_mode", None) is not None:
                raise refuse(
                    sub.name, "it was created in a keras.RematScope", "Create it without the scope."
                )
    variables = {id(variable): variable for layer in layers for variable in layer.variables}
    for _ in range(3):
        with _unbuilt(layers):
            unknown = _trace(run, layers, tensors, masks, list(variables.values()))
        if not unknown:
            return list(variables.values())
        variables.update((id(variable), variable) for variable in unknown)
    raise refuse(layers[0].name, f"each call reads a new variable, {unknown[0].name}")


@contextlib.contextmanager
def _unbuilt(layers: Sequence[Any]) -> Iterator[None]:
    """Refuse a layer that the trace would build: its variables would belong to a graph that is
    thrown away."""
    called: list[str] = []

    def build(name: str, *arguments: Any, **keywords: Any) -> None:
        called.append(name)
        raise RuntimeError(f"{name} is not built")

    # Keras gives each layer a `build` of its own; the default one makes no variables.
    every = [sub for layer in layers for sub in layer._flatten_layers()]
    unbuilt = [
        sub for sub in every if not sub.built and not getattr(sub.build, "_is_default", False)
    ]
    own = [vars(sub)["build"] for sub in unbuilt]
    for sub in unbuilt:
        vars(sub)["build"] = functools.partial(build, sub.name)
    try:
        yield
    except Exception as error:
        if called:
            raise refuse(
                called[0], "it is not built", "Call the model on a batch first."
            ) from error
        raise
    finally:
        for sub, before in zip(unbuilt, own, strict=True):
            vars(sub)["build"] = before


def _trace(
    run: Run,
    layers: Sequence[Any],
    tensors: Sequence[Any],
    masks: Sequence[Any],
    variables: list[Any],
) -> list[Any]:
    """Check one trace; return variables that it read and that are not among `variables`."""
    passes: list[Passed] = []
    stateful: list[tuple[str, str]] = []
    present = [mask for mask in masks if mask is not None]

    def traced(*arguments: Any) -> None:
        stateful.clear()
        graph = tf.compat.v1.get_default_graph()
        values = list(zip(variables, arguments[len(tensors) + len(present) :], strict=True))
        given = iter(arguments[len(tensors) :])
        its_masks = [None if mask is None else next(given) for mask in masks]
        checked = {op.name for op in graph.get_operations()}

        def after(name: str) -> None:
            for op in graph.get_operations():
                if op.name not in checked and not repeats(op.type, op.op_def.is_stateful):
                    stateful.append((name, op.type))
                checked.add(op.name)

        def function(inputs: list[Any], training: Any) -> tuple[()]:
            passes.append(exact_pass(run, layers, inputs, its_masks, values, after))
            return ()

        call_in_context(function, arguments[: len(tensors)], training=True)

    specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in (*tensors, *present)]
    specs += [tf.TensorSpec(variable.shape, variable.dtype) for variable in variables]
    # Hide the call of the model that is under way: a layer's call would change its `training`
    # argument.
    under_way = global_state.get_global_attribute("current_call_ctx")
    global_state.set_global_attribute("current_call_ctx", None)
    try:
        with tf.init_scope():
            tf.function(traced, autograph=False).get_concrete_function(*specs)
    finally:
        global_state.set_global_attribute("current_call_ctx", under_way)
    passed = passes[-1]  # TensorFlow traces again if the first trace has created a variable
    if passed.unknown:
        return passed.unknown
    for name, kind in stateful:
        raise refuse(name, f"a second run of its {kind} op may return something else")
    for variable, _ in passed.updates:
        if variable.trainable:
            owner = next(
                (one for one in layers if any(each is variable for each in one.variables)),
                layers[0],
            )
            raise refuse(
                owner.name, f"it changes its trainable weight {variable.name} in the forward pass"
            )
    return []


class Segment:
    """Layers that are recomputed together."""

    def __init__(self, layers: Sequence[Any]) -> None:
        self.layers = layers
        self._variables: list[Any] | None = None  # known after the first call

    def check(
        self, run: Run, tensors: Sequence[Any], masks: Sequence[Any] | None = None
    ) -> list[Any]:
        """The Keras variables that the segment reads; `RecomputationError` if it cannot be
        recomputed exactly. Traces it with `training=True` into a graph that is thrown away."""
        if self._variables is None:
            self._variables = _read_variables(
                run, self.layers, tensors, masks or [None] * len(tensors)
            )
        return self._variables

    def recompute(self, run: Run, tensors: Sequence[Any]) -> list[Any]:
        """The outputs of the segment. Variables change, and losses are added, as in an ordinary
        call."""
        for tensor in tensors:
            if not isinstance(tensor, tf.Tensor):
                raise refuse(self.layers[0].name, f"it takes a {type(tensor).__name__}", ONLY_DENSE)
        masks = [getattr(tensor, "_keras_mask", None) for tensor in tensors]
        variables = self.check(run, tensors, masks)

        def function(inputs: list[Any], training: Any) -> list[Any]:
            passed, connected = _connect(self.layers, run, inputs, masks, variables, training)
            results = iter(connected)
            outputs = [
                next(results) if is_floating(output) else output for output in passed.outputs
            ]
            for (layer, _), result in zip(passed.losses, results, strict=True):
                layer.add_loss(result)
            for variable, value in passed.updates:
                variable.assign(value)
            for output, first in zip(outputs, passed.outputs, strict=True):
                mask = getattr(first, "_keras_mask", None)
                if mask is not None:
                    output._keras_mask = mask
            return outputs

        return list(call_in_context(function, tensors))


def _dependent(tensors: Sequence[Any], upstream: Sequence[Any]) -> list[Any]:
    """The same tensors, which XLA cannot compute before the gradients from behind: it ignores
    control dependencies, and would merge a second pass over the same values with the first one. It
    cannot simplify the comparison, as `tf.recompute_grad` relies on, too."""
    gradient = upstream[0].values if isinstance(upstream[0], tf.IndexedSlices) else upstream[0]
    flag = tf.cast(tf.reduce_max(tf.reshape(gradient, [-1])[:1]), tf.bool)
    return [
        tf.where(tf.equal(flag, flag), tensor, tf.zeros((), tensor.dtype)) for tensor in tensors
    ]


def _connect(
    layers: Sequence[Any],
    run: Run,
    tensors: list[Any],
    masks: list[Any],
    variables: list[Any],
    training: Any,
) -> tuple[Passed, list[Any]]:
    """The first pass, and its differentiable results with a gradient that makes a second pass. The
    values of variables are read here, before the first pass, and are arguments of the gradient like
    the inputs: the second pass starts from the same random seeds and sees the same weights,
    whatever has changed them meanwhile."""
    values = [tf.convert_to_tensor(variable.value) for variable in variables]
    first: list[Passed] = []
    needs = [is_floating(tensor) for tensor in tensors]
    needs += [bool(variable.trainable) and is_floating(variable.value) for variable in variables]

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def through(*arguments: Any) -> tuple[list[Any], Any]:
        inputs, states = arguments[: len(tensors)], arguments[len(tensors) :]
        # A tape outside must not keep what this pass computes.
        unwatched = [tf.stop_gradient(tensor) for tensor in arguments]
        values = zip(variables, unwatched[len(tensors) :], strict=True)
        passed = exact_pass(run, layers, unwatched[: len(tensors)], masks, values)
        first.append(passed)

        def gradient(*upstream: Any) -> list[Any]:
            # Without the control dependencies, TensorFlow would run the second pass right after the
            # first.
            with tf.control_dependencies(
                [tensor for tensor in upstream if isinstance(tensor, tf.Tensor)]
            ):
                copies = [tf.identity(tensor) for tensor in inputs]
            if control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()):
                copies = _dependent(copies, upstream)
            sources = [*copies, *states]
            watched = [source for source, need in zip(sources, needs, strict=True) if need]

            def again(repeated: list[Any], training: Any) -> list[Any]:
                return exact_pass(
                    run, layers, repeated, masks, zip(variables, states, strict=True)
                ).differentiable()

            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(watched)
                results = call_in_context(again, copies, training=training)
            gradients = iter(tape.gradient(results, watched, output_gradients=list(upstream)))
            return [next(gradients) if need else None for need in needs]

        return passed.differentiable(), gradient

    if not any(needs):
        passed = exact_pass(run, layers, tensors, masks, zip(variables, values, strict=True))
        return passed, passed.differentiable()
    connected = through(*tensors, *values)
    return first[0], list(connected)
