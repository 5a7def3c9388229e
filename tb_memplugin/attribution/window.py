"""One traced window as the ownership rules read it: its chunks, their events, and the facts of its
ops.

When TensorFlow runs a graph, it inlines functions and loops and prefixes the names of their ops
with the calling op (``StatefulPartitionedCall/sequential/lstm/while/body/_12/lstm_cell/MatMul``).
Its graph optimizer adds ops of its own and names them after existing ones. It also regroups
products: it computes ``gradient * (3 * x ** 2)`` instead of ``(gradient * 3) * x ** 2``, and ``3 *
x ** 2`` then runs in the forward pass under the name of ``gradient * 3``. Such a backward op runs
before ops that it needs in the traced graph; it was made independent of gradients.

A profile made without the recorder has no facts: name scopes stand for layers then."""

import dataclasses
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

import numpy as np

from tb_memplugin.attribution.chunks import all_chunks, input_events, readers
from tb_memplugin.schema import (
    AllocationTrace,
    Category,
    GraphFacts,
    Integers,
    OpFact,
    Pass,
    TensorFact,
    TraceFacts,
    dimensions,
    distinct,
)

GRADIENT_SCOPES = ("gradient_tape/", "gradients/")
_FUNCTION = re.compile(r"^__(?:inference|forward|backward)_|_\d+$")
_INLINED = re.compile(r"(body|cond|then|else)/_\d+/")
_OPTIMIZED = re.compile(
    r"(-\d+)+-\w*(Transpose|Optimizer|Const|Permute)\w*(-\w+)*$|_(copy|fused|cf)__?\d+$"
)
_RELAYOUT = re.compile(
    r"(?<!-\d)(?<!-\d\d)-(\d+)-(?:Transpose|VecPermute|DimMap)\w*-LayoutOptimizer$"
)
_OPTIMIZER_SCOPES = ("ArithmeticOptimizer/", "ConstantFolding/", "LoopOptimizer/", "Remapper/")
_REWRITE = re.compile(r"[A-Z][A-Za-z]+_")

NOTE = (
    "Layer paths are unknown: the profile was made without the recorder. TensorFlow's name "
    "scopes are shown instead; they can bear another layer's name."
)
_CALL = re.compile(r"^(?:(?:Stateful)?PartitionedCall(?:_\d+)?/)+")
_GRADIENT = re.compile(r"(?:^|/)gradient(?:_tape|s)/")
_OPTIMIZERS = re.compile(
    r"^(?:adam|adamw|adamax|adagrad|adadelta|adafactor|nadam|sgd|rmsprop|ftrl|lion|lamb|muon|loss_scale_optimizer)(?:_\d+)?/",
    re.IGNORECASE,
)
_NO_LAYER = re.compile(r"^(?:compile_loss|loss|metrics|Iterator|cond|while)\b")


Place: TypeAlias = tuple[OpFact, Mapping[str, OpFact], str]
"""An op's fact, the ops of its graph, and the prefix that their names have in a trace."""


