"""Reads facts about each op from traced function graphs and from the layer calls noted during
tracing."""

import collections
import dataclasses
import itertools
import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tb_memplugin.attribution import named_by_scope
from tb_memplugin.recorder.base import (
    ByIdentity,
)
from tb_memplugin.recorder.heap import (
    SourceLines,
)
from tb_memplugin.recorder.watch.batch_dimensions import batch_dimensions, inherited
from tb_memplugin.recorder.watch.graph_ops import (
    ASSIGNING,
    CALLS,
    OF_VARIABLES,
    SHAPE_OPS,
    Call,
    GraphOps,
    OpLayers,
    OwnerOf,
    repeats,
)
from tb_memplugin.recorder.watch.notes import GraphNotes, call_notes
from tb_memplugin.recorder.watch.op_lines import op_lines
from tb_memplugin.recorder.watch.sessions import session_variables
from tb_memplugin.schema import ConstantFact, GraphFacts, OpFact

logger = logging.getLogger("tb_memplugin")

MAX_GRAPHS = 2000  # most graphs that are read of one program; every branch and loop body is a graph
MIN_BYTES = 1024  # smaller constants are not read: most graphs have hundreds, of shapes and axes
PIPELINE_FUNCTION = "Dataset_"  # prefix of the names of tf.data's function graphs
_SAME_BYTES = {"Identity", "IdentityN", "Reshape", "Squeeze", "ExpandDims"}
_SAME_BYTES |= {"StopGradient", "PreventGradient", "CheckNumerics"}
_COMBINES_GRADIENTS = _SAME_BYTES | {"Cast", "Transpose", "AddN", "AddV2"}
_SCALES = _SAME_BYTES | {"Cast", "Mul", "RealDiv", "Maximum", "Minimum", "ClipByValue"}
# type of the op that makes a dense tensor of `tf.IndexedSlices`
_MAKES_DENSE = "UnsortedSegmentSum"
_INITIALIZES = frozenset({"Assign", "AssignVariableOp"})
_ONES = frozenset({"Const", "Fill", "OnesLike"})
_ZEROS = frozenset({"Const", "Fill", "ZerosLike"})
"""Make the values that sums of gradients start from, as in a loop's backward pass: they hold no
forward result."""


def graph_facts(
    paths: Mapping[int, str],
    owner_of: OwnerOf,
    lines: SourceLines | None = None,
    others: Iterable[Any] = (),
    batch_size: int | None = None,
) -> tuple[GraphFacts, ...]:
    """Facts about every graph with noted layer calls, its outermost caller and all callees; callers
    come first. Of `others` that were not read so, only the constants are read. `paths` is the id of
    a layer to its path."""
    roots: dict[int, Any] = {}
    for graph in list(call_notes.graphs):
        try:
            tuple(getattr(graph, "variables", ()))
        # its variables are gone: TensorFlow keeps one graph of every model that was trained
        except AssertionError:
            call_notes.forget(graph)
            continue
        outer = graph
        while hasattr(getattr(outer, "outer_graph", None), "captures"):
            outer = outer.outer_graph
        roots[id(outer)] = outer
    reader = _Reader(paths, owner_of, lines, batch_size)
    for root in roots.values():
        before = len(reader.facts)
        try:
            reader.read(root)
        except Exception:  # for example because its variables are gone by now
            del reader.facts[before:]  # the indices of later ones stay right
            logger.debug("a function graph could not be read", exc_info=True)
    for graph in others:
        reader.read_constants(graph)
    facts = [graph for graph in reader.facts if graph is not None]
    calls = itertools.chain(*(notes.spans for notes in list(call_notes.graphs.values())))
    if any(span.kind == "layer" for span in calls):
        return tuple(facts)
    scopes = {one.layer for one in session_variables(roots.values())}
    return tuple(named_by_scope(facts, scopes))


def output_bytes(op: str | None, batch_size: int | None) -> int | None:
    """Bytes of the first output of an op of a traced function graph; None if unknown. The op's name
    may begin with the name of the op that calls its function. The batch size replaces an unknown
    first dimension."""
    for graph in reversed(list(call_notes.graphs)) if op is not None else ():
        for name in (op, str(op).partition("/")[2]):
            try:
                tensor = graph.get_operation_by_name(name).outputs[0]
                shape = tensor.shape.as_list()
            # another graph's op, no such name, unknown rank
            except (KeyError, ValueError, IndexError):
                continue
            if shape and shape[0] is None:
                shape[0] = batch_size
            if None not in shape:
                return int(math.prod(shape)) * int(tensor.dtype.size)
    return None


_known_constants = ByIdentity[tuple[int, dict[str, ConstantFact]]]()  # with the graph's version


