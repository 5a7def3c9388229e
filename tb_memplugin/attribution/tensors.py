"""The shapes of a step's tensors, and the largest of them at an instant."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from tb_memplugin.attribution.owners import Classifier
from tb_memplugin.attribution.window import Owner
from tb_memplugin.schema import (
    IN_USE,
    MAX_TENSOR_GROUPS,
    BufferAllocation,
    ChunkOwner,
    MemoryMap,
    Module,
    OpFact,
    TensorFact,
    TensorGroup,
    TensorShape,
    VariableFact,
    tensor_shape,
)

SMALL_BYTES = 1024
"""Smaller tensors are in no group."""

_NAMES = (
    "float32 float64 int32 uint8 int16 int8 string complex64 int64 bool qint8 quint8 qint32 "
    "bfloat16 qint16"
)
_LATER = {16: "quint16", 17: "uint16", 18: "complex128", 19: "float16", 22: "uint32", 23: "uint64"}
_DTYPES = (
    dict(enumerate(_NAMES.split(), start=1)) | _LATER | {24: "float8_e5m2", 25: "float8_e4m3fn"}
)
"""Number in TensorFlow's DataType to the name of the dtype; the bytes of a string are unknown."""

_Known: TypeAlias = dict[int | None, TensorFact | VariableFact]


class Shapes:
    """The shapes of the chunks of one trace: from the allocator's event, a tensor or variable that
    Python knows, or an output of the requesting op. A shape counts only if it takes exactly the
    requested bytes."""

    def __init__(self, classifier: Classifier) -> None:
        facts = classifier.window.facts
        self._classifier, self._found = classifier, dict[int, TensorShape | None]()
        self._at_start: _Known = {one.address: one for one in facts.tensors}
        self._at_start |= {one.start_address: one for one in facts.variables}
        self._at_end: _Known = {one.address: one for one in facts.tensors_at_end}
        self._at_end |= {one.end_address: one for one in facts.variables}

    def of(self, chunk: int) -> TensorShape | None:
        if chunk not in self._found:
            self._found[chunk] = self._find(chunk)
        return self._found[chunk]

    def _find(self, chunk: int) -> TensorShape | None:
        window, trace = self._classifier.window, self._classifier.window.trace
        address, requested, birth = (
            window.address[chunk],
            window.requested[chunk],
            window.birth[chunk],
        )
        known, shape = self._at_start.get(address), None
        if birth >= 0:
            shape = tensor_shape(
                window.dimensions(birth), _DTYPES.get(int(trace.dtype[birth])), requested
            )
            known = self._at_end.get(address) if window.outlives(chunk) else None
        if shape is None and known is not None:
            shape = tensor_shape(known.shape, known.dtype, requested)
        if shape is None and birth >= 0 and trace.shape[birth] < 0 and window.facts.mode == "graph":
            shape = _output_shape(
                self._classifier.requester(chunk), window.facts.batch.size, requested
            )
        return shape


def _output_shape(fact: OpFact | None, batch: int | None, requested: int) -> TensorShape | None:
    """The only shape of the op's outputs that takes the requested bytes."""
    found = set()
    if fact is not None and not fact.relayout:
        for sizes, dtype in zip(fact.output_shapes, fact.output_dtypes, strict=False):
            if sizes is not None and batch is not None and sizes[:1] == (-1,):
                sizes = (batch, *sizes[1:])
            found.add(tensor_shape(sizes, dtype, requested))
    found.discard(None)
    return found.pop() if len(found) == 1 else None


Tensor: TypeAlias = tuple[Owner | ChunkOwner, TensorShape | None, int]
"""Owner, shape (None if unknown) and requested bytes of a tensor."""
ShapesBySize: TypeAlias = Mapping[tuple[ChunkOwner, int], TensorShape | None]
"""Owner and requested bytes of chunks to their only shape; None for chunks of several shapes."""


def largest_tensors(tensors: Iterable[Tensor]) -> tuple[TensorGroup, ...]:
    """The largest groups of tensors with known shapes."""
    counts: Counter[tuple[Owner, TensorShape, int]] = Counter()
    for owner, shape, size in tensors:
        if shape is not None:
            counts[Owner(owner.layer, owner.category, None), shape, size] += 1
    groups = [
        TensorGroup(owner.layer, owner.category, shape.shape, shape.dtype, count, count * size)
        for (owner, shape, size), count in counts.items()
    ]
    return tuple(
        sorted(groups, key=lambda one: (-one.bytes, one.layer or "", one.category))[
            :MAX_TENSOR_GROUPS
        ]
    )


def tensors_at(classifier: Classifier, shapes: Shapes, event: int) -> Iterator[Tensor]:
    """The larger tensors that are live just after an event; in a compiled module's chunk, its
    buffers at that one's peak."""
    live = classifier.chunks.live(event)
    for chunk in live[classifier.chunks.requested[live] >= SMALL_BYTES].tolist():
        plan = classifier.plan(chunk)
        if plan is not None:
            yield from tensors_inside(classifier, *plan)
        else:  # one owner
            ((owner, _, requested),) = classifier.owners(chunk, max(event, 0))
            yield owner, shapes.of(chunk), requested


def tensors_inside(
    classifier: Classifier, module: Module, allocation: BufferAllocation
) -> Iterator[Tensor]:
    for layer, category, buffer in classifier.plans.tensors(module, allocation):
        yield classifier.window.layer_owner(layer, category), buffer.shape, buffer.bytes


def shapes_by_size(chunks: Iterable[tuple[ChunkOwner, TensorShape | None, int]]) -> ShapesBySize:
    found: dict[tuple[ChunkOwner, int], TensorShape | None] = {}
    for owner, shape, size in chunks:
        found[owner, size] = shape if found.get((owner, size), shape) == shape else None
    return found


def tensors_of_map(
    memory_map: MemoryMap, known: Sequence[ShapesBySize], scale: float
) -> Iterator[Tensor]:
    """The tensors of a map's chunks, by the shapes that chunks of the same owner and size had in
    traced steps. `scale` is the batch as a multiple of the traced one: a leading dimension may be
    as many times larger."""
    for row in np.flatnonzero((memory_map.state == IN_USE) & (memory_map.owner >= 0)).tolist():
        owner, size = (
            memory_map.owners[int(memory_map.owner[row])],
            int(memory_map.requested_bytes[row]),
        )
        same = (shapes.get((owner, size)) for shapes in known)
        smaller = (shapes.get((owner, round(size / scale))) for shapes in known)
        grown = (with_batch(shape, scale, size) for shape in smaller if shape is not None)
        yield owner, next(filter(None, (*same, *grown)), None), size


def with_batch(
    shape: TensorShape, scale: float, requested: int, axis: int = 0
) -> TensorShape | None:
    """The shape with a dimension that is `scale` times as large, if it takes the requested
    bytes."""
    sizes = [round(size * scale) if at == axis else size for at, size in enumerate(shape.shape)]
    return tensor_shape(tuple(sizes), shape.dtype, requested) if sizes else None
