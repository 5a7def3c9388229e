"""Which ops of a function graph make the gradients of variables, and which backward ops need no gradient."""

import collections
from typing import NamedTuple

from tb_memplugin.recorder.observe.call_notes import GraphNotes
from tb_memplugin.recorder.observe.graph_layers import OpLayers
from tb_memplugin.recorder.observe.graph_ops import CALLS, Call, GraphOps, OwnerOf

_SAME_BYTES = frozenset(
    {"Identity", "IdentityN", "Reshape", "Squeeze", "ExpandDims", "StopGradient", "PreventGradient", "CheckNumerics"}
)
_COMBINES_GRADIENTS = _SAME_BYTES | {"Cast", "Transpose", "AddN", "AddV2"}
_ONES = frozenset({"Const", "Fill", "OnesLike"})
_ZEROS = frozenset({"Const", "Fill", "ZerosLike"})
"""Make the values that sums of gradients start from, as in a loop's backward pass: they hold no forward result."""


class GradientOps(NamedTuple):
    """Ops that make gradients of variables.

    Attributes:
        layer: Op number to the layer of the variable.
        layer_of_output: (number of a call op, index of its output) to the layer of the variable.
    """

    layer: dict[int, str | None]
    layer_of_output: dict[tuple[int, int], str | None]


def gradient_ops(graph: GraphOps, layers: OpLayers, notes: GraphNotes, call: Call, owner_of: OwnerOf) -> GradientOps:
    """The ops that make gradients of variables.

    Includes the terms of a gradient that is a sum, and the same values before a cast or a change of shape, if nothing
    else reads them.
    """
    readers = collections.Counter(source for sources in graph.inputs for source in sources)
    pending: list[tuple[int, int, str | None]] = []
    for index, layer in call.gradients.items():
        producer = graph.output(index)
        if producer is not None:
            pending.append((*producer, layer))
    for name, index, reference in notes.gradients:
        owner = owner_of(reference()) if reference() is not None else None
        if owner is not None and name in graph.number:
            pending.append((graph.number[name], index, owner[1]))
    gradients = GradientOps({}, {})
    while pending:
        number, index, layer = pending.pop()
        if graph.types[number] in CALLS:
            gradients.layer_of_output[number, index] = layer
        elif number not in gradients.layer and graph.types[number] != "Placeholder":
            gradients.layer[number] = layer
            if graph.types[number] in _COMBINES_GRADIENTS:
                terms = (term for term in graph.inputs[number] if readers[term] == 1)
                pending.extend((*term, layer) for term in terms if layers.pass_name[term[0]] == "backward")
    return gradients


def early_ops(graph: GraphOps, layers: OpLayers, notes: GraphNotes, gradients: GradientOps) -> set[int]:
    """Backward ops that depend on no gradient, except those that make zeros; empty if that is unknown.

    A tape first makes the gradient of its target with respect to itself, which is 1; every other gradient depends on
    it. If a variable's gradient does not, the tape started from an `output_gradients` argument, and nothing is known.
    """
    seeds = {span.start for span in notes.spans if span.kind == "backward" and span.start < span.end}
    if not seeds or any(graph.types[seed] not in _ONES for seed in seeds if seed < len(graph)):
        return set()
    dependent: set[int] = set()
    for number in range(len(graph)):
        if number in seeds or any(source in dependent for source, _ in graph.inputs[number]):
            dependent.add(number)
    backward = (number for number in gradients.layer if layers.pass_name[number] == "backward")
    if not all(number in dependent or _is_index(graph, number) for number in backward):
        return set()
    return {
        number
        for number, name in enumerate(layers.pass_name)
        if name == "backward" and number not in dependent and graph.types[number] not in _ZEROS
    }


def _is_index(graph: GraphOps, number: int) -> bool:
    """Whether an op makes integers: the row indices of a sparse gradient."""
    outputs = graph.ops[number].outputs
    return bool(outputs) and bool(outputs[0].dtype.is_integer)
