"""A model that recomputes segments of its layers in the backward pass instead of saving their
results."""

import contextlib
import functools
import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf
from keras.src.models.functional import Functional

from tb_memplugin.errors import RecomputationError
from tb_memplugin.recorder.watch import (
    LayerCall,
    Segments,
    calls,
    functional,
    is_graph,
    layer_order,
    segments_of,
)
from tb_memplugin.schema import some, unknown_name
from tb_memplugin.training.recompute import ONLY_DENSE, Run, Segment, refuse

RUNS_ONCE = "It runs once, as without `remat`."


def remat(model: Any, plan_or_cuts: Any) -> Any:
    """Return a model with the same layers and weights that saves less for the backward pass.

    It computes the layers of each segment again in the backward pass, from the weights and random
    seeds of the first pass: batch-norm statistics are updated once, and dropout masks repeat.
    Compile and train it like `model`; both share all layers and weights, and each loads weights
    that the other saved.

    Args:
        model: A built Keras model: sequential, functional, with nested models, or subclassed. In a
            subclassed model each segment is a single layer.
        plan_or_cuts: Names of layers, each of which ends a segment; layers after the last one are
            not recomputed. Or pairs of names: the first and the last layer of each segment. Or an
            object with `segments`, a tuple of tuples of layer names.

    Layers that cannot be recomputed exactly run once, as in `model`, and a warning names them.

    Raises:
        RecomputationError: a layer is not in the model, or none can be recomputed exactly."""
    if not isinstance(model, keras.Model):
        raise RecomputationError(f"The model is a {type(model).__name__}. Pass a model of Keras 3.")
    segments = segments_of(model, plan_or_cuts)
    if not is_graph(model):
        return _subclassed(model, segments)
    graphs = nested_models(model)
    for prefix in sorted({path.rpartition("/")[0] for segment in segments for path in segment}):
        if prefix and f"{prefix}/" not in graphs:
            why = (
                f"{prefix} is not a functional or sequential model in {model.name}, so its "
                "layers cannot be segments"
            )
            raise RecomputationError(f"{why}. Name {prefix} itself to recompute it as a whole.")
    refusals: list[str] = []
    recomputed = _graph(model, segments, refusals, "")
    if refusals and not _has_segments(recomputed):
        raise RecomputationError(refusals[0])
    for why in dict.fromkeys(refusals):
        warnings.warn(f"{why} {RUNS_ONCE}", stacklevel=2)
    return recomputed


@dataclass(frozen=True)
class CallSegment:
    """Consecutive calls of a graph that are recomputed together."""

    calls: Sequence[LayerCall]
    inputs: Sequence[Any]  # symbolic tensors that come from outside
    outputs: Sequence[Any]  # those that are needed outside
    segment: Segment

    def run(self, wrap: Callable[[Any], Any]) -> Run:
        """What the segment computes; `wrap` gives operations the arguments of the model's call, as
        Keras does."""

        def run(tensors: list[Any], after: Callable[[str], None]) -> list[Any]:
            known = {
                id(symbol): tensor for symbol, tensor in zip(self.inputs, tensors, strict=True)
            }
            for call in self.calls:
                run_call(call, call.operation, known, wrap)
                after(call.name)
            return [known[id(symbol)] for symbol in self.outputs]

        return run


def run_call(
    call: LayerCall, operation: Any, known: dict[int, Any], wrap: Callable[[Any], Any]
) -> None:
    if call.reads <= known.keys():
        arguments, keywords = call.node.arguments.fill_in(known)
        outputs = wrap(operation)(*arguments, **keywords)
        for symbol, tensor in zip(call.node.outputs, keras.tree.flatten(outputs), strict=True):
            known[id(symbol)] = tensor


class SegmentedGraph:
    """Mixin for functional models: runs their graph in segments."""

    segmented_steps: Sequence[LayerCall | CallSegment] = ()
    # models that have segments, by the identity of the model that each replaces
    nested: dict[int, Any]

    def _run_through_graph(
        self, inputs: Any, operation_fn: Any = lambda op: op, call_fn: Any = None
    ) -> Any:
        tensors = keras.tree.flatten(inputs)
        if call_fn is not None or any(isinstance(tensor, keras.KerasTensor) for tensor in tensors):
            arguments = {} if call_fn is None else {"call_fn": call_fn}
            return super()._run_through_graph(inputs, operation_fn, **arguments)  # type: ignore[misc]
        model: Any = self
        known = {id(symbol): tensor for symbol, tensor in zip(model.inputs, tensors, strict=True)}
        for step in self.segmented_steps:
            if isinstance(step, LayerCall):
                run_call(
                    step, self.nested.get(id(step.operation), step.operation), known, operation_fn
                )
                continue
            given = [known.get(id(symbol)) for symbol in step.inputs]
            if all(isinstance(tensor, tf.Tensor) for tensor in given):
                outputs = step.segment.recompute(step.run(operation_fn), given)
                known.update(
                    (id(symbol), tensor)
                    for symbol, tensor in zip(step.outputs, outputs, strict=True)
                )
            else:
                for call in step.calls:
                    run_call(call, call.operation, known, operation_fn)
        return keras.tree.pack_sequence_as(
            model._outputs_struct, [known[id(symbol)] for symbol in model.outputs]
        )


