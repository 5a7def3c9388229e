"""Reads facts about each op from traced function graphs and from the layer calls noted during tracing."""

import dataclasses
import logging
import math
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tb_memplugin.recorder.watch.batch_dimensions import BatchDimensions
from tb_memplugin.recorder.watch.call_notes import GraphNotes, call_notes
from tb_memplugin.recorder.watch.graph_gradients import (
    backward_reads,
    buffer_reusers,
    early_ops,
    gradient_ops,
    inputs_of_backward,
    late_reads,
    saved_for_backward,
    unread_outputs,
)
from tb_memplugin.recorder.watch.graph_ops import CALLS, Call, GraphOps, OpLayers, OwnerOf
from tb_memplugin.recorder.watch.repeatable import ASSIGNING, OF_VARIABLES, repeats
from tb_memplugin.recorder.watch.source_lines import SourceLines
from tb_memplugin.schema import ConstantFact, GraphFacts, OpFact

logger = logging.getLogger("tb_memplugin")

MAX_GRAPHS = 2000
"""Most graphs that are read of one program; every branch and loop body is a graph."""
MIN_BYTES = 1024
"""Smaller constants are not read: most graphs have hundreds, of shapes and axes."""
PIPELINE_FUNCTION = "Dataset_"
"""Prefix of the names of tf.data's function graphs."""


def graph_facts(
    paths: Mapping[int, str],
    owner_of: OwnerOf,
    lines: SourceLines | None = None,
    others: Iterable[Any] = (),
    batch_size: int | None = None,
) -> tuple[GraphFacts, ...]:
    """Facts about every graph with noted layer calls, its outermost caller and all callees; callers come first.

    Of `others` that were not read so, only the constants are read. `paths` is the id of a layer to its path; `lines`
    finds the user's lines.
    """
    roots: dict[int, Any] = {}
    for graph in list(call_notes.graphs):
        if not _can_run(graph):
            call_notes.forget(graph)
            continue
        outer = graph
        while getattr(outer, "outer_graph", None) is not None and hasattr(outer.outer_graph, "captures"):
            outer = outer.outer_graph
        roots[id(outer)] = outer
    reader = _Reader(paths, owner_of, lines, batch_size)
    for root in roots.values():
        try:
            reader.read(root)
        except Exception:
            logger.debug("a function graph could not be read", exc_info=True)
    for graph in others:
        reader.read_constants(graph)
    return tuple(graph for graph in reader.facts if graph is not None)


def output_bytes(op: str | None, batch_size: int | None) -> int | None:
    """Bytes of the first output of an op of a traced function graph; None if unknown.

    The op's name may begin with the name of the op that calls its function. The batch size replaces an unknown first
    dimension.
    """
    if op is None:
        return None
    for graph in reversed(list(call_notes.graphs)):
        for name in (op, op.partition("/")[2]):
            try:
                tensor = graph.get_operation_by_name(name).outputs[0]
                shape = tensor.shape.as_list()
            except (KeyError, ValueError, IndexError):  # another graph's op, no such name, unknown rank
                continue
            if shape and shape[0] is None:
                shape[0] = batch_size
            if None not in shape:
                return int(math.prod(shape)) * int(tensor.dtype.size)
    return None


def _can_run(graph: Any) -> bool:
    """Whether the variables of a graph still exist. TensorFlow keeps one graph of every model that was trained."""
    try:
        tuple(getattr(graph, "variables", ()))
    except AssertionError:  # running the function would raise it as well
        return False
    return True


_known_constants: "weakref.WeakKeyDictionary[Any, tuple[int, dict[str, ConstantFact]]]" = weakref.WeakKeyDictionary()


