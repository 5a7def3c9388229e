"""The ops of a function graph by number, the layer and pass of each, and what a called graph
inherits."""

import dataclasses
import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import Any

from tb_memplugin.attribution import in_gradient_scope
from tb_memplugin.recorder.watch.notes import GraphNotes, Span
from tb_memplugin.recorder.watch.sessions import is_session_graph, made_variables, scope_of
from tb_memplugin.schema import Pass

_BRANCHES = (("then_branch", "then"), ("else_branch", "else"))
_LOOP = (("body", "body"), ("cond", "cond"))
CALLS: Mapping[str, tuple[tuple[str, str], ...]] = {
    **dict.fromkeys(("While", "StatelessWhile"), _LOOP),
    **dict.fromkeys(("If", "StatelessIf"), _BRANCHES),
    **dict.fromkeys(("PartitionedCall", "StatefulPartitionedCall"), (("f", ""),)),
}
"""Type of an op that calls functions to pairs of attribute and label. The attribute names the
function; TensorFlow puts the label into the names of the ops that it inlines."""
SHAPE_OPS = frozenset(
    {"Shape", "ShapeN", "Size", "Rank", "BroadcastGradientArgs", "ReadVariableOp", "VariableShape"}
)
"""Ops that do not read the values of their inputs."""
VECTORIZED_SCOPE = "/pfor/"
GRADIENT_SCOPE = "gradient_tape/"
"""TensorFlow's prefix of the forward op's name in the names of the ops of its gradient."""
REPEATABLE = {
    *("Assert", "CheckNumerics", "CheckNumericsV2", "PrintV2", "StringFormat"),
    *("CudnnRNN", "CudnnRNNV2", "CudnnRNNV3"),  # Keras leaves dropout to its own layers
    # vocabularies
    *("LookupTableFind", "LookupTableFindV2", "LookupTableSize", "LookupTableSizeV2"),
}
"""Types of ops that TensorFlow marks as stateful although they return the same when they run
again."""
ASSIGNING = frozenset({"AssignAddVariableOp", "AssignSubVariableOp", "AssignVariableOp"})
"""Types of ops that change a variable. A trainable one that changes in the forward pass would
change twice."""
OF_VARIABLES = ASSIGNING | {
    *(
        "ReadVariableOp",
        "ResourceGather",
        "ResourceGatherNd",
        "VarHandleOp",
        "VarIsInitializedOp",
        "VariableShape",
    )
}
"""Types of stateful ops of variables, which a second pass is given as they were in the first
one."""
_CHANGES_NOTHING = OF_VARIABLES - ASSIGNING | CALLS.keys()
# in the gradient of a loop's body, after the body's own op
_LOOP_GRADIENT = re.compile(r"gradients/(.+?)_grad/")

_RESOURCE = 20  # of TensorFlow's enum `DataType`
_UPDATES = ("Apply", "ResourceApply", "SparseApply", "ResourceSparseApply")

VariableOwner = tuple[str, str | None]  # name and layer of a variable
OwnerOf = Callable[[Any], VariableOwner | None]
"""Maps a variable, or its resource handle, to its owner; None if unknown."""


def updates(op_type: str) -> bool:
    """Whether an op is one of those with which TensorFlow's own optimizers update a variable."""
    return op_type.startswith(_UPDATES)


def repeats(op_type: str, is_stateful: bool) -> bool:
    """Whether an op returns the same in a second pass of a segment of layers, given the same
    inputs."""
    return not is_stateful or op_type in REPEATABLE


@dataclasses.dataclass(frozen=True)
class Call:
    """Properties that a graph inherits from the op that calls it; `powers` is None of a graph that
    Python calls."""

    layer: str | None = None
    pass_name: Pass | None = None
    # by placeholder of the caller
    variables: Mapping[str, VariableOwner] = dataclasses.field(default_factory=dict)
    # indices of the callee's outputs that the backward pass reads
    read_outputs: frozenset[int] = frozenset()
    # index of an output to the layer
    gradients: Mapping[int, str | None] = dataclasses.field(default_factory=dict)
    # of the batch in an argument's dimensions, by name
    powers: Mapping[str, tuple[int | None, ...]] | None = None
    fixed: bool = False  # whether the caller was traced for one batch size
    # names of the arguments that have the first dimension of one of the step's
    rows: Set[str] = frozenset()


