"""Groups of the tensors that something else than the step's ops keeps on the device."""

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

from tb_memplugin.attribution.owners import Classifier
from tb_memplugin.schema import (
    DTYPE_BYTES,
    MADE_DENSE,
    Category,
    HeldTensorGroup,
    TensorFact,
    common_path,
)

MIN_BYTES = 1024
"""Smallest variable of no model and smallest dense gradient with a group of tensors."""

_Key: TypeAlias = tuple[Category, tuple[int, ...], str, str | None]
"""Category, shape, dtype and holder."""


def tensor_groups(classifier: Classifier, peak: int) -> tuple[HeldTensorGroup, ...]:
    """Groups of the tensors that the ledger counts at an event (-1: the start of the window), the
    largest first."""
    window, live = classifier.window, classifier.chunks.live(peak)
    before = {window.address[chunk]: chunk for chunk in live if window.birth[chunk] < 0}
    since = {window.address[chunk]: chunk for chunk in live if window.birth[chunk] >= 0}

    def categories(chunk: int | None) -> set[Category]:
        parts = [] if chunk is None else classifier.owners(chunk, peak)
        return {owner.category for owner, _, _ in parts}

    held = [  # held tensors, data sets and captured constants
        tensor
        for tensors, chunk_at in (
            (window.facts.tensors, before),
            (window.facts.tensors_at_end, since),
        )
        for tensor in tensors
        if tensor.category == "held_tensors" or tensor.held_by is not None
        if tensor.category in categories(chunk_at.get(tensor.address))
    ]
    others = [*_constants(live, classifier), *_dense_gradients(live, classifier, categories)]
    if window.facts.batch.stages:
        others += _ready(classifier, [one for one in live if "inputs" in categories(one)])
    for fact in window.facts.variables:
        if not fact.of_model and fact.requested_bytes >= MIN_BYTES:
            chunk = before.get(fact.start_address or 0, since.get(fact.end_address or 0))
            if "other_state" in categories(chunk):
                holder = f"variable `{fact.name.partition('#')[0].partition(':')[0]}`"
                known = (fact.shape, fact.dtype, 1, fact.requested_bytes, holder)
                others.append(HeldTensorGroup(*known, category="other_state"))
    groups = [*_grouped(held, _lines(classifier))]
    groups += [
        dataclasses.replace(one, count=count, bytes=count * one.bytes)
        for one, count in Counter(others).items()
    ]
    groups.sort(key=lambda one: (-one.bytes, one.shape, one.dtype, one.held_by or ""))
    return tuple(groups)


def _constants(live: Iterable[int], classifier: Classifier) -> Iterator[HeldTensorGroup]:
    for fact in filter(None, map(classifier.older.constants.get, live)):
        category: Category = "inputs" if fact.of_input else "other_state"
        of = "" if fact.function is None else f" of function `{fact.function}`"
        holder = f"constant{of}" if fact.layer is None else f"constant in layer {fact.layer}"
        yield HeldTensorGroup(
            fact.shape, fact.dtype, 1, fact.requested_bytes, holder, fact.line, category=category
        )


def _dense_gradients(
    live: Iterable[int], classifier: Classifier, categories: Callable[[int], set[Category]]
) -> Iterator[HeldTensorGroup]:
    for chunk in live:
        fact, size = classifier.execution.maker(chunk), classifier.window.requested[chunk]
        if fact.made_dense and size >= MIN_BYTES and "weight_gradients" in categories(chunk):
            shape = (fact.output_shapes[0] if fact.output_shapes else None) or ()
            known = (() if -1 in shape else shape, next(iter(fact.output_dtypes), ""))
            holder = f"sparse gradient of layer {fact.gradient_of}{MADE_DENSE}"
            yield HeldTensorGroup(*known, 1, size, holder, fact.line, category="weight_gradients")


def _ready(classifier: Classifier, inputs: Iterable[int]) -> Iterator[HeldTensorGroup]:
    """One group for each tensor of the batches that are ready in an input pipeline: chunks of the
    tensor's size, without that of the batch in use, belong to the last stages."""
    requested, batch = classifier.window.requested, classifier.window.facts.batch
    known = [
        (tuple(batch.size or -1 if one == -1 else one for one in shape), dtype)
        for shape, dtype in batch.components
        if dtype in DTYPE_BYTES
    ]
    sizes = {one: math.prod(one[0]) * DTYPE_BYTES[one[1]] for one in known if min(one[0]) > 0}
    chunks = Counter(requested[chunk] for chunk in inputs)
    for (shape, dtype), size in sizes.items():
        left = chunks[size] - 1 if size >= MIN_BYTES else 0
        for stage, elements, stored in batch.stages:
            # other stages have single examples
            count = min(elements, left) if 2 * stored > elements * sum(sizes.values()) else 0
            left -= count
            for _ in range(count):
                yield HeldTensorGroup(shape, dtype, 1, size, stage, category="inputs")


def _grouped(
    tensors: Iterable[TensorFact], lines: Mapping[_Key, str | None]
) -> Iterator[HeldTensorGroup]:
    by_key: dict[_Key, list[TensorFact]] = {}
    for tensor in tensors:
        by_key.setdefault(_key(tensor), []).append(tensor)
    for key, own in by_key.items():
        category, shape, dtype, held_by = key
        size = sum(tensor.requested_bytes for tensor in own)
        paths = [tensor.retaining_path for tensor in own if tensor.retaining_path is not None]
        known = (shape, dtype, len(own), size, held_by, lines.get(key), common_path(paths))
        yield HeldTensorGroup(*known, category=category)


def _lines(classifier: Classifier) -> dict[_Key, str | None]:
    """Key of tensors to the line that took most of them from an iterator, or that made most of
    those of the window."""
    window = classifier.window
    lasting = classifier.chunks.live(window.events - 1)
    chunk_at = {window.address[chunk]: chunk for chunk in lasting if window.birth[chunk] >= 0}
    lines: dict[_Key, Counter[str | None]] = {}
    for tensor in window.facts.tensors_at_end:
        if tensor.address in chunk_at:
            line = tensor.line or classifier.line(chunk_at[tensor.address])
            lines.setdefault(_key(tensor), Counter())[line] += 1
    for tensor in window.facts.tensors:
        if tensor.line is not None:
            lines.setdefault(_key(tensor), Counter())[tensor.line] += 1
    return {key: counts.most_common(1)[0][0] for key, counts in lines.items()}


def _key(tensor: TensorFact) -> _Key:
    return tensor.category, tensor.shape, tensor.dtype, tensor.held_by
