"""Which dimensions of the results of a traced function hold the batch, by following its arguments
from op to op.

A dimension has a power: 0 if it does not depend on the batch, 1 if it is in proportion to it, alone
or joined with others, 2 if it is joined with itself. It is None where that is not known. Sizes
alone do not tell: a layer may have as many features as there are examples. An output's dimension
has the power of that of an input at the same axis; for products, transpositions and reductions the
axis is known exactly. What is left follows from the rule that an op neither adds nor drops
powers."""

from collections.abc import Iterator, Sequence, Set
from typing import Any, NamedTuple, TypeAlias

from tb_memplugin.recorder.base import (
    ByIdentity,
)
from tb_memplugin.recorder.watch.graph_ops import Call, GraphOps

OPEN = -1
Shape: TypeAlias = tuple[int, ...]
Powers: TypeAlias = tuple[int | None, ...]  # the power of each dimension

_SOURCES = frozenset({"IteratorGetNext", "MultiDeviceIteratorGetNextFromShard", "OptionalGetValue"})
_FIXED = frozenset({"ReadVariableOp", "VariableShape", "BiasAddGrad", "Shape", "ShapeN", "Size"})
# in the types of ops whose results are gradients of kernels
_FIXED_PARTS = ("BackpropFilter", "GradFilter")
_UNKNOWN_ROWS = {
    "UnsortedSegmentSum",
    "Unique",
    "UniqueV2",
    "SegmentSum",
    "ScatterNd",
    "TensorScatterUpdate",
}
_DRAWN_PARTS = ("Random", "Normal", "Multinomial")
"""In the types of ops that draw numbers in a shape that they are given."""
_RESIZED = {
    "ConcatV2",
    "Tile",
    "Split",
    "SplitV",
    "StridedSlice",
    "StridedSliceGrad",
    "Slice",
    "Pad",
    "PadV2",
    "MirrorPad",
}
"""Ops that change the size of a dimension and keep its place."""
_TO_SHAPE = {"Reshape": 1, "BroadcastTo": 1, "StridedSliceGrad": 0}
"""Type of an op to the input that says which shape its result has."""
_SHAPED = frozenset({"StridedSliceGrad", "BroadcastTo", "Tile", "BatchToSpaceND", "SpaceToBatchND"})
"""Ops whose results have dimensions that no input has."""
_ELEMENTWISE = frozenset(
    {
        *("AddV2", "Sub", "Mul", "RealDiv", "SquaredDifference", "Maximum", "Minimum", "SelectV2"),
        *("Equal", "LogicalAnd", "SoftmaxCrossEntropyWithLogits"),
    }
)
_ROWS_OF = {
    **dict.fromkeys(("MatMul", "_FusedMatMul", "BiasAdd", "Conv2D", "Conv3D", "Cast"), 0),
    **dict.fromkeys(("DepthwiseConv2dNative", "Relu", "Identity", "ReadOnlyIdentity"), 0),
    **dict.fromkeys(("GatherV2", "ResourceGather"), 1),
    **dict.fromkeys(_ELEMENTWISE, None),
}
"""Type of an op to the input whose first dimension its result has; None for any of that size."""
_REDUCTIONS = frozenset({"Sum", "Mean", "Max", "Min", "Prod", "All", "Any", "ArgMax", "ArgMin"})
MOST_AXES = 8  # longest vector of integers without batch that counts as a shape or as axes


class Dimensions(NamedTuple):
    """The powers of all results of one graph, by op, None for an unknown rank; whether the graph,
    or one that calls it, was traced for one batch size; and the (op, index) of each result that has
    the first dimension of an argument."""

    powers: list[tuple[Powers | None, ...]]
    fixed: bool
    rows: Set[tuple[int, int]]


_known = ByIdentity[tuple[Any, Dimensions]]()
"""Graph to what its dimensions depend on beside its ops, and these."""


def batch_dimensions(graph: GraphOps, batch_size: int | None, call: Call) -> Dimensions:
    """The dimensions of a graph, which are kept as long as it exists. `call` says what those of the
    arguments are if another graph calls it."""
    given = None if call.powers is None else dict(call.powers)
    key = (graph.graph.version, batch_size, call.fixed, given, call.rows)
    known: tuple[Any, Dimensions | None] = _known.get(graph.graph, (None, None))
    if known[0] == key and known[1] is not None:
        return known[1]
    finder = _Finder(graph, batch_size, call)
    found = Dimensions(finder.find(), finder.fixed, finder.rows)
    _known[graph.graph] = key, found
    return found


