"""What a function graph's backward pass needs: the ops that make the gradients of variables, and the saved results."""

import collections
from collections.abc import Set
from typing import NamedTuple

from tb_memplugin.recorder.watch.call_notes import GraphNotes
from tb_memplugin.recorder.watch.graph_ops import CALLS, SHAPE_OPS, Call, GraphOps, OpLayers, OwnerOf


def saved_for_backward(graph: GraphOps, layers: OpLayers, early: Set[int], call: Call) -> set[int]:
    """Numbers of the ops with results that an op of the backward pass reads that TensorFlow runs.

    `early` are the backward ops that depend on no gradient.
    """
    saved: set[int] = set()
    for number in range(len(graph)):
        if graph.types[number] in SHAPE_OPS:
            continue
        if layers.pass_name[number] == "backward" and number in graph.needed:
            saved.update(
                source
                for source, _ in graph.inputs[number]
                if layers.pass_name[source] != "backward"
                or layers.in_layer[source]
                or (source in early and number not in early)
            )
        elif graph.types[number].startswith("TensorListPushBack") and call.pass_name == "forward":
            saved.update(source for source, _ in graph.inputs[number][1:])
    producers = (graph.output(index) for index in call.saved_for_backward)
    saved.update(producer[0] for producer in producers if producer is not None)
    return saved


def late_reads(graph: GraphOps, layers: OpLayers) -> dict[int, int]:
    """Op number to the number of the backward pass that reads its result, of passes that differentiate another one."""
    reads: dict[int, int] = {}
    for number in range(len(graph)):
        read_late = layers.late_pass(number) if layers.pass_name[number] == "backward" else None
        if read_late is not None and graph.types[number] not in SHAPE_OPS and number in graph.needed:
            for source, _ in graph.inputs[number]:
                while layers.pass_name[source] != "backward" and source not in reads:
                    reads[source] = read_late
                    if graph.types[source] in _SAME_BYTES:  # the buffer is that of its input
                        source = graph.inputs[source][0][0]
    return reads


def backward_reads(graph: GraphOps, layers: OpLayers) -> set[tuple[int, int]]:
    """(number of an op, index of its output) of all that ops of the backward pass read that TensorFlow runs."""
    return {
        source
        for number, sources in enumerate(graph.inputs)
        if layers.pass_name[number] == "backward" and number in graph.needed
        for source in sources
    }


def unread_outputs(graph: GraphOps, reads: Set[tuple[int, int]], saved: Set[int]) -> dict[int, tuple[int, ...]]:
    """Op number to the indices of its outputs that are not in `backward_reads`, of saved ops with several outputs.

    A loss for each example, for one: its op computes the gradient of the logits as well, and only that is read.
    """
    unread: dict[int, tuple[int, ...]] = {}
    for number in saved:
        outputs = range(len(graph.ops[number].outputs))
        missing = tuple(index for index in outputs if (number, index) not in reads)
        if 0 < len(missing) < len(outputs):
            unread[number] = missing
    return unread


def buffer_reusers(graph: GraphOps, layers: OpLayers) -> dict[int, list[str]]:
    """Op number to the names of the ops that may reuse its output buffer: readers of the same pass and dtype."""
    names: dict[int, list[str]] = {}
    for number, sources in enumerate(graph.inputs):
        if graph.types[number] in SHAPE_OPS or not graph.ops[number].outputs:
            continue
        dtype = graph.ops[number].outputs[0].dtype
        for source, index in sources:
            same_pass = layers.pass_name[source] == layers.pass_name[number]
            if same_pass and graph.ops[source].outputs[index].dtype == dtype:
                names.setdefault(source, []).append(graph.ops[number].name)
    return names


