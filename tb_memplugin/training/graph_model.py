"""Functional models whose graph runs in segments."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from tb_memplugin.errors import RecomputationError
from tb_memplugin.recorder.watch import LayerCall, Segments, calls, functional, is_graph, layer_order
from tb_memplugin.schema import some, unknown_name
from tb_memplugin.training.recompute import ONLY_DENSE, Run, Segment, refuse


@dataclass(frozen=True)
class CallSegment:
    """Consecutive calls of a graph that are recomputed together.

    `inputs` and `outputs` are the symbolic tensors that come from outside and that are needed outside.
    """

    calls: Sequence[LayerCall]
    inputs: Sequence[Any]
    outputs: Sequence[Any]
    segment: Segment

    def run(self, wrap: Callable[[Any], Any]) -> Run:
        """What the segment computes; `wrap` gives operations the arguments of the model's call, as Keras does."""

        def run(tensors: list[Any], after: Callable[[str], None]) -> list[Any]:
            known = {id(symbol): tensor for symbol, tensor in zip(self.inputs, tensors, strict=True)}
            for call in self.calls:
                run_call(call, call.operation, known, wrap)
                after(call.name)
            return [known[id(symbol)] for symbol in self.outputs]

        return run


def run_call(call: LayerCall, operation: Any, known: dict[int, Any], wrap: Callable[[Any], Any]) -> None:
    if call.reads() <= known.keys():
        arguments, keywords = call.node.arguments.fill_in(known)
        outputs = wrap(operation)(*arguments, **keywords)
        for symbol, tensor in zip(call.node.outputs, keras.tree.flatten(outputs), strict=True):
            known[id(symbol)] = tensor


class SegmentedGraph:
    """Mixin for functional models: runs their graph in segments."""

    segmented_steps: Sequence[LayerCall | CallSegment] = ()
    nested: dict[int, Any]
    """Nested models that have segments, by the identity of the model that each replaces."""

    def _run_through_graph(self, inputs: Any, operation_fn: Any = lambda op: op, call_fn: Any = None) -> Any:
        tensors = keras.tree.flatten(inputs)
        if call_fn is not None or any(isinstance(tensor, keras.KerasTensor) for tensor in tensors):
            arguments = {} if call_fn is None else {"call_fn": call_fn}
            return super()._run_through_graph(inputs, operation_fn, **arguments)  # type: ignore[misc]
        model: Any = self
        known = {id(symbol): tensor for symbol, tensor in zip(model.inputs, tensors, strict=True)}
        for step in self.segmented_steps:
            if isinstance(step, LayerCall):
                run_call(step, self.nested.get(id(step.operation), step.operation), known, operation_fn)
            elif all(isinstance(known.get(id(symbol)), tf.Tensor) for symbol in step.inputs):
                outputs = step.segment.recompute(step.run(operation_fn), [known[id(symbol)] for symbol in step.inputs])
                known.update((id(symbol), tensor) for symbol, tensor in zip(step.outputs, outputs, strict=True))
            else:
                for call in step.calls:
                    run_call(call, call.operation, known, operation_fn)
        return keras.tree.pack_sequence_as(model._outputs_struct, [known[id(symbol)] for symbol in model.outputs])


def segmented_steps(
    model: Any, segments: Segments, refusals: list[str], prefix: str = ""
) -> list[LayerCall | CallSegment]:
    """The steps of a graph: calls by themselves, and the segments whose layers are directly in this model.

    `refusals` receives a sentence for each layer that cannot be recomputed exactly; it is called by itself. `prefix` is
    the model's path with a slash, empty for the outermost one. Layers of a segment that do not follow each other are a
    `RecomputationError`.
    """
    order = calls(model)
    steps: list[LayerCall | CallSegment] = []
    at = 0
    for number, segment in enumerate(segments):
        later = {path.removeprefix(prefix) for other in segments[number + 1 :] for path in other}
        names = {path.removeprefix(prefix) for path in segment}
        start = next((place for place in range(at, len(order)) if order[place].name in names), None)
        if unknown := sorted(names - {call.name for call in order}):
            known = [prefix + path for path in layer_order(model)]
            raise RecomputationError(unknown_name("The model has no layer", prefix + unknown[0], known, "in order:"))
        if start is None:
            raise RecomputationError(f"Layer {segment[0]} comes before the segment that is listed before it.")
        end, missing = start, set(names)
        # A shared layer may be called again in a later segment.
        while end < len(order) and order[end].name in names and (missing or order[end].name not in later):
            missing.discard(order[end].name)
            end += 1
        if missing:
            between = order[end].name if end < len(order) else "the end"
            raise RecomputationError(
                f"Layer {prefix}{sorted(missing)[0]} does not follow the other layers of its segment: "
                f"{prefix}{between} lies between. A segment holds layers that follow each other in the model's order: "
                f"{some([prefix + call.name for call in order[start:]])}."
            )
        steps += order[at:start]
        steps += _exact_steps(model, order, start, end, refusals)
        at = end
    return steps + order[at:]


def _exact_steps(
    model: Any, order: Sequence[LayerCall], start: int, end: int, refusals: list[str]
) -> list[LayerCall | CallSegment]:
    """The steps of a segment. Calls that cannot be recomputed exactly run once, between those that can."""
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
        if is_refused or not any(isinstance(call.operation, keras.layers.Layer) for call in calls_within):
            steps += calls_within
        else:
            steps.append(_call_segment(model, order, within[0], within[-1] + 1))
    return steps


def _call_segment(model: Any, order: Sequence[LayerCall], start: int, end: int) -> CallSegment:
    inside = order[start:end]
    made = {tensor for call in inside for tensor in call.makes()}
    needed = {tensor for call in (*order[:start], *order[end:]) for tensor in call.reads()}
    needed |= {id(tensor) for tensor in functional(model).outputs}
    inputs = {id(tensor): tensor for call in inside for tensor in call.node.input_tensors if id(tensor) not in made}
    outputs = {id(tensor): tensor for call in inside for tensor in call.node.outputs if id(tensor) in needed}
    layers = {id(call.operation): call.operation for call in inside if isinstance(call.operation, keras.layers.Layer)}
    segment = CallSegment(inside, list(inputs.values()), list(outputs.values()), Segment(list(layers.values())))

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
    """Every graph by its prefix: the model itself, and the models that are called in it."""
    found = {prefix: model}
    for call in calls(model):
        if is_graph(call.operation):
            found.update(nested_models(call.operation, f"{prefix}{call.name}/"))
    return found