def inherited(graph: GraphOps, number: int, callee: Any, dimensions: Dimensions) -> Call:
    """What a function that an op calls knows of its arguments' dimensions, from its caller's."""
    names = [tensor.op.name for tensor in getattr(callee, "inputs", ()) or ()]
    skipped = int(graph.types[number].endswith("If"))  # its first input is the condition
    arguments = list(zip(names, graph.inputs[number][skipped:], strict=False))
    powers = {name: dimensions.powers[source][index] for name, (source, index) in arguments}
    return Call(
        powers={name: one for name, one in powers.items() if one is not None},
        fixed=dimensions.fixed,
        rows=frozenset(name for name, source in arguments if source in dimensions.rows),
    )


class _Finder:
    def __init__(self, graph: GraphOps, batch_size: int | None, call: Call) -> None:
        self._graph, self._batch, self._call = graph, batch_size, call
        self._given, self.fixed = call.powers, call.fixed
        self._shapes = graph.output_shapes
        self.powers: list[tuple[Powers | None, ...]] = []
        self.rows = set[tuple[int, int]]()

    def find(self) -> list[tuple[Powers | None, ...]]:
        arguments = self._graph.own_arguments()
        for number, op in enumerate(self._graph.ops):
            shapes = self._shapes[number]
            of_caller = op.type == "Placeholder" and self._given is not None
            is_source = op.type in _SOURCES or (
                op.type == "Placeholder" and op.name in arguments and not of_caller
            )
            if is_source:
                self.fixed |= any(shape and shape[0] == self._batch for shape in shapes)
            branches = list(self._branches(number)) if op.type.endswith("If") else []
            found: list[Powers | None] = []
            for at, shape in enumerate(shapes):
                if shape is None:
                    found.append(None)
                elif branches:
                    found.append(self._of_branches([one[at] for one in branches], shape))
                elif of_caller:
                    found.append((self._given or {}).get(op.name) or self._unknown(shape))
                elif is_source:
                    found.append(self._of_argument(shape))
                else:
                    found.append(self._of_output(number, at, shape))
            self.powers.append(tuple(found))
            if is_source or (of_caller and op.name in self._call.rows):
                self.rows.update((number, at) for at, shape in enumerate(shapes) if shape)
            elif op.type in _ROWS_OF and self._has_rows(number, _ROWS_OF[op.type]):
                self.rows.add((number, 0))
        self._from_readers()
        for number, of_results in enumerate(self.powers if self.fixed else ()):
            pairs = zip(self._shapes[number], of_results, strict=True)
            self.powers[number] = tuple(  # a first dimension of that size holds the batch
                (1, *powers[1:])
                if powers and shape and powers[0] is None and shape[0] == self._batch
                else powers
                for shape, powers in pairs
            )
        return self.powers

    def _branches(self, number: int) -> Iterator[list[Powers | None]]:
        """Powers of the results of each function that an op of two branches may run. A replica's
        part of a batch comes from such an op: the last one of a data set may be empty."""
        own = Dimensions(self.powers, self.fixed, self.rows)
        for _, callee in self._graph.callees(number):
            graph = GraphOps(callee)
            call = inherited(self._graph, number, callee, own)
            found = batch_dimensions(graph, self._batch, call)
            ends = [graph.output(at) for at in range(len(self._shapes[number]))]
            self.fixed |= found.fixed
            self.rows.update((number, at) for at, end in enumerate(ends) if end in found.rows)
            yield [None if end is None else found.powers[end[0]][end[1]] for end in ends]

    def _of_branches(self, results: Sequence[Powers | None], shape: Shape) -> Powers:
        each = [powers for powers in results if powers is not None and len(powers) == len(shape)]
        if len(each) < len(results):
            return self._unknown(shape)
        pairs = zip(*each, strict=True)
        return tuple(_most(pair) or (None if None in pair else 0) for pair in pairs)

    def _has_rows(self, number: int, place: int | None) -> bool:
        """Whether an input, of those of any place if that is None, gives its first dimension to the
        result: it has as many dimensions, but for a lookup's."""
        (shape, *_), sources = self._shapes[number], self._graph.inputs[number]
        return any(
            source in self.rows
            and shape
            and before
            and before[0] == shape[0]
            and (place == 1 or len(before) == len(shape))
            for source in (sources if place is None else sources[place : place + 1])
            for before in (self._shapes[source[0]][source[1]],)
        )

    def _of_argument(self, shape: Shape) -> Powers:
        """A batch's first dimension, or the only one of its size."""
        if shape and shape[0] in (self._batch, OPEN):
            return (1, *(0 for _ in shape[1:]))
        holding = tuple(int(size == self._batch) for size in shape)
        return holding if sum(holding) == 1 else self._unknown(shape)

    def _unknown(self, shape: Shape, written: bool = False) -> Powers:
        """Powers of a result of which nothing is known: a size that is no multiple of the batch
        does not hold it. Beside an open batch, only a shape that the program has `written` down may
        name it."""
        is_open = not self.fixed and (OPEN in shape or not written)
        return tuple(
            None if size == OPEN or (self._may_hold(size) and not is_open) else 0 for size in shape
        )

    def _may_hold(self, size: int) -> bool:
        return size == OPEN or (bool(self._batch) and size > 0 and size % (self._batch or 1) == 0)

    def _inputs(self, number: int) -> Iterator[tuple[Shape, Powers]]:
        for source, index in self._graph.inputs[number]:
            if source >= number or index >= len(self._shapes[source]):
                continue
            shape, powers = self._shapes[source][index], self.powers[source][index]
            if shape and powers is not None:
                may_be_axes = len(shape) == 1 and 0 <= shape[0] <= MOST_AXES and not any(powers)
                if not (
                    may_be_axes
                    and self._graph.output_dtypes[source][index].startswith(("int", "uint"))
                ):
                    yield shape, powers

    def _of_output(self, number: int, index: int, shape: Shape) -> Powers | None:
        op = self._graph.ops[number]
        zeros = (0,) * len(shape)
        if op.type in _FIXED or any(part in op.type for part in _FIXED_PARTS):
            return zeros
        if op.type == "Const" and shape[:1] == (self._batch,):
            return self._unknown(shape[:1], written=True) + zeros[1:]
        if op.type in ("Const", "Placeholder"):
            return zeros
        if op.type in ("While", "StatelessWhile"):
            source, at = self._graph.inputs[number][index]
            return self.powers[source][at] if source < number else self._unknown(shape)
        same = self._shaped_like(number) if op.type in _TO_SHAPE else None
        if same is not None and len(same) == len(shape):
            return same
        inputs = list(self._inputs(number))
        is_drawn = any(part in op.type for part in _DRAWN_PARTS)
        if not inputs or op.type in _UNKNOWN_ROWS or is_drawn:
            return self._unknown(shape, written=is_drawn or op.type == "Fill")
        exact = self._exactly(op, number, inputs)
        is_exact = exact is not None and len(exact) == len(shape)
        return exact if is_exact else self._by_place(op, shape, inputs)

    def _exactly(
        self, op: Any, number: int, inputs: Sequence[tuple[Shape, Powers]]
    ) -> Powers | None:
        """Powers of the result of an op that says where each dimension goes; None for others."""
        first, other = inputs[0][1], inputs[-1][1]
        if op.type == "MatMul" and len(inputs) == 2:
            row, column = int(op.get_attr("transpose_a")), 1 - int(op.get_attr("transpose_b"))
            return first[row], other[column]
        if op.type.startswith("BatchMatMul") and len(inputs) == 2:
            rows, columns = -1 if op.get_attr("adj_x") else -2, -2 if op.get_attr("adj_y") else -1
            return (*_joined(first[:-2], other[:-2]), first[rows], other[columns])
        if "Conv" in op.type and len(inputs) > 1:  # its images come first, or their gradient last
            images = other if "Input" in op.type else first
            return images[:1] + (0,) * (len(images) - 1)
        if op.type == "Einsum":
            return _of_equation(op.get_attr("equation").decode(), [powers for _, powers in inputs])
        if op.type.startswith("MatrixDiag"):
            return (*first, first[-1])
        if op.type == "Transpose":
            order = self._constant(number, 1)
            return None if order is None else tuple(first[axis] for axis in order)
        if op.type in _REDUCTIONS:
            keeps = op.type not in ("ArgMax", "ArgMin") and op.get_attr("keep_dims")
            axes = self._constant(number, 1)
            if axes is None:
                # as a gradient's, of what was broadcast: each dimension stays as it is, or becomes
                # 1
                return first if keeps else None
            gone = {axis % len(first) for axis in axes} if first else set()
            left = [0 if axis in gone else power for axis, power in enumerate(first)]
            return tuple(power for axis, power in enumerate(left) if keeps or axis not in gone)
        return None

    def _shaped_like(self, number: int) -> Powers | None:
        """Powers of the tensor whose shape an op gives to its result, as gradients do; None without
        one."""
        at, _ = self._graph.inputs[number][_TO_SHAPE[self._graph.types[number]]]
        if self._graph.ops[at].type != "Shape":
            return None
        ((source, index),) = self._graph.inputs[at]
        return self.powers[source][index] if source < number else None

    def _constant(self, number: int, index: int) -> list[int] | None:
        sources = self._graph.inputs[number][index : index + 1]
        source = self._graph.ops[sources[0][0]] if sources else None
        if source is not None and source.type == "InvertPermutation":
            order = self._constant(sources[0][0], 0)
            return order and sorted(range(len(order)), key=order.__getitem__)
        if source is None or source.type != "Const":
            return None
        from tensorflow.python.framework.tensor_util import MakeNdarray

        return [int(one) for one in MakeNdarray(source.get_attr("value")).flat]

    def _by_place(self, op: Any, shape: Shape, inputs: Sequence[tuple[Shape, Powers]]) -> Powers:
        found = [
            _NOTHING  # an open dimension may join or part any others
            if op.type == "Reshape" and size == OPEN
            else _at(axis, size, len(shape), inputs, op.type in _RESIZED)
            for axis, size in enumerate(shape)
        ]
        total = max(sum(power or 0 for power in powers) for _, powers in inputs)
        unsure = op.type in _SHAPED or any(None in powers for _, powers in inputs)
        left = total - sum(power or 0 for power in found if power != _NOTHING)
        result = list(found)
        new = [axis for axis, power in enumerate(found) if power == _NOTHING]
        # As many dimensions as there may be hold the batch, or else the first one does.
        each = 1 if sum(self._may_hold(shape[axis]) for axis in new) == left else left
        for axis in new:
            if not self._may_hold(shape[axis]):
                result[axis] = 0
            elif left > 0:
                result[axis], left = each, left - each
            else:  # of open dimensions, one at least is unknown when the function is traced
                result[axis] = None if unsure or (shape[axis] == OPEN and not total) else 0
        if op.type == "Reshape" and len(inputs) == 1 and sum(one or 0 for one in result) > total:
            # The first dimension that may hold the batch does.
            place = next((axis for axis, size in enumerate(shape) if self._may_hold(size)), None)
            return tuple(total if axis == place else 0 for axis in range(len(shape)))
        return tuple(result)

    def _from_readers(self) -> None:
        """Where a result's powers are unknown, take those of the results of its readers in the same
        shape. So does a constant that meets a tensor of that shape element by element."""
        for number in reversed(range(len(self._graph))):
            pairs = zip(self._shapes[number], self.powers[number], strict=True)
            known: dict[Shape | None, Powers] = {}
            for shape, powers in pairs:
                if powers is not None and None not in powers:
                    known.setdefault(shape, powers)
            meets = self._graph.types[number] in _ELEMENTWISE
            for source, index in self._graph.inputs[number] if known else ():
                results = list(self.powers[source])
                before = results[index] if index < len(results) else None
                same = known.get(self._shapes[source][index]) if before is not None else None
                if before is not None and same is not None:
                    pairs_of_power = zip(before, same, strict=True)
                    results[index] = tuple(
                        new if old is None or (meets and source in self._graph.constant) else old
                        for old, new in pairs_of_power
                    )
                    self.powers[source] = tuple(results)