def inputs_of_backward(graph: GraphOps, layers: OpLayers, number: int) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Of a backward op: positions of the inputs that other passes made, and names of the backward ops it reads."""
    if layers.pass_name[number] != "backward":
        return (), ()
    others: list[int] = []
    backward: set[int] = set()
    for at, (source, _) in enumerate(graph.inputs[number]):
        if layers.pass_name[source] == "backward":
            backward.add(source)
        else:
            others.append(at)
    return tuple(others), tuple(graph.ops[source].name for source in sorted(backward))


_SAME_BYTES = frozenset(
    {"Identity", "IdentityN", "Reshape", "Squeeze", "ExpandDims", "StopGradient", "PreventGradient", "CheckNumerics"}
)
_COMBINES_GRADIENTS = _SAME_BYTES | {"Cast", "Transpose", "AddN", "AddV2"}
_SCALES = _SAME_BYTES | {"Cast", "Mul", "RealDiv", "Maximum", "Minimum", "ClipByValue"}
_MAKES_DENSE = "UnsortedSegmentSum"
"""Type of the op that makes a dense tensor of `tf.IndexedSlices`."""
_ONES = frozenset({"Const", "Fill", "OnesLike"})
_ZEROS = frozenset({"Const", "Fill", "ZerosLike"})
"""Make the values that sums of gradients start from, as in a loop's backward pass: they hold no forward result."""


class GradientOps(NamedTuple):
    """Ops that make gradients of variables: the layer of the variable by op number, and by (number of a call op, index
    of its output). Those of `made_dense` make a dense gradient of a sparse one."""

    layer: dict[int, str | None]
    layer_of_output: dict[tuple[int, int], str | None]
    made_dense: Set[int] = frozenset()


def gradient_ops(graph: GraphOps, layers: OpLayers, notes: GraphNotes, call: Call, owner_of: OwnerOf) -> GradientOps:
    """The ops that make gradients of variables.

    Includes the terms of a gradient that is a sum, and the same values before a cast or a change of shape, if nothing
    else reads them.
    """
    readers = collections.Counter(source for sources in graph.inputs for source in sources)
    vectorized: dict[int, int] = {}  # op to the op that makes its results for all iterations: the last one in the scope
    for number in range(len(graph)):
        original = graph.vectorized_from(number)
        if original is not None:
            vectorized[original] = number
    pending: list[tuple[int, int, str | None]] = []
    for index, layer in call.gradients.items():
        producer = graph.output(index)
        if producer is not None:
            pending.append((*producer, layer))
    for name, index, reference in notes.gradients:
        owner = owner_of(reference()) if reference() is not None else None
        if owner is not None and name in graph.number:
            number = graph.number[name]
            pending.append((number, index, owner[1]))
            if number in vectorized:
                pending.append((vectorized[number], 0, owner[1]))
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
    sums = [number for number, kind in enumerate(graph.types) if kind == _MAKES_DENSE]
    for number in sums:
        source, (rows, _) = graph.inputs[number][0][0], graph.inputs[number][1]
        while source not in gradients.layer and graph.types[source] in _SCALES and graph.inputs[source]:
            source = graph.inputs[source][0][0]  # values that were clipped or scaled
        if source in gradients.layer and rows in gradients.layer:
            gradients.layer.setdefault(number, gradients.layer[source])
    return gradients._replace(made_dense=gradients.layer.keys() & set(sums))


def early_ops(graph: GraphOps, layers: OpLayers, gradients: GradientOps) -> set[int]:
    """Backward ops that depend on no gradient, except those that make zeros; empty if that is unknown.

    A tape first makes the gradient of its target with respect to itself, which is 1; every other gradient depends on
    it. If a variable's gradient does not, the tape started from an `output_gradients` argument, and nothing is known.
    """
    seeds = {span.start for span in layers.backward_spans}
    if not seeds or any(graph.types[seed] not in _ONES for seed in seeds if seed < len(graph)):
        return set()
    dependent: set[int] = set()
    for number in range(len(graph)):
        if number in seeds or any(source in dependent for source, _ in graph.inputs[number]):
            dependent.add(number)
    backward = (number for number in gradients.layer if layers.pass_name[number] == "backward")
    outputs = (graph.ops[number].outputs for number in backward if number not in dependent)
    if not all(tensors and tensors[0].dtype.is_integer for tensors in outputs):  # but the rows of a sparse gradient
        return set()
    return {
        number
        for number, name in enumerate(layers.pass_name)
        if name == "backward" and number not in dependent and graph.types[number] not in _ZEROS
    }
