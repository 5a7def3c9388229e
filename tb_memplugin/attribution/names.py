"""The facts of the ops of one trace, by their names.

When TensorFlow runs a graph, it inlines functions and loops and prefixes the names of their ops
with the calling op (``StatefulPartitionedCall/sequential/lstm/while/body/_12/lstm_cell/MatMul``).
Its graph optimizer adds ops of its own and names them after existing ones. It also regroups
products: it computes ``gradient * (3 * x ** 2)`` instead of ``(gradient * 3) * x ** 2``, and ``3 *
x ** 2`` then runs in the forward pass under the name of ``gradient * 3``. Such a backward op runs
before ops that it needs in the traced graph; it was made independent of gradients."""

import dataclasses
import itertools
import math
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import TypeAlias

import numpy as np

from tb_memplugin.schema import (
    AllocationTrace,
    Buffer,
    GraphFacts,
    Integers,
    Module,
    OpFact,
    TraceFacts,
    distinct,
    rows_of,
)

_GRADIENT_SCOPES = ("gradient_tape/", "gradients/")
_FUNCTION = re.compile(r"^__(?:inference|forward|backward)_|_\d+$")
_INLINED = re.compile(r"(body|cond|then|else)/_\d+/")
_OPTIMIZED = re.compile(
    r"(-\d+)+-\w*(Transpose|Optimizer|Const|Permute|CastTo)\w*(-\w+)*$|_(copy|fused|cf)__?\d+$"
)
_RELAYOUT = re.compile(
    r"(?<!-\d)(?<!-\d\d)-(\d+)-(?:Transpose|VecPermute|DimMap)\w*-LayoutOptimizer$"
)
_OPTIMIZER_SCOPE = re.compile(
    r"(?:ArithmeticOptimizer|ConstantFolding|LoopOptimizer|Remapper|Recomputed)/"
)
_STAGE = re.compile(r"((?:Arithmetic|Loop)Optimizer|Remapper)/[A-Z][A-Za-z]+_")

UNKNOWN_OP = OpFact(None, "other")
"""Stands, by identity, for the facts of an op that the recorder does not know."""
Place: TypeAlias = tuple[OpFact, Mapping[str, OpFact], str]
"""An op's fact, the ops of its graph, and the prefix that their names have in a trace."""
Span: TypeAlias = tuple[float, float]
"""Times in picoseconds at which an op's first and last execution began."""