class OpNames:
    """Facts of the ops of one trace; `executed` maps the index of an execution's name to the op's
    name."""

    def __init__(self, trace: AllocationTrace, facts: TraceFacts) -> None:
        self._facts = facts
        self._scopes: dict[int, dict[str, OpFact]] = {}
        self._parts: dict[int, int] = {}
        self.executed = {
            index: op_name(trace.strings[index]) for index in distinct(trace.ops.name).tolist()
        }
        self._roots = self._ranked_roots(trace)
        self._facts_of: dict[str, OpFact | None] = {}
        self._graphs_of: dict[str, list[tuple[Mapping[str, OpFact], int]]] = {}

    def _ranked_roots(self, trace: AllocationTrace) -> list[GraphFacts]:
        """Root graphs and graphs that XLA compiled: first the one that knows most of the names, of
        equals the newest. Root graphs count only if a function of their name ran in the window,
        unless no such function ran."""
        # `one_step_on_data` runs as `__inference_one_step_on_data_1213`.
        ran = {_FUNCTION.sub("", trace.strings[index]) for index in set(trace.calls.name.tolist())}
        roots = [graph for graph in self._facts.graphs if graph.root]
        roots = [graph for graph in roots if graph.name in ran] or roots
        compiled = {module.function for module in trace.modules}
        roots += [
            graph for graph in self._facts.graphs if graph.name in compiled and not graph.root
        ]
        if len(roots) == 1:
            return roots
        names = _texts(trace, trace.op).union(self.executed.values())
        for module in trace.modules:
            for allocation in module.allocations:
                names.update(name for buffer in allocation.buffers for name in buffer.ops[:1])
        by_scope: dict[str, list[str]] = {}
        for name in names:
            by_scope.setdefault(name[: name.rfind("/") + 1], []).append(name)
        ranked = []
        for place, root in enumerate(roots):
            known = 0
            for scope, own in by_scope.items():
                graphs = list(self._graphs_at(root, scope))
                known += sum(any(name[start:] in ops for ops, start in graphs) for name in own)
            ranked += [(known, place)] if known else []
        return [roots[place] for _, place in sorted(ranked, reverse=True)]

    def fact(self, name: str) -> OpFact | None:
        """Facts of an op, or of the op that TensorFlow's graph optimizer derived it from; None if
        unknown."""
        if name not in self._facts_of:
            self._facts_of[name] = self._find(name)
        return self._facts_of[name]

    def _find(self, name: str) -> OpFact | None:
        place = self.place(name)
        if place is not None:
            return place[0]
        variants = _variants(name)
        for variant in variants[1:]:
            place = self.place(variant)
            if place is not None:
                return _derived(name, place[0])
        for variant in variants:
            for root in self._roots:
                fact = self._by_scope(root, variant)
                if fact is not None:
                    return fact
        return None

    def regard_as_early(self, names: Iterable[str]) -> None:
        """From now on, the facts of these ops say that they depend on no gradient."""
        for name in names:
            fact = self.fact(name)
            if fact is not None:
                self._facts_of[name] = dataclasses.replace(
                    fact, gradient_free=True, is_gradient=False, gradient_of=None
                )

    def following(self, name: str) -> list[str]:
        """Names of the ops that may reuse the buffer of an op of the program, or of an op that
        replaces one."""
        for variant in (name, *_replaced(name)):
            place = self.place(variant)
            if place is not None:
                return [place[2] + other for other in place[0].passes_to]
        return []

    def place(self, name: str) -> Place | None:
        scope = name[: name.rfind("/") + 1]
        graphs = self._graphs_of.get(scope)
        if graphs is None:
            graphs = [entry for root in self._roots for entry in self._graphs_at(root, scope)]
            self._graphs_of[scope] = graphs
        for ops, start in graphs:
            fact = ops.get(name[start:])
            if fact is not None:
                return fact, ops, name[:start]
        return None

    def _graphs_at(
        self, graph: GraphFacts, scope: str, start: int = 0
    ) -> Iterator[tuple[Mapping[str, OpFact], int]]:
        """Ops of each graph that may have the ops of a scope (``a/b/``), `graph` first, then those
        that it calls; with each, the number of characters that the ops' names lack there."""
        yield graph.ops, start
        for callee, rest in self._called(graph, scope):
            yield from self._graphs_at(callee, rest, start + len(scope) - len(rest))

    def _called(self, graph: GraphFacts, name: str) -> list[tuple[GraphFacts, str]]:
        """Graphs called by ops whose names are prefixes of `name`, each with the remainder of the
        name."""
        called: list[tuple[GraphFacts, str]] = []
        if not graph.callees:
            return called
        end = name.find("/")
        if id(graph) not in self._parts:  # of the longest name of an op that calls a graph
            self._parts[id(graph)] = 1 + max(caller.count("/") for caller in graph.callees)
        for _ in range(self._parts[id(graph)]):
            if end <= 0:
                break
            for label, index in graph.callees.get(name[:end], ()):
                rest = name[end + 1 :]
                if label:
                    inlined = _INLINED.match(rest)
                    if not inlined or inlined[1] != label:
                        continue
                    rest = rest[inlined.end() :]
                called.append((self._facts.graphs[index], rest))
            end = name.find("/", end + 1)
        return called

    def _by_scope(self, graph: GraphFacts, name: str) -> OpFact | None:
        for callee, rest in self._called(graph, name):
            fact = self._by_scope(callee, rest)
            if fact is not None:
                return fact
        scopes = self._graph_scopes(graph)
        scope = name
        while scope:
            fact = graph.ops.get(scope) or scopes.get(scope)
            if fact is not None:
                pass_name: Pass = (
                    "backward" if any(part in name for part in GRADIENT_SCOPES) else fact.pass_name
                )
                return OpFact(fact.layer, pass_name)
            scope = scope.rpartition("/")[0]
        return None

    def _graph_scopes(self, graph: GraphFacts) -> dict[str, OpFact]:
        scopes = self._scopes.get(id(graph))
        if scopes is None:
            scopes = self._scopes[id(graph)] = {}
            for name, fact in graph.ops.items():
                scope = name.rpartition("/")[0]
                if scope and (scope not in scopes or scopes[scope].layer is None):
                    scopes[scope] = fact
        return scopes


