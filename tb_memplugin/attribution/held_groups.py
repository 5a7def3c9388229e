"""The tensors of category ``held_tensors`` in a ledger, grouped by shape, dtype and holder. Pure."""

from collections.abc import Iterable

from tb_memplugin.attribution.classifier import Classifier
from tb_memplugin.model import HeldTensorGroup
from tb_memplugin.model.trace import TensorFact, TraceFacts


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
    return group_tensors(
        [
            *(tensor for tensor in facts.tensors if tensor.address in before),
            *(tensor for tensor in facts.tensors_at_end if tensor.address in since),
        ]
    )


def group_tensors(tensors: Iterable[TensorFact]) -> tuple[HeldTensorGroup, ...]:
    """Groups of tensors with the same shape, dtype and holder, the largest first."""
    groups: dict[tuple[tuple[int, ...], str, str | None], list[int]] = {}
    for tensor in tensors:
        groups.setdefault((tensor.shape, tensor.dtype, tensor.held_by), []).append(tensor.requested_bytes)
    rows = (
        HeldTensorGroup(shape, dtype, len(sizes), sum(sizes), held_by)
        for (shape, dtype, held_by), sizes in groups.items()
    )
    return tuple(sorted(rows, key=lambda group: (-group.bytes, group.shape, group.dtype, group.held_by or "")))