_NOTHING = -1  # stands for a dimension that no input has


def _at(
    axis: int, size: int, rank: int, inputs: Sequence[tuple[Shape, Powers]], resized: bool
) -> int | None:
    """The power of an output's dimension by its place; `_NOTHING` if no input has one there."""
    same = [(shape, powers) for shape, powers in inputs if len(shape) == rank]
    others = [(shape, powers) for shape, powers in inputs if len(shape) != rank]
    back = axis - rank
    for found in (
        [powers[axis] for shape, powers in same if shape[axis] in (size, OPEN)],
        [powers[axis] for shape, powers in same if resized and shape[axis] != 1],
        [powers[axis] for shape, powers in others if axis < len(shape) and shape[axis] == size],
        [powers[back] for shape, powers in others if -back <= len(shape) and shape[back] == size],
        [
            power
            for shape, powers in others
            for one, power in zip(shape, powers, strict=True)
            if one == size != 1
        ],
    ):
        if found:
            return _most(found)
    return _NOTHING


def _most(powers: Sequence[int | None]) -> int | None:
    return max((power for power in powers if power is not None), default=None)


def _joined(one: Powers, other: Powers) -> Powers:
    rank = max(len(one), len(other))
    padded = [(0,) * (rank - len(powers)) + tuple(powers) for powers in (one, other)]
    return tuple(_most(pair) for pair in zip(*padded, strict=True))


def _of_equation(equation: str, inputs: Sequence[Powers]) -> Powers | None:
    """Powers of the result of an Einsum; None for equations with an ellipsis."""
    left, _, right = equation.partition("->")
    labels = left.split(",")
    if "." in equation or [len(one) for one in labels] != [len(one) for one in inputs]:
        return None
    of: dict[str, list[int | None]] = {}
    for names, powers in zip(labels, inputs, strict=True):
        for name, power in zip(names, powers, strict=True):
            of.setdefault(name, []).append(power)
    return tuple(_most(of[name]) for name in right) if set(right) <= set(of) else None