def segmented_steps(
    model: Any, segments: Segments, refusals: list[str], prefix: str
) -> list[LayerCall | CallSegment]:
    """The steps of a graph: calls by themselves, and the segments whose layers are directly in this
    model.

    `refusals` receives a sentence for each layer that cannot be recomputed exactly; it is called by
    itself. `prefix` is the model's path with a slash, empty for the outermost one."""
    order = calls(model)
    steps: list[LayerCall | CallSegment] = []
    at = 0
    for number, segment in enumerate(segments):
        later = {path.removeprefix(prefix) for other in segments[number + 1 :] for path in other}
        names = {path.removeprefix(prefix) for path in segment}
        start = next((place for place in range(at, len(order)) if order[place].name in names), None)
        if unknown := sorted(names - {call.name for call in order}):
            known = [prefix + path for path in layer_order(model)]
            raise RecomputationError(
                unknown_name("The model has no layer", prefix + unknown[0], known, "in order:")
            )
        if start is None:
            raise RecomputationError(
                f"Layer {segment[0]} comes before the segment that is listed before it."
            )
        end, missing = start, set(names)
        # A shared layer may be called again in a later segment.
        while (
            end < len(order)
            and order[end].name in names
            and (missing or order[end].name not in later)
        ):
            missing.discard(order[end].name)
            end += 1
        if missing:
            between = order[end].name if end < len(order) else "the end"
            why = f"does not follow the other layers of its segment: {prefix}{between} lies between"
            rule = "A segment holds layers that follow each other in the model's order"
            following = some([prefix + call.name for call in order[start:]])
            raise RecomputationError(
                f"Layer {prefix}{sorted(missing)[0]} {why}. {rule}: {following}."
            )
        steps += order[at:start]
        steps += _exact_steps(model, order, start, end, refusals)
        at = end
    return steps + order[at:]


def _exact_steps(
    model: Any, order: Sequence[LayerCall], start: int, end: int, refusals: list[str]
) -> list[LayerCall | CallSegment]:
    """The steps of a segment. Calls that cannot be recomputed exactly run once, between those that
    can."""
    try:
        return [_call_segment(model, order, start, end)]
    except RecomputationError:
        refused = {}
        for at in range(start, end):
            try:
                _call_segment(model, order, at, at + 1)
            except RecomputationError as error:
                refused[at] = str(error)
        if not refused:  # each call by itself can be recomputed exactly
            raise
    refusals += refused.values()
    steps: list[LayerCall | CallSegment] = []
    for is_refused, places in itertools.groupby(range(start, end), key=refused.__contains__):
        within = list(places)
        calls_within = order[within[0] : within[-1] + 1]
        if is_refused or not any(
            isinstance(call.operation, keras.layers.Layer) for call in calls_within
        ):
            steps += calls_within
        else:
            steps.append(_call_segment(model, order, within[0], within[-1] + 1))
    return steps


def _call_segment(model: Any, order: Sequence[LayerCall], start: int, end: int) -> CallSegment:
    inside = order[start:end]
    made = {tensor for call in inside for tensor in call.makes}
    needed = {tensor for call in (*order[:start], *order[end:]) for tensor in call.reads}
    needed |= {id(tensor) for tensor in functional(model).outputs}
    inputs = {
        id(tensor): tensor
        for call in inside
        for tensor in call.node.input_tensors
        if id(tensor) not in made
    }
    outputs = {
        id(tensor): tensor
        for call in inside
        for tensor in call.node.outputs
        if id(tensor) in needed
    }
    layers = {
        id(call.operation): call.operation
        for call in inside
        if isinstance(call.operation, keras.layers.Layer)
    }
    segment = CallSegment(
        inside, list(inputs.values()), list(outputs.values()), Segment(list(layers.values()))
    )

    def in_training(operation: Any) -> Callable[..., Any]:
        training = {"training": True} if getattr(operation, "_call_has_training_arg", False) else {}
        return lambda *arguments, **keywords: operation(*arguments, **{**keywords, **training})

    for tensor in segment.inputs:
        kind = next((kind for kind in ("sparse", "ragged") if getattr(tensor, kind, False)), None)
        if kind is not None:
            raise refuse(inside[0].name, f"it takes a {kind} tensor", ONLY_DENSE)
    if layers:
        segment.segment.check(segment.run(in_training), segment.inputs)
    return segment


def nested_models(model: Any, prefix: str = "") -> dict[str, Any]:
    found = {prefix: model}
    for call in calls(model):
        if is_graph(call.operation):
            found.update(nested_models(call.operation, f"{prefix}{call.name}/"))
    return found


def _has_segments(model: Any) -> bool:
    own = any(isinstance(step, CallSegment) for step in model.segmented_steps)
    return own or any(map(_has_segments, model.nested.values()))