def depends_on_gradients(fact: OpFact | None) -> bool:
    return fact is not None and fact.pass_name == "backward" and not fact.gradient_free


def _derived(name: str, fact: OpFact) -> OpFact:
    """Facts of an op that TensorFlow's graph optimizer derived from an op with these facts.

    A copy of an op's input in another layout
    (``Conv2DBackpropFilter-0-TransposeNHWCToNCHW-LayoutOptimizer``) is not the op's result. Its
    `saved_for_backward` says that the input of a backward op is of the forward pass. Copies of a
    result have two numbers in their names."""
    relayout = _RELAYOUT.search(name)
    if relayout is None:
        return fact
    saved = int(relayout[1]) in fact.forward_inputs
    return OpFact(
        fact.layer, fact.pass_name, saved_for_backward=saved, relayout=True, line=fact.line
    )


def op_name(execution: str) -> str:
    """``scope/MatMul`` of the execution name ``scope/MatMul:_FusedMatMul``."""
    return execution.rpartition(":")[0] or execution


def _variants(name: str) -> list[str]:
    """The name, and the names of ops that TensorFlow's graph optimizer may have derived it from."""
    stripped = _OPTIMIZED.sub("", name)
    return [name, *([stripped] if stripped != name else []), *_replaced(stripped)]


def _replaced(name: str) -> list[str]:
    """Names before the optimizer: ``s/MatMul`` of
    ``s/ArithmeticOptimizer/FoldTransposeIntoMatMul_MatMul``."""
    replaced = []
    for scope in _OPTIMIZER_SCOPES:
        before, found, rest = name.partition(scope)
        if found:
            replaced.append(before + rest)
            rewrite = _REWRITE.match(rest)
            if rewrite:
                replaced.append(before + rest[rewrite.end() :])
    return replaced


def _texts(trace: AllocationTrace, column: Integers) -> set[str]:
    return {trace.strings[index] for index in distinct(column).tolist() if index >= 0}


def facts_from_names(trace: AllocationTrace) -> TraceFacts:
    """Layers and passes of a trace's ops, by their names."""
    names = _texts(trace, trace.op).union(map(op_name, _texts(trace, trace.ops.name)))
    for module in trace.modules:
        for allocation in module.allocations:
            names.update(
                name for buffer in allocation.buffers for name in (*buffer.ops, *buffer.readers)
            )
    scopes = {_scope(_CALL.sub("", name)) for name in names if not _GRADIENT.search(name)}
    ops = {name: _fact(_CALL.sub("", name), scopes) for name in names}
    graph = GraphFacts("", ops, {}, True)
    return TraceFacts(
        mode="eager" if len(trace.layers) else "graph", graphs=(graph,), notes=(NOTE,)
    )