class OpNames:
    """Facts of the ops of one trace; `executed` maps the index of an execution's name to the op's
    name."""

    def __init__(self, trace: AllocationTrace, facts: TraceFacts) -> None:
        self._facts = facts
        self._scopes: dict[int, dict[str, OpFact]] = {}
        self.executed = {
            index: op_name(trace.strings[index]) for index in distinct(trace.ops.name).tolist()
        }
        self._facts_of: dict[str | None, OpFact] = {None: UNKNOWN_OP}
        self._graphs_of: dict[str, list[tuple[Mapping[str, OpFact], int]]] = {}
        self._roots: list[GraphFacts] = []
        self._roots = self._ranked_roots(trace)

    def _ranked_roots(self, trace: AllocationTrace) -> list[GraphFacts]:
        """Root graphs and graphs that XLA compiled: first the one that knows most of the names, of
        equals the newest. Root graphs count only if a function of their name ran in the window,
        unless no such function ran."""
        # `one_step_on_data` runs as `__inference_one_step_on_data_1213`.
        ran = {_FUNCTION.sub("", trace.strings[index]) for index in set(trace.calls.name.tolist())}
        roots = [graph for graph in self._facts.graphs if graph.root]
        # a session's graph has no name
        roots = [graph for graph in roots if graph.name in ran or not graph.name] or roots
        compiled = {module.function for module in trace.modules}
        roots += [
            graph for graph in self._facts.graphs if graph.name in compiled and not graph.root
        ]
        if len(roots) == 1:
            return roots
        names = texts(trace, trace.op).union(self.executed.values())
        names.update(name for buffer in buffers_of(*trace.modules) for name in buffer.ops[:1])
        ranked = []
        for place, root in enumerate(roots):
            self._roots, self._graphs_of = [root], {}
            ranked.append((sum(self.place(name) is not None for name in names), place))
        self._graphs_of = {}
        return [roots[place] for known, place in sorted(ranked, reverse=True) if known]

    def fact(self, name: str | None) -> OpFact:
        """Facts of an op, or of the op that TensorFlow's graph optimizer derived it from;
        `UNKNOWN_OP` without any."""
        if name is not None and name not in self._facts_of:
            self._facts_of[name] = self._find(name)
        return self._facts_of[name]

    def _find(self, name: str) -> OpFact:
        place = self.place(name)
        if place is not None:
            return place[0]
        variants = _variants(name)
        for variant in variants[1:]:
            place = self.place(variant)
            if place is not None:
                return _derived(name, place[0])
        for fact, _, _ in filter(None, map(self.place, _named_in(variants[1:]))):
            return OpFact(fact.layer, fact.pass_name, line=fact.line)
        by_scope = (self._by_scope(root, variant) for variant in variants for root in self._roots)
        return next(filter(None, by_scope), UNKNOWN_OP)

    def regard_as_early(self, names: Iterable[str]) -> None:
        """From now on, the facts of these ops say that they depend on no gradient."""
        for name in names:
            self._facts_of[name] = dataclasses.replace(
                self.fact(name), gradient_free=True, is_gradient=False, gradient_of=None
            )

    def following(self, name: str) -> list[str]:
        """Names of the ops that may reuse the buffer of an op of the program, or of an op that
        replaces one."""
        for variant in (name, *_replaced(name)):
            place = self.place(variant)
            if place is not None:
                return [place[2] + other for other in place[0].passes_to]
        return []

    def calls(self, functions: Container[str]) -> set[str]:
        """Names of the ops that call these functions."""
        found, pending = set[str](), [(root, "") for root in self._roots if root.root]
        for graph, prefix in pending:
            for op, callees in graph.callees.items():
                for callee in (self._facts.graphs[index] for label, index in callees if not label):
                    found.update([prefix + op] if callee.name in functions else ())
                    pending.append((callee, f"{prefix}{op}/"))
        return found

    def called(self, name: str) -> list[OpFact]:
        """Facts of the ops of the function that an op calls."""
        scope = f"{name}/"
        graphs = (entry for root in self._roots for entry in self._graphs_at(root, scope))
        return [fact for ops, start in graphs if start == len(scope) for fact in ops.values()]

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

    def _called(self, graph: GraphFacts, name: str) -> Iterator[tuple[GraphFacts, str]]:
        """Graphs called by ops whose names are prefixes of `name`, each with the remainder of the
        name."""
        end = name.find("/") if graph.callees else -1
        while end > 0:
            for label, index in graph.callees.get(name[:end], ()):
                rest = name[end + 1 :]
                inlined = _INLINED.match(rest) if label else None
                if inlined and inlined[1] == label:
                    rest = rest[inlined.end() :]
                elif label:
                    continue
                yield self._facts.graphs[index], rest
            end = name.find("/", end + 1)

    def _by_scope(self, graph: GraphFacts, name: str) -> OpFact | None:
        inner = (self._by_scope(callee, rest) for callee, rest in self._called(graph, name))
        fact = next(filter(None, inner), None)
        scope, scopes = name, self._graph_scopes(graph)
        while fact is None and scope:
            known = graph.ops.get(scope) or scopes.get(scope)
            if known is not None:
                of_gradient = any(part in name for part in _GRADIENT_SCOPES)
                fact = OpFact(known.layer, "backward" if of_gradient else known.pass_name)
            scope = scope.rpartition("/")[0]
        return fact

    def _graph_scopes(self, graph: GraphFacts) -> dict[str, OpFact]:
        scopes = self._scopes.get(id(graph))
        if scopes is None:
            scopes = self._scopes[id(graph)] = {}
            for name, fact in graph.ops.items():
                scope = name.rpartition("/")[0]
                if scope and (scope not in scopes or scopes[scope].layer is None):
                    scopes[scope] = fact
        return scopes


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
    return list(dict.fromkeys([name, stripped, *_replaced(stripped)]))


