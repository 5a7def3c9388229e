"""Which results of a function graph's ops are saved for the backward pass, and which ops may reuse a buffer."""

from collections.abc import Set

from tb_memplugin.recorder.observe.graph_layers import OpLayers
from tb_memplugin.recorder.observe.graph_ops import SHAPE_OPS, Call, GraphOps


def saved_for_backward(graph: GraphOps, layers: OpLayers, early: Set[int], call: Call) -> set[int]:
    """Numbers of the ops with results that an op of the backward pass reads.

    Args:
        graph: The graph.
        layers: Layer and pass of its ops.
        early: Backward ops that depend on no gradient.
        call: Properties inherited from the calling op.
    """
    saved: set[int] = set()
    for number in range(len(graph)):
        if graph.types[number] in SHAPE_OPS:
            continue
        if layers.pass_name[number] == "backward":
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


def unread_outputs(graph: GraphOps, layers: OpLayers, saved: Set[int]) -> dict[int, tuple[int, ...]]:
    """Op number to the indices of its outputs that no op of the backward pass reads, of saved ops with several outputs.

    A loss for each example, for one: its op computes the gradient of the logits as well, and only that is read.
    """
    several = {number for number in saved if len(graph.ops[number].outputs) > 1}
    read = {
        (source, index)
        for number, sources in enumerate(graph.inputs)
        if layers.pass_name[number] == "backward"
        for source, index in sources
        if source in several
    }
    unread = {
        number: tuple(index for index in range(len(graph.ops[number].outputs)) if (number, index) not in read)
        for number in several
        if any(op == number for op, _ in read)
    }
    return {number: outputs for number, outputs in unread.items() if outputs}


def outputs_saved_for_backward(graph: GraphOps, layers: OpLayers, number: int) -> frozenset[int]:
    """Indices of the outputs of a call op that the backward pass reads."""
    is_call = graph.types[number] in ("PartitionedCall", "StatefulPartitionedCall")
    if not is_call or layers.pass_name[number] == "backward":
        return frozenset()
    return frozenset(
        index
        for reader, sources in enumerate(graph.inputs)
        if layers.pass_name[reader] == "backward"
        for source, index in sources
        if source == number
    )


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


def forward_inputs(graph: GraphOps, layers: OpLayers, number: int) -> tuple[int, ...]:
    """Positions of a backward op's inputs that other passes made."""
    if layers.pass_name[number] != "backward":
        return ()
    return tuple(at for at, (source, _) in enumerate(graph.inputs[number]) if layers.pass_name[source] != "backward")


def gradient_inputs(graph: GraphOps, layers: OpLayers, number: int) -> tuple[str, ...]:
    """Names of the backward ops whose results a backward op reads."""
    if layers.pass_name[number] != "backward":
        return ()
    sources = sorted({source for source, _ in graph.inputs[number]})
    return tuple(graph.ops[source].name for source in sources if layers.pass_name[source] == "backward")