def _scope(name: str) -> str:
    return name.rpartition("/")[0]


def _fact(name: str, scopes: set[str]) -> OpFact:
    if _OPTIMIZERS.match(name):
        return OpFact(None, "update")
    gradient = _GRADIENT.search(name)
    pass_name: Pass = "forward"
    scope = _scope(name)
    if gradient:
        pass_name, scope = "backward", name[gradient.end() :]
        while scope and scope not in scopes:
            scope = _scope(scope)
    if not scope or _NO_LAYER.match(scope):
        return OpFact(None, pass_name if gradient or scope else "other")
    return OpFact(scope, pass_name)


Span = tuple[float, float]
"""Times in picoseconds at which an op's first and last execution began."""


def reordered_ops(
    trace: AllocationTrace, names: OpNames, before_backward: bool = False
) -> set[str]:
    """Names of the backward ops that began before all ops that they depend on in the traced graph.

    All, because the optimizer moves casts behind ops that depend on them. Both the first and the
    last executions count, as a trace may begin or end within a step. In a last step that failed
    `before_backward`, those ops never ran."""
    index, first_began, last_began = _began(trace, names)
    reordered: set[str] = set()
    graphs: dict[tuple[int, str], tuple[dict[str, list[str]], dict[str, Span]]] = {}
    for name in _makers(trace, names):
        place = (
            names.place(name) if name in index and depends_on_gradients(names.fact(name)) else None
        )
        if place is None:
            continue
        _, ops, prefix = place
        # Inputs of each op, and when it and those that it depends on first began.
        inputs_of, earliest = graphs.setdefault((id(ops), prefix), ({}, {}))
        pending = [name[len(prefix) :]]
        while pending:
            op = pending[-1]
            inputs = inputs_of.get(op)
            if inputs is None:
                inputs = [
                    source
                    for source in ops[op].gradient_inputs
                    if depends_on_gradients(ops.get(source))
                ]
                inputs_of[op] = inputs
                unknown = [source for source in inputs if source not in inputs_of]
                if unknown:
                    pending += unknown
                    continue
            pending.pop()
            if op in earliest:
                continue
            first = last = math.inf
            for source in inputs:
                if source in earliest:  # unless it depends on this op in turn
                    first, last = min(first, earliest[source][0]), min(last, earliest[source][1])
            own = index.get(prefix + op)
            if own is not None:
                own_first, own_last = first_began[own], last_began[own]
                if inputs and own_first < first and (before_backward or own_last < last < math.inf):
                    reordered.add(prefix + op)
                else:
                    first, last = min(first, own_first), min(last, own_last)
            earliest[op] = first, last
    return reordered


def _makers(trace: AllocationTrace, names: OpNames) -> set[str]:
    """Names of the ops that requested memory, and of those that ran meanwhile on the same
    thread."""
    born = trace.kind == 1
    running = readers(trace)[born]
    return _texts(trace, trace.op[born]).union(
        map(op_name, _texts(trace, trace.ops.name[running[running >= 0]]))
    )


def _began(
    trace: AllocationTrace, names: OpNames
) -> tuple[dict[str, int], dict[int, int], dict[int, int]]:
    """Op to its index; index to when the op first and last began or, on accelerators, allocated."""
    index = dict(zip(names.executed.values(), names.executed, strict=True))
    keys, times = trace.ops.name, trace.ops.start_ps
    # the backward pass comes late
    if not any(depends_on_gradients(names.fact(name)) for name in reversed(index)):
        born = (trace.kind == 1) & (trace.op >= 0)
        keys, times = trace.op[born], trace.time_ps[born]
        index = {trace.strings[key]: key for key in distinct(keys).tolist()}
    order = np.argsort(times, kind="stable")
    ordered = list(zip(keys[order].tolist(), times[order].tolist(), strict=True))
    return index, dict(reversed(ordered)), dict(ordered)