def _replaced(name: str) -> list[str]:
    """Names before the optimizer: ``s/MatMul`` of
    ``s/ArithmeticOptimizer/FoldTransposeIntoMatMul_MatMul``."""
    replaced = (_OPTIMIZER_SCOPE.sub("", one) for one in (name, _STAGE.sub("", name)))
    return [one for one in dict.fromkeys(replaced) if one != name]


def _named_in(variants: Iterable[str]) -> Iterator[str]:
    """Names of ops that the name of an op of the optimizer may contain, the longest first. The
    optimizer puts its rule, a dtype or a number before the name of the op that the new one serves,
    and the names of others or a purpose behind it: ``s/add`` of ``s/AddOpsRewrite_Internal_0_add``,
    ``s/Sum`` of ``s/Sum-reduction_indices``. Source: TensorFlow's ``graph_optimizer_stage.cc`` and
    ``constant_folding.cc``."""
    for name in variants:
        scope, slash, last = name.rpartition("/")
        words = re.split(r"([-_])", last)
        ranges = itertools.combinations(range(len(words) + 1), 2)
        parts = ["".join(words[first:end]) for first, end in ranges]
        for part in sorted(parts, key=len, reverse=True):
            yield scope + slash + part


def buffers_of(*modules: Module) -> Iterator[Buffer]:
    return (one for module in modules for planned in module.allocations for one in planned.buffers)


def texts(trace: AllocationTrace, column: Integers) -> set[str]:
    return {trace.strings[index] for index in distinct(column).tolist() if index >= 0}


# --- backward ops that TensorFlow's graph optimizer moved -----------------------------------------


def reordered_ops(
    trace: AllocationTrace, names: OpNames, running: Integers, before_backward: bool
) -> set[str]:
    """Names of the backward ops that began before all ops that they depend on in the traced graph.

    All, because the optimizer moves casts behind ops that depend on them. Both the first and the
    last executions count, as a trace may begin or end within a step. In a last step that failed
    `before_backward`, those ops never ran. `running` has for each event the row of the op that ran
    on its thread."""
    index, first_began, last_began = _began(trace, names)
    born = trace.kind == 1
    meanwhile = running[born & (running >= 0)]
    makers = texts(trace, trace.op[born]).union(
        map(op_name, texts(trace, trace.ops.name[meanwhile]))
    )
    reordered: set[str] = set()
    graphs: dict[tuple[int, str], tuple[dict[str, list[str]], dict[str, Span]]] = {}
    for name in makers & index.keys():
        place = names.place(name) if _depends_on_gradients(names.fact(name)) else None
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
                sources = ops[op].gradient_inputs
                inputs = [one for one in sources if _depends_on_gradients(ops.get(one, UNKNOWN_OP))]
                inputs_of[op] = inputs
                unknown = [one for one in inputs if one not in inputs_of]
                if unknown:
                    pending += unknown
                    continue
            pending.pop()
            if op in earliest:
                continue
            first = last = math.inf
            for one in inputs:
                if one in earliest:  # unless it depends on this op in turn
                    first, last = min(first, earliest[one][0]), min(last, earliest[one][1])
            own = index.get(prefix + op)
            if own is not None:
                own_first, own_last = first_began[own], last_began[own]
                if inputs and own_first < first and (before_backward or own_last < last < math.inf):
                    reordered.add(prefix + op)
                else:
                    first, last = min(first, own_first), min(last, own_last)
            earliest[op] = first, last
    return reordered


def _depends_on_gradients(fact: OpFact) -> bool:
    return fact.pass_name == "backward" and not fact.gradient_free


def _began(
    trace: AllocationTrace, names: OpNames
) -> tuple[dict[str, int], dict[int, int], dict[int, int]]:
    """Op to its index; index to when the op first and last began or, on accelerators, allocated."""
    index = dict(zip(names.executed.values(), names.executed, strict=True))
    keys, times = trace.ops.name, trace.ops.start_ps
    # the backward pass comes late
    if not any(_depends_on_gradients(names.fact(name)) for name in reversed(index)):
        born = (trace.kind == 1) & (trace.op >= 0)
        keys, times = trace.op[born], trace.time_ps[born]
        index = {trace.strings[key]: key for key in distinct(keys).tolist()}
    order = np.argsort(times, kind="stable")
    ordered = list(rows_of(keys[order], times[order]))
    return index, dict(reversed(ordered)), dict(ordered)
