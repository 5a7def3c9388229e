"""The tensors in the chunks of a traced step: their shapes, and groups of those that something else keeps. Pure.

Such groups hold tensors that Python holds, constants of functions, data sets and variables of no model, and sparse
gradients that were made dense.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

import numpy as np

from tb_memplugin.attribution.owners import Classifier
from tb_memplugin.schema import (
    MADE_DENSE,
    Category,
    HeldTensorGroup,
    TensorFact,
    TensorShape,
    VariableFact,
    common_path,
    tensor_shape,
)

_NAMES = "float32 float64 int32 uint8 int16 int8 string complex64 int64 bool qint8 quint8 qint32 bfloat16 qint16"
_LATER = {16: "quint16", 17: "uint16", 18: "complex128", 19: "float16", 22: "uint32", 23: "uint64"}
_DTYPES = dict(enumerate(_NAMES.split(), start=1)) | _LATER | {24: "float8_e5m2", 25: "float8_e4m3fn"}
"""Number in TensorFlow's DataType to the name of the dtype; the bytes of a string are unknown."""
MIN_BYTES = 1024
"""Smallest variable of no model and smallest dense gradient with a group."""

_Key: TypeAlias = tuple[str, tuple[int, ...], str, str | None]
"""Category, shape, dtype and holder."""


def tensor_groups(classifier: Classifier, peak: int) -> tuple[HeldTensorGroup, ...]:
    """Groups of the tensors that the ledger counts at an event (-1: the start of the window), the largest first."""
    chunks, facts = classifier.chunks, classifier.window.facts
    live = chunks.live(peak).tolist()
    before = {int(chunks.address[chunk]): chunk for chunk in live if chunks.birth[chunk] < 0}
    since = {int(chunks.address[chunk]): chunk for chunk in live if chunks.birth[chunk] >= 0}

    def categories(chunk: int | None) -> set[str]:
        found = [] if chunk is None else classifier.owners(chunk, max(peak, 0))
        return {owner.category for owner, _, _ in found}

    held = [  # held tensors, data sets and captured constants
        tensor
        for tensors, chunk_at in ((facts.tensors, before), (facts.tensors_at_end, since))
        for tensor in tensors
        if tensor.category == "held_tensors" or tensor.held_by is not None
        if tensor.category in categories(chunk_at.get(tensor.address))
    ]
    others = [*_constants(live, classifier), *_dense_gradients(live, classifier, categories)]
    for fact in facts.variables:
        if not fact.of_model and fact.requested_bytes >= MIN_BYTES:
            chunk = before.get(fact.start_address or 0, since.get(fact.end_address or 0))
            if "other_state" in categories(chunk):
                place = (fact.requested_bytes, f"variable `{fact.name.partition('#')[0].partition(':')[0]}`")
                others.append(HeldTensorGroup(fact.shape, fact.dtype, 1, *place, category="other_state"))
    groups = [*_grouped(held, _lines(facts.tensors_at_end, classifier)), *_merged(others)]
    return tuple(sorted(groups, key=lambda group: (-group.bytes, group.shape, group.dtype, group.held_by or "")))


def _constants(live: Iterable[int], classifier: Classifier) -> Iterator[HeldTensorGroup]:
    for fact in filter(None, map(classifier.older.constants.get, live)):
        category: Category = "inputs" if fact.of_input else "other_state"
        of = "" if fact.function is None else f" of function `{fact.function}`"
        holder = f"constant{of}" if fact.layer is None else f"constant in layer {fact.layer}"
        yield HeldTensorGroup(fact.shape, fact.dtype, 1, fact.requested_bytes, holder, fact.line, category=category)