def _constants_of(graph: Any) -> dict[str, ConstantFact]:
    """The constants of a function graph with at least `MIN_BYTES`, by the name of their op, without
    layer and line. TensorFlow allocates each when it first runs the function, without naming an op,
    and keeps it as long."""
    version, constants = _known_constants.get(graph, (-1, {}))
    if version == graph.version:
        return dict(constants)
    function = getattr(graph, "name", "")  # a session's has none
    constants, of_input = {}, function.startswith(PIPELINE_FUNCTION)
    for tensor in (op.outputs[0] for op in graph.get_operations() if op.type == "Const"):
        shape = tuple(tensor.shape.as_list()) if tensor.shape.rank else ()
        dtype, size = tensor.dtype.name, math.prod(shape) * int(tensor.dtype.size)
        if dtype != "string" and size >= MIN_BYTES:
            constants[tensor.op.name] = ConstantFact(
                size, shape, dtype, function=function or None, of_input=of_input
            )
    _known_constants[graph] = graph.version, constants
    return constants


class _Reader:
    def __init__(
        self,
        paths: Mapping[int, str],
        owner_of: OwnerOf,
        lines: SourceLines | None,
        batch_size: int | None,
    ) -> None:
        self.paths, self.owner_of, self.lines, self.batch_size = paths, owner_of, lines, batch_size
        self._by_graph: dict[int, _Graph] = {}
        self.facts: list[GraphFacts | None] = []

    def read(self, graph: Any, call: Call | None = None) -> int:
        """Read a graph and its callees; return its index in `facts`. `call` is None for a root."""
        index = len(self.facts)
        self.facts.append(None)
        forward = self._by_graph.get(id(getattr(graph, "_forward_graph", None)))
        reading = _Graph(graph, self, call or Call(), None if forward is None else forward.layers)
        self._by_graph[id(graph)] = reading
        callees: dict[str, tuple[tuple[str, int], ...]] = {}
        for number, op in enumerate(reading.graph.ops):
            for label, callee in reading.graph.callees(number):
                if len(self.facts) < MAX_GRAPHS:
                    labelled = label, self.read(callee, reading.call(number, callee))
                    callees[op.name] = (*callees.get(op.name, ()), labelled)
        arguments = reading.graph.own_arguments() if call is None else ()
        self.facts[index] = GraphFacts(
            name=getattr(graph, "name", ""),
            ops=reading.op_facts(),
            callees=callees,
            root=call is None,
            arguments=frozenset(name.lower() for name in arguments),  # as they run
            unrepeatable=reading.unrepeatable(),
            constants=tuple(self._constants(graph, reading)),
            fixed_batch=reading.batch.fixed,
        )
        return index

    def read_constants(self, graph: Any) -> None:
        if id(graph) not in self._by_graph and len(self.facts) < MAX_GRAPHS:
            constants = tuple(self._constants(graph, None))
            if constants:
                self.facts.append(GraphFacts(graph.name, {}, {}, root=False, constants=constants))

    def _constants(self, graph: Any, reading: "_Graph | None") -> Iterator[ConstantFact]:
        constants = _constants_of(graph)
        if reading is not None and reading.graph.of_session:
            constants |= reading.initial_values()
        for name, constant in constants.items():
            layer = None
            if reading is not None:
                number = reading.graph.number.get(name, -1)
                if number not in reading.graph.needed:
                    continue
                layer = reading.layers.layer[number]
            op = graph.get_operation_by_name(name)
            line = None if self.lines is None else self.lines.of_op(graph, op)
            yield dataclasses.replace(constant, layer=layer, line=line)