class Owner(NamedTuple):
    layer: str | None
    category: Category
    trainable: bool | None


class Window:
    """The chunks of one trace, with the columns that the rules look up chunk by chunk, as lists.

    Attributes:
        op, time: For each event, the index of the op's name, and when it took place, in
            picoseconds.
        reader: For each event, the op execution that ran last on its thread.
        is_input: For each event, whether the input pipeline allocates.
        allocating: Names of the ops that allocated tensors of their own."""

    def __init__(self, trace: AllocationTrace, facts: TraceFacts) -> None:
        self.trace, self.facts = trace, facts
        self.events = len(trace)
        self.chunks = chunks = all_chunks(trace, facts)
        self.address: list[int] = chunks.address.tolist()
        self.allocated: list[int] = chunks.allocated.tolist()
        self.requested: list[int] = chunks.requested.tolist()
        self.birth: list[int] = chunks.birth.tolist()
        self.death: list[int] = chunks.death.tolist()
        self.op: list[int] = trace.op.tolist()
        self.time: list[int] = trace.time_ps.tolist()
        self.reader: list[int] = readers(trace).tolist()
        self.is_input: list[bool] = input_events(trace, facts.arguments).tolist()
        self.names = OpNames(trace, facts)
        self.names.regard_as_early(reordered_ops(trace, self.names, facts.before_backward))
        self.allocating = _texts(trace, trace.op[(trace.kind == 1) & (trace.region != -1)])
        self._dimensions: dict[int, tuple[int, ...] | None] = {}
        self._tensors_at_end = {fact.address: fact for fact in facts.tensors_at_end}

    def outlives(self, chunk: int) -> bool:
        return self.death[chunk] == self.events

    def is_temporary(self, chunk: int) -> bool:
        """Whether a chunk is an op's scratch space. Some ops request their results as such: these
        outlive the op."""
        birth, death, ops = self.birth[chunk], self.death[chunk], self.trace.ops
        if birth < 0 or self.trace.text(int(self.trace.region[birth])) != "temp":
            return False
        op, last = self.reader[birth], min(death, self.events - 1)
        own = op < 0 or ops.end_ps[op] < self.time[birth] or self.time[last] <= ops.end_ps[op]
        return bool(own) or (last == death and self.reader[death] == op)

    def op_name(self, chunk: int) -> str | None:
        birth = self.birth[chunk]
        return None if birth < 0 else self.trace.text(self.op[birth])

    def dimensions(self, event: int) -> tuple[int, ...] | None:
        number = int(self.trace.shape[event])
        if number not in self._dimensions:
            text = self.trace.text(number)
            self._dimensions[number] = () if text == "[]" else dimensions(text)
        return self._dimensions[number]

    def last_reader_pass(self, chunk: int) -> Pass | None:
        """Pass of the op that ran last on the thread that freed a chunk; None if unknown or not
        freed."""
        if self.outlives(chunk):
            return None
        reader = self.reader[self.death[chunk]]
        fact = (
            None
            if reader < 0
            else self.names.fact(self.names.executed[int(self.trace.ops.name[reader])])
        )
        return None if fact is None else fact.pass_name

    def tensor_at_end(self, chunk: int) -> TensorFact | None:
        """The tensor that Python holds in a chunk that outlives the window."""
        return self._tensors_at_end.get(self.address[chunk]) if self.outlives(chunk) else None

    def layer_owner(self, layer: str | None, category: Category) -> Owner:
        return Owner(layer, category, None if layer is None else self.facts.trainable.get(layer))
