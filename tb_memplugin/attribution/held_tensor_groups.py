"""Groups of the tensors that Python keeps alive at a traced step's peak, with the lines that made them. Pure.

The maker of a tensor is known in the step that allocates it, so a group's line is that of its tensors made in the step.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from tb_memplugin.attribution.classifier import Classifier
from tb_memplugin.model import HeldTensorGroup
from tb_memplugin.model.retaining_paths import common_path
from tb_memplugin.model.trace import TensorFact, TraceFacts

_Key: TypeAlias = tuple[tuple[int, ...], str, str | None]
"""Shape, dtype and holder."""


def held_tensor_groups(facts: TraceFacts, classifier: Classifier, peak: int) -> tuple[HeldTensorGroup, ...]:
    """Groups of the held tensors that the ledger counts at an event, the largest first.

    Args:
        facts: The recorder's facts about the program.
        classifier: The classifier of the trace with these facts.
        peak: Number of the event, -1 for the start of the window.
    """
    chunks = classifier.chunks
    before: set[int] = set()
    since: set[int] = set()
    for chunk in chunks.live(peak).tolist():
        if any(owner.category == "held_tensors" for owner, _, _ in classifier.owners(chunk, peak)):
            (before if chunks.birth[chunk] < 0 else since).add(int(chunks.address[chunk]))
    held = [
        *(tensor for tensor in facts.tensors if tensor.address in before),
        *(tensor for tensor in facts.tensors_at_end if tensor.address in since),
    ]
    return _grouped(held, _lines(facts.tensors_at_end, classifier))


def _grouped(tensors: Iterable[TensorFact], lines: Mapping[_Key, str | None]) -> tuple[HeldTensorGroup, ...]:
    """Groups of tensors with the same shape, dtype and holder, the largest first."""
    by_key: dict[_Key, list[TensorFact]] = {}
    for tensor in tensors:
        by_key.setdefault(_key(tensor), []).append(tensor)
    groups = (_group(own, lines.get(key)) for key, own in by_key.items())
    return tuple(sorted(groups, key=lambda group: (-group.bytes, group.shape, group.dtype, group.held_by or "")))


def _group(tensors: Sequence[TensorFact], line: str | None) -> HeldTensorGroup:
    first = tensors[0]
    size = sum(tensor.requested_bytes for tensor in tensors)
    path = common_path([tensor.retaining_path for tensor in tensors if tensor.retaining_path is not None])
    return HeldTensorGroup(first.shape, first.dtype, len(tensors), size, first.held_by, line, path)


def _lines(tensors: Iterable[TensorFact], classifier: Classifier) -> dict[_Key, str | None]:
    """Shape, dtype and holder of tensors made in the window to the line that made most of them; None if unknown."""
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
    return tensor.shape, tensor.dtype, tensor.held_by