class _Graph:
    """One graph's ops, by their numbers. `gradients` are the ops that make gradients of variables,
    to the layer of the variable, `of_output` the same by (call op, index of output), `made_dense`
    those that make a sparse one dense."""

    def __init__(self, graph: Any, reader: _Reader, call: Call, forward: OpLayers | None) -> None:
        self.graph = ops = GraphOps(graph)
        self._reader, self._call = reader, call
        self._notes = notes = call_notes.graphs.get(graph) or GraphNotes()
        self.layers = OpLayers(ops, notes, reader.paths, call, forward)
        self._passes = self.layers.pass_name
        self._variables = ops.captured_variables(call, reader.owner_of)
        self.gradients: dict[int, str | None] = {}
        self.of_output: dict[tuple[int, int], str | None] = {}
        self._find_gradients()
        self.made_dense = self._sparse_sums()
        self._collective, self._reduced = self._of_replicas()
        self.layers.place_updates(self._variables, self.gradients)
        self._backward = [
            at for at, name in enumerate(self._passes) if name == "backward" and at in ops.needed
        ]
        # (op, index of its output)
        self.reads = {source for at in self._backward for source in ops.inputs[at]}
        self._early = self._early_ops()
        self._saved = self._saved_for_backward()
        self.batch = batch_dimensions(ops, reader.batch_size, call)

    def call(self, number: int, callee: Any) -> Call:
        kind, pass_name = self.graph.types[number], self._passes[number]
        saves = kind.endswith("PartitionedCall") and pass_name != "backward"
        return dataclasses.replace(
            inherited(self.graph, number, callee, self.batch),
            layer=self.layers.layer[number],
            pass_name=pass_name,
            variables=self._variables,
            read_outputs=frozenset(index for op, index in self.reads if saves and op == number),
            gradients={
                index: layer for (op, index), layer in self.of_output.items() if op == number
            },
        )

    def unrepeatable(self) -> frozenset[str]:
        """Layers whose forward pass has an op that may return something else again, or changes what
        is trained. A second pass reads variables as the first one found them. What a called
        function has, its own graph tells."""
        kinds = dict(zip(self.graph.types, self.graph.ops, strict=True))
        odd = {kind for kind, op in kinds.items() if not repeats(kind, op.op_def.is_stateful)}
        odd = odd - OF_VARIABLES - CALLS.keys()
        trained = self.graph.trained_placeholders()
        layers = {
            self.layers.layer[at]
            for at, kind in enumerate(self.graph.types)
            if self._passes[at] == "forward"
            and (kind in odd or (kind in ASSIGNING and self.graph.inputs[at][0][0] in trained))
        }
        return frozenset(layer for layer in layers if layer is not None)

    def initial_values(self) -> dict[str, ConstantFact]:
        """The constant values that a session gave its variables, by the name of their op. The
        session keeps them, mostly one for all that are equal."""
        graph, found = self.graph, dict[str, ConstantFact]()
        for number, kind in enumerate(graph.types):
            source = graph.inputs[number][1][0] if kind in _INITIALIZES else -1
            if source in graph.constant:
                tensor = graph.ops[source].outputs[0]
                shape = graph.output_shapes[source][0] or ()
                size = math.prod(shape) * int(tensor.dtype.size)
                if size >= MIN_BYTES:  # neither open nor small
                    found[tensor.op.name] = ConstantFact(size, shape, tensor.dtype.name)
        return found

    def op_facts(self) -> dict[str, OpFact]:
        graph, layers = self.graph, self.layers
        lines = op_lines(graph, self._notes, layers, self._reader.lines)
        reusers, late = self._buffer_reusers(), self._late_reads()
        facts: dict[str, OpFact] = {}
        for number, op in enumerate(graph.ops):
            sources = graph.inputs[number] if self._passes[number] == "backward" else []
            of_gradients = [self._passes[source] == "backward" for source, _ in sources]
            gradients = sorted({source for source, _ in itertools.compress(sources, of_gradients)})
            has_shape = self._passes[number] != "update" or number in self.made_dense
            facts[op.name] = OpFact(
                layer=layers.layer[number],
                pass_name=self._passes[number],
                saved_for_backward=number in self._saved,
                read_late=late.get(number),
                gradient_of=self.gradients.get(number),
                is_gradient=number in self.gradients or number in self._reduced,
                communicates=number in self._collective,
                made_dense=number in self.made_dense,
                assigns=graph.assigned_variable(number, self._variables),
                passes_to=tuple(reusers.get(number, ())),
                forward_inputs=tuple(at for at, one in enumerate(of_gradients) if not one),
                gradient_inputs=tuple(graph.ops[source].name for source in gradients),
                gradient_free=number in self._early,
                output_shapes=graph.output_shapes[number] if has_shape else (),
                batch_powers=self.batch.powers[number] if has_shape else (),
                is_constant=number in graph.constant,
                has_rows=(number, 0) in self.batch.rows,
                output_dtypes=graph.output_dtypes[number] if has_shape else (),
                line=lines[number],
            )
        return facts

    def _find_gradients(self) -> None:
        """Find the ops that make gradients of variables. Includes the terms of a gradient that is a
        sum, and the same values before a cast or a change of shape, if nothing else reads them."""
        graph = self.graph
        readers = collections.Counter(itertools.chain(*graph.inputs))
        # To the op that makes an op's results for all iterations: the last one in the scope.
        vectorized = {graph.vectorized_from(number): number for number in range(len(graph))}
        of_outputs = [(graph.output(at), layer) for at, layer in self._call.gradients.items()]
        pending = [(producer, layer) for producer, layer in of_outputs if producer is not None]
        pending += graph.applied_gradients(self._variables)
        for name, index, reference in self._notes.gradients:
            owner, number = self._reader.owner_of(reference()), graph.number.get(name)
            if owner is not None and number is not None:
                pending.append(((number, index), owner[1]))
                if number in vectorized:
                    pending.append(((vectorized[number], 0), owner[1]))
        while pending:
            (number, index), layer = pending.pop()
            kind = graph.types[number]
            if kind in CALLS:
                self.of_output[number, index] = layer
            elif number not in self.gradients and kind != "Placeholder":
                self.gradients[number] = layer
                for term in graph.inputs[number] if kind in _COMBINES_GRADIENTS else ():
                    if readers[term] == 1 and self._passes[term[0]] == "backward":
                        pending.append((term, layer))

    def _sparse_sums(self) -> set[int]:
        graph, gradients = self.graph, self.gradients
        sums = {number for number, kind in enumerate(graph.types) if kind == _MAKES_DENSE}
        for number in sorted(sums):
            (source, _), (rows, _) = graph.inputs[number][:2]
            while (
                source not in gradients and graph.types[source] in _SCALES and graph.inputs[source]
            ):
                source = graph.inputs[source][0][0]  # values that were clipped or scaled
            if source in gradients and rows in gradients:
                gradients.setdefault(number, gradients[source])
        return gradients.keys() & sums

    def _of_replicas(self) -> tuple[set[int], set[int]]:
        """The collective operations with the ops that pack gradients for them, and those that
        unpack the sums. TensorFlow packs all gradients of a replica into one tensor."""
        types, inputs = self.graph.types, self.graph.inputs
        found = {at for at, kind in enumerate(types) if kind.startswith("Collective")}
        packs = {inputs[at][0][0] for at in found if inputs[at]}
        unpacks = {
            at for at, kind in enumerate(types) if kind == "SplitV" and inputs[at][0][0] in found
        }
        return found | {at for at in packs if types[at] == "ConcatV2"}, unpacks

    def _early_ops(self) -> set[int]:
        """Backward ops that depend on no gradient, except those that make zeros; empty if that is
        unknown. A tape first makes the gradient of its target with respect to itself, which is 1;
        every other gradient depends on it. If a variable's gradient does not, the tape started from
        an `output_gradients` argument, and nothing is known."""
        graph = self.graph
        seeds = {span.start for span in self.layers.backward_spans}
        if not seeds or any(graph.types[seed] not in _ONES for seed in seeds if seed < len(graph)):
            return set()
        dependent: set[int] = set()
        for number, sources in enumerate(graph.inputs):
            if number in seeds or any(source in dependent for source, _ in sources):
                dependent.add(number)
        others = [
            at for at, name in enumerate(self._passes) if name == "backward" and at not in dependent
        ]
        outputs = [graph.ops[number].outputs for number in others if number in self.gradients]
        # but the rows of a sparse gradient
        if not all(tensors and tensors[0].dtype.is_integer for tensors in outputs):
            return set()
        return {number for number in others if graph.types[number] not in _ZEROS}

    def _saved_for_backward(self) -> set[int]:
        """Numbers of the ops with results that an op of the backward pass reads that TensorFlow
        runs."""
        graph, early = self.graph, self._early
        producers = (graph.output(index) for index in self._call.read_outputs)
        saved = {producer[0] for producer in producers if producer is not None}
        for number in self._backward:
            for source, _ in graph.inputs[number] if graph.types[number] not in SHAPE_OPS else ():
                is_forward = self._passes[source] != "backward" or self.layers.in_layer[source]
                if is_forward or (source in early and number not in early):
                    saved.add(source)
        if self._call.pass_name == "forward":
            for number, kind in enumerate(graph.types):
                if kind.startswith("TensorListPushBack") and self._passes[number] != "backward":
                    saved.update(source for source, _ in graph.inputs[number][1:])
        return saved

    def _late_reads(self) -> dict[int, int]:
        """Op to the number of the backward pass that reads its result, of passes that differentiate
        another one."""
        reads: dict[int, int] = {}
        for number in self._backward:
            read_late = self.layers.late_pass(number)
            if read_late is not None and self.graph.types[number] not in SHAPE_OPS:
                for source, _ in self.graph.inputs[number]:
                    while self._passes[source] != "backward" and source not in reads:
                        reads[source] = read_late
                        # the buffer is that of its input
                        if self.graph.types[source] in _SAME_BYTES:
                            source = self.graph.inputs[source][0][0]
        return reads

    def _buffer_reusers(self) -> dict[int, list[str]]:
        """Op number to the names of the ops that may reuse its output buffer: readers of the same
        pass and dtype."""
        names: dict[int, list[str]] = {}
        dtypes = self.graph.output_dtypes
        for number, op in enumerate(self.graph.ops):
            if op.type not in SHAPE_OPS and dtypes[number]:
                for source, index in self.graph.inputs[number]:
                    same_dtype = dtypes[source][index] == dtypes[number][0]
                    if same_dtype and self._passes[source] == self._passes[number]:
                        names.setdefault(source, []).append(op.name)
        return names
