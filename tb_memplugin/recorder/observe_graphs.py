"""Function graphs as TensorFlow traced them, with what `recorder.observe` noted, to plain facts about each op."""

import collections
import dataclasses
import logging
import re
from collections.abc import Callable, Mapping
from typing import Any

from tb_memplugin.recorder.observe import GraphNotes, seen
from tb_memplugin.trace import GraphFacts, OpFact, Pass

logger = logging.getLogger("tb_memplugin")

MAX_GRAPHS = 2000
"""Most graphs that are read of one program: every branch and loop body is one."""
CALLS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "While": (("body", "body"), ("cond", "cond")),
    "StatelessWhile": (("body", "body"), ("cond", "cond")),
    "If": (("then_branch", "then"), ("else_branch", "else")),
    "StatelessIf": (("then_branch", "then"), ("else_branch", "else")),
    "PartitionedCall": (("f", ""),),
    "StatefulPartitionedCall": (("f", ""),),
}
"""Ops that call functions.

Attribute that names the function, and the label that TensorFlow puts into the names of its inlined ops.
"""
GRADIENT_SCOPE = "gradient_tape/"
"""What TensorFlow puts before the forward op's name in the names of the ops of its gradient."""

_ALIASES = frozenset(
    {"Identity", "IdentityN", "Reshape", "Squeeze", "ExpandDims", "StopGradient", "PreventGradient", "CheckNumerics"}
)
_SHAPES = frozenset({"Shape", "ShapeN", "Size", "Rank", "BroadcastGradientArgs", "ReadVariableOp", "VariableShape"})
_GRADIENT_ALIASES = _ALIASES | {"Cast", "Transpose", "AddN", "AddV2"}
_LOOP_GRADIENT = re.compile(r"gradients/(.+?)_grad/")  # in the gradient of a loop's body, after the body's own op

Owner = Callable[[Any], "tuple[str, str | None] | None"]


def graph_facts(paths: Mapping[int, str], owner_of: Owner) -> tuple[GraphFacts, ...]:
    """Facts of every graph that layers were seen in, and of the graphs round and below it; a caller comes before those
    it calls.

    Args:
        paths: id of a layer to its path.
        owner_of: Variable, or resource handle, to the variable's name and layer.
    """
    roots: dict[int, Any] = {}
    for graph in list(seen.graphs):
        outer = graph
        while getattr(outer, "outer_graph", None) is not None and hasattr(outer.outer_graph, "captures"):
            outer = outer.outer_graph
        roots[id(outer)] = outer
    reader = _Reader(paths, owner_of)
    for root in roots.values():
        try:
            reader.read(root)
        except Exception:
            logger.debug("a function graph could not be read", exc_info=True)
    return tuple(graph for graph in reader.graphs if graph is not None)


@dataclasses.dataclass(frozen=True)
class _Call:
    """What a graph inherits from the op that calls it.

    Attributes:
        layer, phase: Of the calling op.
        variables: Placeholder name, in the caller, to the variable whose handle it stands for.
        awaited: Which of the callee's results the backward pass reads.
        gradients: Which of the callee's results are gradients of variables, to the layers of these.
    """

    layer: str | None = None
    phase: Pass | None = None
    variables: Mapping[str, tuple[str, str | None]] = dataclasses.field(default_factory=dict)
    awaited: frozenset[int] = frozenset()
    gradients: Mapping[int, str | None] = dataclasses.field(default_factory=dict)