def _graph(model: Any, segments: Segments, refusals: list[str], prefix: str) -> Any:
    """A functional model that runs the segments below a prefix; `refusals` as in
    `segmented_steps`."""
    own = tuple(
        segment for segment in segments if segment[0].rpartition("/")[0] == prefix.rstrip("/")
    )
    steps = segmented_steps(model, own, refusals, prefix)
    nested = {}
    for path, graph in nested_models(model, prefix).items():
        direct = path.removeprefix(prefix).count("/") == 1
        if direct and any(layer.startswith(path) for segment in segments for layer in segment):
            nested[id(graph)] = _graph(graph, segments, refusals, path)
    source = functional(model)
    base = Functional if isinstance(model, keras.Sequential) else type(model)
    new = _new(base, (SegmentedGraph,), {"segmented_steps": steps, "nested": nested})
    Functional.__init__(new, source.input, source.output, name=model.name)
    _copy_state(model, new)
    return new


def _subclassed(model: Any, segments: Segments) -> Any:
    if not model.built:
        raise RecomputationError(f"Model {model.name} is not built. Call it on a batch first.")
    layers: dict[str, list[Any]] = {}
    for layer in model._flatten_layers(include_self=False):
        layers.setdefault(layer.name, []).append(layer)
    chosen = []
    for segment in segments:
        if len(segment) > 1:
            why = (
                f"{segment[0]} and {segment[1]} are one segment, but {model.name} is a "
                "subclassed model"
            )
            reason = (
                "its `call` may use what lies between them. Make each layer a segment by itself."
            )
            raise RecomputationError(f"Layers {why}: {reason}")
        named = layers.get(segment[0], [])
        if not named:
            raise RecomputationError(
                f"{model.name} has no layer {segment[0]}. Its layers: {', '.join(layers)}."
            )
        if len(named) > 1:
            why = f"{len(named)} layers of {model.name} have the name {segment[0]}"
            raise RecomputationError(f"{why}. Give each layer a name of its own.")
        chosen.append((named[0], Segment(named)))
    base = type(model)

    @functools.wraps(base.call)
    def call(self: Any, *arguments: Any, **keywords: Any) -> Any:
        with contextlib.ExitStack() as stack:
            for layer, own in chosen:
                stack.enter_context(recomputing(layer, own))
            return base.call(self, *arguments, **keywords)

    new = _new(base, (), {"call": call})
    keras.Model.__init__(new, name=model.name, dtype=model.dtype_policy)
    _copy_state(model, new)
    new.built = True
    return new


def _new(base: Any, mixins: Sequence[type], attributes: dict[str, Any]) -> Any:
    """An uninitialized instance of a subclass that Keras saves as the class that it extends."""
    names = {"__module__": base.__module__, "__qualname__": base.__qualname__}
    kind: Any = type(base.__name__, (*mixins, base), {**attributes, **names})
    return kind.__new__(kind)


def _copy_state(model: Any, new: Any) -> None:
    """Give the new model what the user has added to the old one, but nothing that `compile` has
    set."""
    compiled = keras.Sequential(name="compiled")
    compiled.compile("sgd", "mse")
    for name, value in vars(model).items():
        if name not in vars(new) and name not in vars(compiled):
            setattr(new, name, value)
    for kind in ("_trainable_variables", "_non_trainable_variables"):
        known = {id(variable) for variable in getattr(new, kind)}
        getattr(new, kind).extend(
            variable for variable in getattr(model, kind) if id(variable) not in known
        )
    new._dtype_policy = model.dtype_policy
    new._trainable = model._trainable


@contextlib.contextmanager
def recomputing(layer: Any, segment: Segment) -> Iterator[None]:
    """Recompute a layer whenever the model calls it. Only this instance's `call` changes, and only
    for the duration."""
    attributes = vars(layer)
    before, call = attributes.get("call"), layer.call
    attributes["call"] = functools.partial(_recomputed, segment, call)
    try:
        yield
    finally:
        del attributes["call"]
        if before is not None:
            attributes["call"] = before


def _recomputed(
    segment: Segment, call: Callable[..., Any], *arguments: Any, **keywords: Any
) -> Any:
    flat = keras.tree.flatten((arguments, keywords))
    at = [place for place, value in enumerate(flat) if isinstance(value, tf.Tensor)]
    structure: list[Any] = []

    def run(tensors: list[Any], after: Callable[[str], None]) -> list[Any]:
        given = dict(zip(at, tensors, strict=True))
        values = [given.get(place, value) for place, value in enumerate(flat)]
        its_arguments, its_keywords = keras.tree.pack_sequence_as((arguments, keywords), values)
        structure[:] = [call(*its_arguments, **its_keywords)]
        after(segment.layers[0].name)
        return list(keras.tree.flatten(structure[0]))

    try:
        outputs = segment.recompute(run, [flat[place] for place in at])
    except RecomputationError as error:
        warnings.warn(f"{error} {RUNS_ONCE}", stacklevel=2)
        return call(*arguments, **keywords)
    return keras.tree.pack_sequence_as(structure[0], outputs)