def constants_of(graph: Any) -> dict[str, ConstantFact]:
    """The constants of a function graph with at least `MIN_BYTES`, by the name of their op, without layer and line.

    Such as NumPy arrays that a traced function or a layer uses. TensorFlow allocates each when it first runs the
    function, without naming an op, and keeps it as long as the function.
    """
    version, constants = _known_constants.get(graph, (-1, {}))
    if version != graph.version:
        constants = dict(_read_constants(graph))
        _known_constants[graph] = graph.version, constants
    return constants


def _read_constants(graph: Any) -> Iterator[tuple[str, ConstantFact]]:
    of_input = graph.name.startswith(PIPELINE_FUNCTION)
    for op in graph.get_operations():
        if op.type == "Const":
            tensor = op.outputs[0]
            shape = tuple(tensor.shape.as_list()) if tensor.shape.rank else ()
            size = math.prod(shape) * int(tensor.dtype.size)
            if size >= MIN_BYTES and tensor.dtype.name != "string":
                yield op.name, ConstantFact(size, shape, tensor.dtype.name, function=graph.name, of_input=of_input)


class _Reader:
    """Reads graphs recursively; a graph with several callers is read once for each."""

    def __init__(
        self, paths: Mapping[int, str], owner_of: OwnerOf, lines: SourceLines | None, batch_size: int | None
    ) -> None:
        self.paths, self.owner_of, self._lines, self.batch_size = paths, owner_of, lines, batch_size
        self._by_graph: dict[int, _Graph] = {}
        self.facts: list[GraphFacts | None] = []

    def read(self, graph: Any, call: Call | None = None) -> int:
        """Read a graph and its callees; return its index in `facts`. `call` is None for a root."""
        index = len(self.facts)
        self.facts.append(None)
        forward = self._by_graph.get(id(getattr(graph, "_forward_graph", None)))
        forward_layers = None if forward is None else forward.layers
        reading = _Graph(graph, self, call or Call(), forward_layers)
        self._by_graph[id(graph)] = reading
        callees: dict[str, list[tuple[str, int]]] = {}
        for number, op in enumerate(reading.graph.ops):
            for attribute, label in CALLS.get(op.type, ()):
                callee = _callee(graph, op, attribute)
                if callee is not None and len(self.facts) < MAX_GRAPHS:
                    callees.setdefault(op.name, []).append((label, self.read(callee, reading.call(number, callee))))
        arguments = reading.graph.own_arguments() if call is None else ()
        self.facts[index] = GraphFacts(
            name=graph.name,
            ops=reading.op_facts(self._lines),
            callees={name: tuple(labelled) for name, labelled in callees.items()},
            root=call is None,
            arguments=frozenset(name.lower() for name in arguments),  # as they run
            unrepeatable=reading.unrepeatable(),
            constants=tuple(self._constants(graph, reading)),
            fixed_batch=reading.batch.fixed,
        )
        return index

    def read_constants(self, graph: Any) -> None:
        if id(graph) not in self._by_graph and len(self.facts) < MAX_GRAPHS and constants_of(graph):
            constants = tuple(self._constants(graph, None))
            self.facts.append(GraphFacts(graph.name, {}, {}, root=False, constants=constants))

    def _constants(self, graph: Any, reading: "_Graph | None") -> Iterator[ConstantFact]:
        for name, constant in constants_of(graph).items():
            number = -1 if reading is None else reading.graph.number.get(name, -1)
            if reading is None or number in reading.graph.needed:
                yield dataclasses.replace(
                    constant,
                    layer=None if reading is None else reading.layers.layer[number],
                    line=None if self._lines is None else self._lines.of_op(graph, graph.get_operation_by_name(name)),
                )


def _callee(graph: Any, op: Any, attribute: str) -> Any:
    """The graph of the function that an op calls, None if Python does not have it."""
    name = op.get_attr(attribute).name
    while graph is not None:
        function = graph._get_function(name) if hasattr(graph, "_get_function") else None
        if function is not None:
            return getattr(function, "graph", None)
        graph = getattr(graph, "outer_graph", None)
    return None


