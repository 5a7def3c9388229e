"""The ops of one function graph by number, and what a called graph inherits from the op that calls it."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any

from tb_memplugin.model.trace import Pass

CALLS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "While": (("body", "body"), ("cond", "cond")),
    "StatelessWhile": (("body", "body"), ("cond", "cond")),
    "If": (("then_branch", "then"), ("else_branch", "else")),
    "StatelessIf": (("then_branch", "then"), ("else_branch", "else")),
    "PartitionedCall": (("f", ""),),
    "StatefulPartitionedCall": (("f", ""),),
}
"""Type of an op that calls functions to pairs of attribute and label. The attribute names the function; TensorFlow puts
the label into the names of the ops that it inlines."""
SHAPE_OPS = frozenset({"Shape", "ShapeN", "Size", "Rank", "BroadcastGradientArgs", "ReadVariableOp", "VariableShape"})
"""Ops that do not read the values of their inputs."""
VECTORIZED_SCOPE = "/pfor/"

VariableOwner = tuple[str, str | None]
"""Name and layer of a variable."""
OwnerOf = Callable[[Any], VariableOwner | None]
"""Maps a variable, or its resource handle, to its owner; None if unknown."""


@dataclasses.dataclass(frozen=True)
class Call:
    """Properties that a graph inherits from the op that calls it.

    Attributes:
        layer, pass_name: Of the calling op.
        variables: Name of a placeholder of the caller to the variable that it stands for.
        saved_for_backward: Indices of the callee's outputs that the backward pass reads.
        gradients: Index of an output that is a variable's gradient to the variable's layer.
        powers: Name of an argument to the powers of the batch in its dimensions; None of a graph that Python calls.
        fixed: Whether the caller was traced for one batch size.
    """

    layer: str | None = None
    pass_name: Pass | None = None
    variables: Mapping[str, VariableOwner] = dataclasses.field(default_factory=dict)
    saved_for_backward: frozenset[int] = frozenset()
    gradients: Mapping[int, str | None] = dataclasses.field(default_factory=dict)
    powers: Mapping[str, tuple[int | None, ...]] | None = None
    fixed: bool = False


class GraphOps:
    """The ops of a graph, numbered in the order in which they were made.

    Attributes:
        graph: The function graph.
        ops: Its operations.
        number: Op name to number.
        types: Op types.
        inputs: For each op, its inputs as (number of the producer, index of the producer's output). Looks through
            IdentityN, which only bundles tensors.
    """

    def __init__(self, graph: Any) -> None:
        self.graph = graph
        self.ops: list[Any] = graph.get_operations()
        self.number: dict[str, int] = {op.name: number for number, op in enumerate(self.ops)}
        self.types: list[str] = [op.type for op in self.ops]
        self.inputs: list[list[tuple[int, int]]] = []
        for op in self.ops:
            sources = [(self.number[tensor.op.name], tensor.value_index) for tensor in op.inputs]
            self.inputs.append([self._through_identity(*source) for source in sources])
        self._outputs = list(getattr(graph, "outputs", ()) or ())

    def __len__(self) -> int:
        return len(self.ops)

    def _through_identity(self, number: int, index: int) -> tuple[int, int]:
        known = number < len(self.inputs)
        return self.inputs[number][index] if known and self.types[number] == "IdentityN" else (number, index)

    def output(self, index: int) -> tuple[int, int] | None:
        """Producer of the graph's output: (op number, index of the op's output); None if the graph lacks it."""
        if index >= len(self._outputs):
            return None
        tensor = self._outputs[index]
        number = self.number.get(tensor.op.name)
        return None if number is None else (number, tensor.value_index)

    def vectorized_from(self, number: int) -> int | None:
        """The op that an op computes for all iterations of a vectorized loop at once; None for other ops.

        ``tf.vectorized_map`` and ``GradientTape.jacobian`` trace one iteration, then convert each op of it to ops in
        its scope ``pfor``. Of the traced iteration, TensorFlow runs only what all iterations share.
        """
        original, scope, _ = self.ops[number].name.rpartition(VECTORIZED_SCOPE)
        return self.number.get(original) if scope else None

    def sources(self, numbers: Iterable[int]) -> set[int]:
        """The ops, the ops on whose results they depend, and those that these compute for all iterations of a loop."""
        found: set[int] = set()
        pending = list(numbers)
        while pending:
            number = pending.pop()
            if number not in found:
                found.add(number)
                pending += [source for source, _ in self.inputs[number]]
                original = self.vectorized_from(number)
                pending += [] if original is None else [original]
        return found

    @functools.cached_property
    def needed(self) -> Set[int]:
        """The ops whose results or effects the function needs; TensorFlow runs no others.

        A gradient of something that is no variable, such as a loss's divisor, is traced and never computed. Of a graph
        without outputs, all ops.
        """
        if not self._outputs:
            return set(range(len(self)))
        ends = [tensor.op for tensor in self._outputs] + list(getattr(self.graph, "control_outputs", ()) or ())
        pending = [self.number[op.name] for op in ends if op.name in self.number]
        of_kind = dict(zip(self.types, self.ops, strict=True))
        stateful = {kind for kind, op in of_kind.items() if op.op_def.is_stateful}
        pending += [number for number, kind in enumerate(self.types) if kind in stateful]
        needed: set[int] = set()
        while pending:
            number = pending.pop()
            if number not in needed:
                needed.add(number)
                pending += [source for source, _ in self.inputs[number]]
                pending += [self.number[op.name] for op in self.ops[number].control_inputs]
        return needed

    def output_shapes(self, number: int) -> tuple[tuple[int, ...] | None, ...]:
        """The shapes of an op's outputs, -1 for open dimensions; None for an unknown rank."""
        return _same(tuple(_shape_of(tensor) for tensor in self.ops[number].outputs))

    def output_dtypes(self, number: int) -> tuple[str, ...]:
        """Names of the dtypes of an op's outputs."""
        return _same(tuple(tensor.dtype.name for tensor in self.ops[number].outputs))

    def captured_variables(self, call: Call, owner_of: OwnerOf) -> dict[str, VariableOwner]:
        """Name of a placeholder to the variable that it stands for."""
        owners: dict[str, VariableOwner] = {}
        for external, internal in getattr(self.graph, "captures", ()):
            owner = owner_of(external)
            if owner is None and hasattr(external, "graph"):
                owner = call.variables.get(external.op.name)
            if owner is not None:
                owners[internal.op.name] = owner
        return owners

    def trained_placeholders(self) -> frozenset[int]:
        """Numbers of the placeholders of trainable variables."""
        handles = {id(one.handle) for one in getattr(self.graph, "variables", ()) if one.trainable}
        captures = getattr(self.graph, "captures", ())
        return frozenset(self.number[internal.op.name] for external, internal in captures if id(external) in handles)

    def own_arguments(self) -> frozenset[str]:
        """Names of the placeholders of the function's own arguments."""
        captured = {internal.op.name for _, internal in getattr(self.graph, "captures", ())}
        return frozenset(tensor.op.name for tensor in getattr(self.graph, "inputs", ()) or ()) - captured

    def arguments(self) -> frozenset[str]:
        """The same names as they run: in lower case."""
        return frozenset(name.lower() for name in self.own_arguments())

    def assigned_variable(self, number: int, variables: Mapping[str, VariableOwner]) -> str | None:
        """Name of the variable that an op writes to."""
        if not self.inputs[number] or self.types[number] == "ReadVariableOp":
            return None
        for source, _ in self.inputs[number]:
            owner = variables.get(self.ops[source].name)
            if owner is not None:
                return owner[0]
        return None


@functools.lru_cache(maxsize=4096)
def _same(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """One object for equal values: one for each op would let Python's garbage collector run earlier."""
    return values


def _shape_of(tensor: Any) -> tuple[int, ...] | None:
    shape = tensor.shape
    return None if shape.rank is None else tuple(-1 if size is None else size for size in shape.as_list())