class GraphOps:
    """The ops of a graph, numbered in the order in which they were made. The `inputs` of an op are
    pairs of (number of the producer, index of the producer's output). They look through IdentityN,
    which only bundles tensors."""

    def __init__(self, graph: Any) -> None:
        self.graph = graph
        self.ops: list[Any] = graph.get_operations()
        self.number: dict[str, int] = {op.name: number for number, op in enumerate(self.ops)}
        self.types: list[str] = [op.type for op in self.ops]
        self.inputs: list[list[tuple[int, int]]] = []
        for at, op in enumerate(self.ops):
            sources = [(self.number[tensor.op.name], tensor.value_index) for tensor in op.inputs]
            # a loop of TensorFlow 1 goes back from its last ops to its first ones
            before = [source for source in sources if source[0] < at]
            sources = [one if one[0] < at else before[0] for one in sources if before]
            bundled = ((one, self.types[one[0]] == "IdentityN") for one in sources)
            self.inputs.append(
                [self.inputs[one[0]][one[1]] if through else one for one, through in bundled]
            )
        self.of_session = is_session_graph(graph)  # which has none of these
        self._outputs = list(getattr(graph, "outputs", ()) or ())
        self._captures = list(getattr(graph, "captures", ()))

    def __len__(self) -> int:
        return len(self.ops)

    def output(self, index: int) -> tuple[int, int] | None:
        """(op number, index of the op's output) of the graph's output; None if the graph lacks
        it."""
        for tensor in self._outputs[index : index + 1]:
            if tensor.op.name in self.number:
                return self.number[tensor.op.name], tensor.value_index
        return None

    def callees(self, number: int) -> Iterator[tuple[str, Any]]:
        """(label, graph) of each function that an op calls."""
        for attribute, label in CALLS.get(self.types[number], ()):
            callee = _callee(self.graph, self.ops[number].get_attr(attribute).name)
            if callee is not None:
                yield label, callee

    def vectorized_from(self, number: int) -> int | None:
        """The op that an op computes for all iterations of a vectorized loop at once; None for
        other ops. ``tf.vectorized_map`` and ``GradientTape.jacobian`` trace one iteration, then
        convert each op of it to ops in its scope ``pfor``. Of the traced iteration, TensorFlow runs
        only what all iterations share."""
        original, scope, _ = self.ops[number].name.rpartition(VECTORIZED_SCOPE)
        return self.number.get(original) if scope else None

    def reached(
        self, numbers: Iterable[int], others: Callable[[int], Iterable[int | None]]
    ) -> set[int]:
        """The ops, those whose results they read, others that they need, and so on."""
        found: set[int] = set()
        pending: list[int | None] = list(numbers)
        while pending:
            number = pending.pop()
            if number is not None and number not in found:
                found.add(number)
                pending += [source for source, _ in self.inputs[number]]
                pending += others(number)
        return found

    @functools.cached_property
    def needed(self) -> Set[int]:
        """The ops whose results or effects the function needs; TensorFlow runs no others. A
        gradient of something that is no variable, such as a loss's divisor, is traced and never
        computed. Of a graph without outputs, all ops."""
        if not self._outputs:
            return set(range(len(self)))
        ends = [tensor.op for tensor in self._outputs]
        ends += getattr(self.graph, "control_outputs", None) or ()
        needed = [self.number[op.name] for op in ends if op.name in self.number]
        of_kind = dict(zip(self.types, self.ops, strict=True))
        stateful = {kind for kind, op in of_kind.items() if op.op_def.is_stateful}
        needed += [number for number, kind in enumerate(self.types) if kind in stateful]
        return self.reached(
            needed, lambda number: [self.number[op.name] for op in self.ops[number].control_inputs]
        )

    @functools.cached_property
    def constant(self) -> Set[int]:
        """The ops whose results depend on constants only."""
        found: set[int] = set()
        for number, sources in enumerate(self.inputs):
            kind = self.types[number]
            own = bool(sources) and kind != "Placeholder"
            if kind == "Const" or (own and all(source in found for source, _ in sources)):
                found.add(number)
        return {at for at in found if not self.ops[at].op_def.is_stateful}

    @functools.cached_property
    def output_shapes(self) -> list[tuple[tuple[int, ...] | None, ...]]:
        """By op; None for an unknown rank, -1 for an unknown size."""
        return [_same(tuple(_sizes(tensor.shape) for tensor in op.outputs)) for op in self.ops]

    @functools.cached_property
    def output_dtypes(self) -> list[tuple[str, ...]]:
        return [_same(tuple(tensor.dtype.name for tensor in op.outputs)) for op in self.ops]

    def captured_variables(self, call: Call, owner_of: OwnerOf) -> dict[str, VariableOwner]:
        """Name of a placeholder, or of the op that makes a session's variable, to the variable."""
        owners: dict[str, VariableOwner] = {}
        if self.of_session:
            owners = {op.name: (op.name, scope_of(op.name)) for op in made_variables(self.graph)}
        for external, internal in self._captures:
            of_caller = call.variables.get(external.op.name) if hasattr(external, "graph") else None
            if owner := owner_of(external) or of_caller:
                owners[internal.op.name] = owner
        return owners

    def trained_placeholders(self) -> frozenset[int]:
        """Numbers of the placeholders of trainable variables."""
        handles = {id(one.handle) for one in getattr(self.graph, "variables", ()) if one.trainable}
        return frozenset(
            self.number[internal.op.name]
            for external, internal in self._captures
            if id(external) in handles
        )

    def own_arguments(self) -> Set[str]:
        if self.of_session:
            return {op.name for op in self.ops if op.type == "Placeholder"}
        arguments = {tensor.op.name for tensor in getattr(self.graph, "inputs", ()) or ()}
        return arguments - {internal.op.name for _, internal in self._captures}

    def assigned_variable(self, number: int, variables: Mapping[str, VariableOwner]) -> str | None:
        """Name of the variable that an op changes."""
        op = self.ops[number]
        if op.type in _CHANGES_NOTHING:
            return None
        owners = [variables.get(self.ops[source].name) for source, _ in self.inputs[number]]
        if self.of_session:  # an op reads the values of variables, unless it takes references
            taken = [one.is_ref or one.type == _RESOURCE for one in op.op_def.input_arg]
            owners = list(itertools.compress(owners, taken))
        return next((owner[0] for owner in owners if owner is not None), None)

    def applied_gradients(
        self, variables: Mapping[str, VariableOwner]
    ) -> Iterator[tuple[tuple[int, int], str | None]]:
        """The gradients that TensorFlow's ops for updates are given, and the layers of their
        variables."""
        for number, op in enumerate(self.ops):
            if updates(op.type):
                names = [one.name for one in op.op_def.input_arg]
                owner = variables.get(self.ops[self.inputs[number][0][0]].name)
                if owner is not None and "grad" in names:
                    yield self.inputs[number][names.index("grad")], owner[1]