class _Graph:
    def __init__(self, graph: Any, reader: _Reader, call: Call, forward: OpLayers | None) -> None:
        self.graph = GraphOps(graph)
        self._notes = notes = call_notes.graphs.get(graph) or GraphNotes()
        self.layers = OpLayers(self.graph, notes, reader.paths, call, forward)
        self._variables = self.graph.captured_variables(call, reader.owner_of)
        self._gradients = gradient_ops(self.graph, self.layers, notes, call, reader.owner_of)
        self.layers.place_updates(self._variables, self._gradients.layer)
        self._early = early_ops(self.graph, self.layers, self._gradients)
        self._saved = saved_for_backward(self.graph, self.layers, self._early, call)
        self._reads = backward_reads(self.graph, self.layers)
        self.batch = BatchDimensions(self.graph, reader.batch_size, call.powers, call.fixed)

    def call(self, number: int, callee: Any) -> Call:
        names = [tensor.op.name for tensor in getattr(callee, "inputs", ()) or ()]
        kind = self.graph.types[number]
        chosen = kind in ("If", "StatelessIf")  # its first input is the condition
        saves = kind in ("PartitionedCall", "StatefulPartitionedCall") and self.layers.pass_name[number] != "backward"
        gradients = self._gradients.layer_of_output.items()
        return Call(
            self.layers.layer[number],
            self.layers.pass_name[number],
            self._variables,
            frozenset(index for op, index in self._reads if saves and op == number),
            {index: layer for (op, index), layer in gradients if op == number},
            self.batch.of_arguments(number, names, int(chosen)),
            self.batch.fixed,
        )

    def unrepeatable(self) -> frozenset[str]:
        """Layers whose forward pass has an op that may return something else again, or changes what is trained.

        A second pass reads variables as the first one found them. What a called function has, its own graph tells.
        """
        kinds = dict(zip(self.graph.types, self.graph.ops, strict=True))
        odd = {kind for kind, op in kinds.items() if not repeats(kind, op.op_def.is_stateful)}
        odd = odd - OF_VARIABLES - CALLS.keys()
        trained = self.graph.trained_placeholders()
        layers = {
            self.layers.layer[at]
            for at, kind in enumerate(self.graph.types)
            if self.layers.pass_name[at] == "forward"
            and (kind in odd or (kind in ASSIGNING and self.graph.inputs[at][0][0] in trained))
        }
        return frozenset(layer for layer in layers if layer is not None)

    def op_facts(self, lines: SourceLines | None) -> dict[str, OpFact]:
        graph, layers, gradients = self.graph, self.layers, self._gradients
        line = [None] * len(graph) if lines is None else lines.of_graph(graph, layers, self._notes)
        reusers = buffer_reusers(graph, layers)
        unread = unread_outputs(graph, self._reads, self._saved)
        late = late_reads(graph, layers)
        facts: dict[str, OpFact] = {}
        for number, op in enumerate(graph.ops):
            forward_inputs, gradient_inputs = inputs_of_backward(graph, layers, number)
            has_shape = layers.pass_name[number] != "update" or number in gradients.made_dense
            facts[op.name] = OpFact(
                layer=layers.layer[number],
                pass_name=layers.pass_name[number],
                saved_for_backward=number in self._saved,
                read_late=late.get(number),
                unread_outputs=unread.get(number, ()),
                gradient_of=gradients.layer.get(number),
                is_gradient=number in gradients.layer,
                made_dense=number in gradients.made_dense,
                assigns=graph.assigned_variable(number, self._variables),
                passes_to=tuple(reusers.get(number, ())),
                forward_inputs=forward_inputs,
                gradient_inputs=gradient_inputs,
                early=number in self._early,
                output_shapes=graph.output_shapes(number) if has_shape else (),
                batch_powers=self.batch.powers[number] if has_shape else (),
                output_dtypes=graph.output_dtypes(number) if has_shape else (),
                line=line[number],
            )
        return facts