class _Reader:
    """Reads graphs recursively; a graph that is called from several places is read once for each."""

    def __init__(self, paths: Mapping[int, str], owner_of: Owner) -> None:
        self._paths, self._owner_of = paths, owner_of
        self._by_graph: dict[int, _Graph] = {}
        self.graphs: list[GraphFacts | None] = []

    def read(self, graph: Any, call: _Call | None = None) -> int:
        """Reads a graph and those it calls; `call` is None for one that no other calls."""
        index = len(self.graphs)
        self.graphs.append(None)
        forward = self._by_graph.get(id(getattr(graph, "_forward_graph", None)))
        known = _Graph(graph, self._paths, self._owner_of, call or _Call(), forward)
        self._by_graph[id(graph)] = known
        callees: dict[str, list[tuple[str, int]]] = {}
        for number, op in enumerate(known.ops):
            for attribute, label in CALLS.get(op.type, ()):
                callee = _callee(graph, op, attribute)
                if callee is not None and len(self.graphs) < MAX_GRAPHS:
                    callees.setdefault(op.name, []).append((label, self.read(callee, known.call(number))))
        self.graphs[index] = GraphFacts(
            name=graph.name,
            ops=known.facts(),
            callees={name: tuple(found) for name, found in callees.items()},
            root=call is None,
        )
        return index


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
    """One graph: for each op by number, the layer that made it, its pass, and who reads it."""

    def __init__(
        self, graph: Any, paths: Mapping[int, str], owner_of: Owner, call: _Call, forward: "_Graph | None"
    ) -> None:
        self._graph, self._call, self._forward = graph, call, forward
        self.ops = graph.get_operations()
        self.number = {op.name: number for number, op in enumerate(self.ops)}
        self.types = [op.type for op in self.ops]
        self.inputs = self._inputs()
        self.layer: list[str | None] = [call.layer] * len(self.ops)
        self.phase: list[Pass] = [call.phase or "other"] * len(self.ops)
        notes = seen.graphs.get(graph) or GraphNotes()
        self._in_layer = self._place_spans(notes, paths)
        self._default_phases(notes)
        self.scopes = self._scopes()
        self._variables = self._captured(owner_of)
        self._place_gradients()
        self._result_gradients: dict[tuple[int, int], str | None] = {}
        self.gradient_of = self._gradient_sources(notes, owner_of)
        self._place_updates()
        self._awaited = self._read_by_backward()

    def call(self, number: int) -> _Call:
        """What the callees of a calling op inherit from it."""
        gradients = {index: layer for (op, index), layer in self._result_gradients.items() if op == number}
        return _Call(self.layer[number], self.phase[number], self._variables, self._awaited_results(number), gradients)

    def _inputs(self) -> list[list[tuple[int, int]]]:
        """For each op, its inputs as (number of the op, which of its results).

        IdentityN, which ties many tensors together, is seen through.
        """
        inputs: list[list[tuple[int, int]]] = []
        for op in self.ops:
            sources = [(self.number[tensor.op.name], tensor.value_index) for tensor in op.inputs]
            inputs.append(
                [inputs[n][k] if n < len(inputs) and self.types[n] == "IdentityN" else (n, k) for n, k in sources]
            )
        return inputs

    def _place_spans(self, notes: GraphNotes, paths: Mapping[int, str]) -> list[bool]:
        """Gives the ops of each noted call to its layer and pass; calls that began later, within others, win."""
        in_layer = [False] * len(self.ops)
        threads: list[int | None] = [None] * len(self.ops)  # of the call that gave an op its pass
        for span in sorted(notes.spans, key=lambda span: (span.start, span.depth)):
            ops = range(span.start, min(span.end, len(self.ops)))
            path = self._path(span, paths) if span.kind == "layer" else None
            if span.kind == "layer" and path is None:
                continue
            for number in ops:
                if span.kind != "layer":
                    self.phase[number] = span.kind  # type: ignore[call-overload]
                elif self.phase[number] == "other" or threads[number] not in (None, span.thread):
                    self.phase[number] = "forward"
                threads[number] = span.thread
                if path is not None:
                    self.layer[number] = path
                    in_layer[number] = True
        return in_layer

    @staticmethod
    def _path(span: Any, paths: Mapping[int, str]) -> str | None:
        layer = span.layer()
        return None if layer is None else paths.get(id(layer))

    def _default_phases(self, notes: GraphNotes) -> None:
        """Ops that no layer made.

        Before the backward pass they are forward (losses), of TensorFlow's gradient scope backward.
        """
        first = min(
            (span.start for span in notes.spans if span.kind == "backward" and span.end > span.start), default=None
        )
        for number, op in enumerate(self.ops):
            if self.phase[number] != "other":
                continue
            if GRADIENT_SCOPE in op.name or op.name.startswith("gradients/"):
                self.phase[number] = "backward"
            elif first is not None and number < first:
                self.phase[number] = "forward"

    def _scopes(self) -> dict[str, str | None]:
        """Name scope to the layer whose forward ops are in it; the first to use it wins."""
        scopes: dict[str, str | None] = {}
        for number, op in enumerate(self.ops):
            if self.layer[number] is not None and GRADIENT_SCOPE not in op.name:
                scopes.setdefault(op.name.rpartition("/")[0], self.layer[number])
        return scopes

    def _forward_owner(self, name: str) -> tuple[bool, str | None]:
        """Whether a name, or a scope above it, is one of the forward pass, and whose it is."""
        while name:
            number = self.number.get(name)
            if number is not None and GRADIENT_SCOPE not in name:
                return True, self.layer[number]
            if name in self.scopes:
                return True, self.scopes[name]
            name = name.rpartition("/")[0]
        return False, None

    def _place_gradients(self) -> None:
        """Gives gradient ops to the layer of the forward op that their name says they are the gradient of."""
        for number, op in enumerate(self.ops):
            if self.phase[number] != "backward" or self._in_layer[number]:
                continue
            inner = _LOOP_GRADIENT.search(op.name)
            if inner and self._forward is not None and inner[1] in self._forward.number:
                self.layer[number] = self._forward.layer[self._forward.number[inner[1]]]
                continue
            place = op.name.rfind(GRADIENT_SCOPE)
            if place >= 0:
                name = op.name[place + len(GRADIENT_SCOPE) :]
                found, layer = self._forward_owner(name)
                if found:
                    self.layer[number] = layer
                    continue
            owners = (self.layer[source] for source, _ in self.inputs[number] if self.phase[source] == "backward")
            self.layer[number] = next((owner for owner in owners if owner is not None), self.layer[number])

    def _captured(self, owner_of: Owner) -> dict[str, tuple[str, str | None]]:
        """Placeholder name to the variable whose handle it stands for."""
        found: dict[str, tuple[str, str | None]] = {}
        for external, internal in getattr(self._graph, "captures", ()):
            owner = owner_of(external)
            if owner is None and hasattr(external, "graph"):
                owner = self._call.variables.get(external.op.name)
            if owner is not None:
                found[internal.op.name] = owner
        return found

    def _gradient_sources(self, notes: GraphNotes, owner_of: Owner) -> dict[int, str | None]:
        """Number of an op whose result is a variable's gradient to the variable's layer.

        With the ops whose results only go into it: the terms of a sum, the same bytes under another name or dtype.
        """
        readers = collections.Counter(source for sources in self.inputs for source in sources)
        results = list(getattr(self._graph, "outputs", ()) or ())
        waiting: list[tuple[int, int, str | None]] = []
        for index, layer in self._call.gradients.items():
            if index < len(results) and results[index].op.name in self.number:
                waiting.append((self.number[results[index].op.name], results[index].value_index, layer))
        for name, index, reference in notes.gradients:
            owner = owner_of(reference()) if reference() is not None else None
            if owner is not None and name in self.number:
                waiting.append((self.number[name], index, owner[1]))
        found: dict[int, str | None] = {}
        while waiting:
            number, index, layer = waiting.pop()
            if self.types[number] in CALLS:
                self._result_gradients[number, index] = layer
            elif number not in found and self.types[number] != "Placeholder":
                found[number] = layer
                if self.types[number] in _GRADIENT_ALIASES:
                    terms = (term for term in self.inputs[number] if readers[term] == 1)
                    waiting.extend((*term, layer) for term in terms if self.phase[term[0]] == "backward")
        return found

    def _place_updates(self) -> None:
        """Gives the optimizer's ops to the layer of the variable that they read or write, by following the data."""
        for number in range(len(self.ops)):
            if self.phase[number] != "update" or self.layer[number] is not None:
                continue
            for source, _ in self.inputs[number]:
                handle = self._variables.get(self.ops[source].name)
                owner = handle[1] if handle else self.gradient_of.get(source)
                if owner is None and self.phase[source] == "update":
                    owner = self.layer[source]
                if owner is not None:
                    self.layer[number] = owner
                    break

    def _read_by_backward(self) -> set[int]:
        """Ops whose results some op of the backward pass reads."""
        awaited: set[int] = set()
        for number in range(len(self.ops)):
            if self.types[number] in _SHAPES:
                continue
            if self.phase[number] == "backward":
                awaited.update(
                    source
                    for source, _ in self.inputs[number]
                    if not (self.phase[source] == "backward" and not self._in_layer[source])
                )
            elif self.types[number].startswith("TensorListPushBack") and self._call.phase == "forward":
                awaited.update(source for source, _ in self.inputs[number][1:])
        outputs = list(getattr(self._graph, "outputs", ()) or ())
        for index in self._call.awaited:
            if index < len(outputs):
                producer = self.number.get(outputs[index].op.name)
                if producer is not None:
                    awaited.add(producer)
        return awaited

    def _awaited_results(self, number: int) -> frozenset[int]:
        """Which results of a call op the backward pass reads."""
        if self.phase[number] == "backward" or self.types[number] not in ("PartitionedCall", "StatefulPartitionedCall"):
            return frozenset()
        return frozenset(
            index
            for reader, sources in enumerate(self.inputs)
            if self.phase[reader] == "backward"
            for source, index in sources
            if source == number
        )

    def facts(self) -> dict[str, OpFact]:
        """Op name to fact."""
        passes: dict[int, list[str]] = {}
        for number, sources in enumerate(self.inputs):
            if self.types[number] in _SHAPES or not self.ops[number].outputs:
                continue
            dtype = self.ops[number].outputs[0].dtype
            for source, index in sources:
                if self.ops[source].outputs[index].dtype == dtype and self.phase[source] == self.phase[number]:
                    passes.setdefault(source, []).append(self.ops[number].name)
        return {
            op.name: OpFact(
                layer=self.layer[number],
                phase=self.phase[number],
                awaited=number in self._awaited,
                gradient_of=self.gradient_of.get(number),
                is_gradient=number in self.gradient_of,
                assigns=self._assigned(number),
                passes_to=tuple(passes.get(number, ())),
                forward_inputs=self._forward_inputs(number),
            )
            for number, op in enumerate(self.ops)
        }

    def _forward_inputs(self, number: int) -> tuple[int, ...]:
        """Which inputs of an op of the backward pass are not of that pass."""
        if self.phase[number] != "backward":
            return ()
        return tuple(place for place, (source, _) in enumerate(self.inputs[number]) if self.phase[source] != "backward")

    def _assigned(self, number: int) -> str | None:
        """Name of the variable that an op writes to."""
        if not self.inputs[number] or self.types[number] == "ReadVariableOp":
            return None
        for source, _ in self.inputs[number]:
            owner = self._variables.get(self.ops[source].name)
            if owner is not None:
                return owner[0]
        return None
