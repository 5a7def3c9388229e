"""Shapes of the tensors in the chunks of a traced step. A shape counts only if it takes exactly the requested bytes."""

from collections.abc import Iterable

from tb_memplugin.attribution.owners.classifier import Classifier
from tb_memplugin.model import TensorShape
from tb_memplugin.model.tensors import dimensions, tensor_shape
from tb_memplugin.model.trace import AllocationTrace, TensorFact, TraceFacts, VariableFact

_DTYPES = {
    1: "float32",
    2: "float64",
    3: "int32",
    4: "uint8",
    5: "int16",
    6: "int8",
    8: "complex64",
    9: "int64",
    10: "bool",
    11: "qint8",
    12: "quint8",
    13: "qint32",
    14: "bfloat16",
    15: "qint16",
    16: "quint16",
    17: "uint16",
    18: "complex128",
    19: "float16",
    22: "uint32",
    23: "uint64",
    24: "float8_e5m2",
    25: "float8_e4m3fn",
}
"""Number in TensorFlow's DataType to the name of the dtype."""


class TensorShapes:
    """Shapes by chunk: from the allocator's event, a tensor that Python knows, or the outputs of the requesting op.

    Args:
        trace, facts: The trace and the facts about its program.
        classifier: Their classifier.
    """

    def __init__(self, trace: AllocationTrace, facts: TraceFacts, classifier: Classifier) -> None:
        self._trace, self._facts, self._classifier = trace, facts, classifier
        self._at_start = _by_address(
            [*facts.tensors], ((variable.start_address, variable) for variable in facts.variables)
        )
        self._at_end = _by_address(
            [*facts.tensors_at_end], ((variable.end_address, variable) for variable in facts.variables)
        )
        self._parsed: dict[int, tuple[int, ...] | None] = {}
        self._batch = facts.batch.size

    def of(self, chunk: int) -> TensorShape | None:
        """The shape of the tensor in a chunk; None if unknown."""
        chunks = self._classifier.chunks
        address, requested = int(chunks.address[chunk]), int(chunks.requested[chunk])
        if int(chunks.birth[chunk]) < 0:
            return _known(self._at_start.get(address), requested)
        shape = self._of_event(chunk)
        if shape is None and int(chunks.death[chunk]) == len(self._trace):
            shape = _known(self._at_end.get(address), requested)
        return self._of_op(chunk) if shape is None else shape

    def _of_event(self, chunk: int) -> TensorShape | None:
        """The shape in the chunk's event."""
        birth = int(self._classifier.chunks.birth[chunk])
        if birth < 0:
            return None
        sizes = self._dimensions(int(self._trace.shape[birth]))
        dtype = _DTYPES.get(int(self._trace.dtype[birth]))
        return tensor_shape(sizes, dtype, int(self._classifier.chunks.requested[chunk]))

    def _dimensions(self, number: int) -> tuple[int, ...] | None:
        """The dimensions in a string of the trace, parsed once."""
        if number not in self._parsed:
            text = self._trace.text(number)
            self._parsed[number] = () if text == "[]" else dimensions(text)
        return self._parsed[number]

    def _of_op(self, chunk: int) -> TensorShape | None:
        """The only shape of an output of the requesting op that takes the requested bytes."""
        fact = self._classifier.requester(chunk) if self._facts.mode == "graph" else None
        birth = int(self._classifier.chunks.birth[chunk])
        if fact is None or fact.relayout or self._trace.shape[birth] >= 0:
            return None
        requested = int(self._classifier.chunks.requested[chunk])
        found = set()
        for sizes, dtype in zip(fact.output_shapes, fact.output_dtypes, strict=False):
            if sizes is not None and self._batch is not None and sizes[:1] == (-1,):
                sizes = (self._batch, *sizes[1:])
            found.add(tensor_shape(sizes, dtype, requested))
        found.discard(None)
        return found.pop() if len(found) == 1 else None


def _known(fact: TensorFact | VariableFact | None, requested: int) -> TensorShape | None:
    return None if fact is None else tensor_shape(fact.shape, fact.dtype, requested)


def _by_address(
    tensors: Iterable[TensorFact], variables: Iterable[tuple[int | None, VariableFact]]
) -> dict[int, TensorFact | VariableFact]:
    """Address to the tensor or, rather, the variable there."""
    known: dict[int, TensorFact | VariableFact] = {tensor.address: tensor for tensor in tensors}
    known.update((address, variable) for address, variable in variables if address is not None)
    return known