def _dense_gradients(
    live: Iterable[int], classifier: Classifier, categories: Callable[[int], set[str]]
) -> Iterator[HeldTensorGroup]:
    for chunk in live:
        fact, size = classifier.execution.maker(chunk), int(classifier.chunks.requested[chunk])
        if fact is None or not fact.made_dense or size < MIN_BYTES or "weight_gradients" not in categories(chunk):
            continue
        shape = (fact.output_shapes[0] if fact.output_shapes else None) or ()
        holder = f"sparse gradient of layer {fact.gradient_of}{MADE_DENSE}"
        known = (() if -1 in shape else shape, next(iter(fact.output_dtypes), ""))
        yield HeldTensorGroup(*known, 1, size, holder, fact.line, category="weight_gradients")


def _merged(singles: Iterable[HeldTensorGroup]) -> Iterator[HeldTensorGroup]:
    counts = Counter(singles)
    for group, count in counts.items():
        yield dataclasses.replace(group, count=count, bytes=count * group.bytes)


def _grouped(tensors: Iterable[TensorFact], lines: Mapping[_Key, str | None]) -> Iterator[HeldTensorGroup]:
    by_key: dict[_Key, list[TensorFact]] = {}
    for tensor in tensors:
        by_key.setdefault(_key(tensor), []).append(tensor)
    for key, own in by_key.items():
        first = own[0]
        size = sum(tensor.requested_bytes for tensor in own)
        path = common_path([tensor.retaining_path for tensor in own if tensor.retaining_path is not None])
        yield HeldTensorGroup(
            first.shape, first.dtype, len(own), size, first.held_by, lines.get(key), path, category=first.category
        )


def _lines(tensors: Iterable[TensorFact], classifier: Classifier) -> dict[_Key, str | None]:
    """Key of tensors made in the window to the line that made most of them; None if unknown."""
    chunks = classifier.chunks
    kept = np.flatnonzero((chunks.birth >= 0) & (chunks.death == classifier.events)).tolist()
    chunk_at = {int(chunks.address[chunk]): chunk for chunk in kept}
    lines: dict[_Key, Counter[str | None]] = {}
    for tensor in tensors:
        if tensor.address in chunk_at:
            line = classifier.line(chunk_at[tensor.address])
            lines.setdefault(_key(tensor), Counter())[line] += 1
    return {key: counts.most_common(1)[0][0] for key, counts in lines.items()}


def _key(tensor: TensorFact) -> _Key:
    return tensor.category, tensor.shape, tensor.dtype, tensor.held_by


class TensorShapes:
    """Shapes by chunk: from the allocator's event, a tensor that Python knows, or the outputs of the requesting op.

    A shape counts only if it takes exactly the requested bytes.
    """

    def __init__(self, classifier: Classifier) -> None:
        self._classifier, self._trace = classifier, classifier.window.trace
        self._facts = facts = classifier.window.facts
        variables = facts.variables
        self._at_start = _by_address(facts.tensors, ((one.start_address, one) for one in variables))
        self._at_end = _by_address(facts.tensors_at_end, ((one.end_address, one) for one in variables))
        self._batch = facts.batch.size

    def of(self, chunk: int) -> TensorShape | None:
        chunks, trace = self._classifier.chunks, self._trace
        address, requested, birth = (int(column[chunk]) for column in (chunks.address, chunks.requested, chunks.birth))
        if birth < 0:
            return _known(self._at_start.get(address), requested)
        dtype = _DTYPES.get(int(trace.dtype[birth]))
        shape = tensor_shape(self._classifier.window.dimensions(birth), dtype, requested)
        if shape is None and int(chunks.death[chunk]) == len(trace):
            shape = _known(self._at_end.get(address), requested)
        return self._of_op(chunk, birth, requested) if shape is None else shape

    def _of_op(self, chunk: int, birth: int, requested: int) -> TensorShape | None:
        """The only shape of an output of the requesting op that takes the requested bytes."""
        fact = self._classifier.requester(chunk) if self._facts.mode == "graph" else None
        if fact is None or fact.relayout or self._trace.shape[birth] >= 0:
            return None
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