def _callee(graph: Any, name: str) -> Any:
    while hasattr(graph, "_get_function"):
        function = graph._get_function(name)
        if function is not None:
            return getattr(function, "graph", None)
        graph = getattr(graph, "outer_graph", None)
    return None


def _sizes(shape: Any) -> tuple[int, ...] | None:
    return (
        None
        if shape.rank is None
        else tuple(-1 if size is None else size for size in shape.as_list())
    )


@functools.lru_cache(maxsize=4096)
def _same(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """One object for equal values: one for each op would let Python's garbage collector run
    earlier."""
    return values


class OpLayers:
    """Layer (None for none) and pass of each op of a graph, by the op's number.

    Layer calls that were noted while the graph was traced decide: they made the ops that are
    `in_layer`. Other ops follow from the forward op that their name refers to, and optimizer ops
    from the variable that they read or write. `forward` are the layers of the graph that this one
    is the gradient of, if any. `backward_spans` are the backward passes that no other one
    differentiates; another one is part of the forward pass."""

    def __init__(
        self,
        graph: GraphOps,
        notes: GraphNotes,
        paths: Mapping[int, str],
        call: Call,
        forward: "OpLayers | None",
    ) -> None:
        self._graph = graph
        self.layer: list[str | None] = [call.layer] * len(graph)
        self.pass_name: list[Pass] = [call.pass_name or "other"] * len(graph)
        self.in_layer = [False] * len(graph)
        self.backward_spans = _backward_spans(graph, notes, call)
        self._inner = [False] * len(graph)
        # name scope to the first layer with forward ops in it
        self._scopes: dict[str, str | None] = {}
        self._place_spans(notes, paths)
        self._place_vectorized()
        of_gradients = {at for at, op in enumerate(graph.ops) if in_gradient_scope(op.name)}
        last = max(of_gradients if graph.of_session else (), default=0)
        first = min((span.start for span in self.backward_spans), default=last)
        for number, op in enumerate(graph.ops):
            if self.pass_name[number] == "other":
                if number in of_gradients:
                    self.pass_name[number] = "backward"
                elif updates(op.type):
                    self.pass_name[number] = "update"
                elif number < first:  # such as the loss
                    self.pass_name[number] = "forward"
            if self.layer[number] is not None and GRADIENT_SCOPE not in op.name:
                self._scopes.setdefault(op.name.rpartition("/")[0], self.layer[number])
        for number in range(len(graph)):
            if self._of_gradient(number) and not self.in_layer[number]:
                self.layer[number] = self._layer_of_gradient(number, forward)

    def _layer_of_gradient(self, number: int, forward: "OpLayers | None") -> str | None:
        """The layer by the forward op in a gradient op's name, or else by its inputs: of a called
        function's gradient, which has no such name, by the call whose results it reads."""
        named, layer = self._layer_by_name(self._graph.ops[number].name, forward)
        if named:
            return layer
        types, inputs = self._graph.types, [source for source, _ in self._graph.inputs[number]]
        sources = [source for source in inputs if self._of_gradient(source)]
        if types[number] in CALLS:
            called = [one for one in inputs if types[one] in CALLS and one not in sources]
            sources = called + sources
        layers = (self.layer[source] for source in sources if self.layer[source] is not None)
        return next(layers, self.layer[number])

    def _place_vectorized(self) -> None:
        """An op that computes another one for all iterations of a loop is where that one is."""
        every: tuple[list[Any], ...] = self.layer, self.pass_name, self.in_layer, self._inner
        for number in range(len(self._graph)):
            original = self._graph.vectorized_from(number)
            if original is not None:
                for values in every:
                    values[number] = values[original]

    def _place_spans(self, notes: GraphNotes, paths: Mapping[int, str]) -> None:
        """Assign the ops of each noted call to its layer and pass; of nested calls, the innermost
        wins."""
        # of the call that gave an op its pass
        threads: list[int | None] = [None] * len(self._graph)
        for span in sorted(notes.spans, key=lambda span: (span.start, span.depth)):
            path = paths.get(id(span.layer())) if span.kind == "layer" else None
            if span.kind == "layer" and path is None:
                continue
            is_outer = any(one.start <= span.start < one.end for one in self.backward_spans)
            for number in range(span.start, min(span.end, len(self._graph))):
                if span.kind == "backward" and not is_outer:
                    self._inner[number] = True
                    self.pass_name[number] = "forward"
                elif span.kind != "layer":
                    self.pass_name[number] = span.kind
                elif self.pass_name[number] == "other" or threads[number] not in (
                    None,
                    span.thread,
                ):
                    self.pass_name[number] = "forward"
                threads[number] = span.thread
                if path is not None:
                    self.layer[number], self.in_layer[number] = path, True

    def late_pass(self, number: int) -> int | None:
        """Number of the backward pass that an op is part of, if that pass differentiates another
        one."""
        while (original := self._graph.vectorized_from(number)) is not None:
            number = original
        late = enumerate(self._late_spans)
        return next((at for at, span in late if span.start <= number < span.end), None)

    @functools.cached_property
    def _late_spans(self) -> list[Span]:
        inner = {number for number, is_inner in enumerate(self._inner) if is_inner}
        return [
            span
            for span in self.backward_spans
            if inner and not inner.isdisjoint(_needed_by(self._graph, span))
        ]

    def _of_gradient(self, number: int) -> bool:
        return self.pass_name[number] == "backward" or self._inner[number]

    def _layer_by_name(self, name: str, forward: "OpLayers | None") -> tuple[bool, str | None]:
        """Whether the name of a gradient op refers to a forward op, or a scope above it, and that
        one's layer."""
        inner = _LOOP_GRADIENT.search(name)
        if inner and forward is not None and inner[1] in forward._graph.number:
            return True, forward.layer[forward._graph.number[inner[1]]]
        _, gradient, scope = name.rpartition(GRADIENT_SCOPE)
        while gradient and scope:
            number = self._graph.number.get(scope)
            if number is not None or scope in self._scopes:
                return True, self._scopes[scope] if number is None else self.layer[number]
            scope = scope.rpartition("/")[0]
        return False, None

    def place_updates(
        self, variables: Mapping[str, VariableOwner], gradient_of: Mapping[int, str | None]
    ) -> None:
        """Assign the optimizer's ops to the layer of the variable that they read or write. An op
        that mixes gradients of several layers, such as the concatenation that replicas on several
        workers sum, belongs to none of them; what follows from its result belongs to the layer that
        alone reads it."""
        graph = self._graph
        mixed: dict[int, bool] = {}  # to whether the op only passes on what others mixed
        readers: list[set[str | None]] = [set() for _ in range(len(graph))]
        updates = [number for number, name in enumerate(self.pass_name) if name == "update"]
        for number in updates:
            if self.layer[number] is None:
                sources = [source for source, _ in graph.inputs[number]]
                owners = (
                    variables.get(graph.ops[source].name, ("", None))[1] for source in sources
                )
                of_variable = [layer for layer in owners if layer is not None][:1]
                own = {one: self.layer[one] for one in sources if self.pass_name[one] == "update"}
                of_gradients = {gradient_of.get(one) or own.get(one) for one in sources} - {None}
                if of_variable or len(of_gradients) == 1:
                    (self.layer[number],) = of_variable or of_gradients
                elif of_gradients or any(source in mixed for source in sources):
                    mixed[number] = not of_gradients
        for number in reversed(updates):
            if mixed.get(number) and len(readers[number]) == 1:
                (self.layer[number],) = readers[number]
            for source, _ in graph.inputs[number]:
                readers[source].add(self.layer[number])


def _backward_spans(graph: GraphOps, notes: GraphNotes, call: Call) -> list[Span]:
    """The outermost backward passes of a graph, without those that another one differentiates. A
    tape must have recorded such a pass, and the target of a later one depend on its results, as
    with a gradient penalty. In a function whose results the caller's backward pass reads, every
    pass is part of the forward pass."""
    if call.pass_name == "forward" and call.read_outputs:
        return []
    passes = [one for one in notes.spans if one.kind == "backward" and one.start < one.end]
    spans: list[Span] = []
    for span in sorted(passes, key=lambda span: (span.start, -span.end)):
        if not spans or span.start >= spans[-1].end:
            spans.append(span)
    outer: list[Span] = []
    differentiated: set[int] = set()  # what the targets of later passes depend on
    for span in reversed(spans):
        if not span.recorded or differentiated.isdisjoint(range(span.start, span.end)):
            outer.append(span)
        differentiated |= _needed_by(graph, span)
    return outer[::-1]


def _needed_by(graph: GraphOps, span: Span) -> set[int]:
    """The ops that make a pass's targets, what these depend on, and what those compute for all
    iterations of a loop."""
    targets = (graph.number[name] for name in span.targets if name in graph.number)
    return graph.reached(targets, lambda number: [graph.vectorized_from(number)])
