"""Sums the NumPy arrays and the tf.data iterators that the program keeps, by what keeps them.

No garbage collector knows arrays, so the search goes down from the program's modules and running functions, as that for
the holders of tensors, and sums the arrays that each object refers to.
"""

import sys
import time
from collections import Counter
from typing import Any, NamedTuple

from tb_memplugin.recorder.observe.heap.holder_names import Node, describe_holder, describe_variable
from tb_memplugin.recorder.observe.heap.holders import REFERENCES_BETWEEN_CLOCKS, SEARCH_SECONDS, references

MAX_HOLDERS = 3
"""Most holders that are told, those of the most bytes or iterators."""


class Kept(NamedTuple):
    """What an object keeps: `size` bytes of NumPy arrays, or iterators, whose buffers have an unknown size (None)."""

    holder: str
    number: int
    size: int | None


def kept_objects(seconds: float = SEARCH_SECONDS) -> tuple[list[Kept], list[Kept]]:
    """Arrays, and iterators, by holder; what is not found within the processor time is left out."""
    array_type = getattr(sys.modules.get("numpy"), "ndarray", None)
    if array_type is None:
        return [], []
    end = time.thread_time() + seconds
    seen: set[int] = set()
    sizes: Counter[int] = Counter()
    counts: Counter[tuple[int, bool]] = Counter()
    holders: dict[int, tuple[Node, Any]] = {}
    for number, (node, _, child) in enumerate(references(set(), untracked=True)):
        if number % REFERENCES_BETWEEN_CLOCKS == 0 and time.thread_time() > end:
            break
        is_array = isinstance(child, array_type)
        if not (is_array or _is_iterator(child)) or id(child) in seen:
            continue
        seen.add(id(child))
        key = id(node.value)
        holders.setdefault(key, (node, child))
        counts[key, is_array] += 1
        if is_array and child.base is None:  # a view has no memory of its own
            sizes[key] += child.nbytes
    arrays = [Kept(_describe(*holders[key]), counts[key, True], size) for key, size in sizes.most_common(MAX_HOLDERS)]
    iterators = Counter({key: count for (key, is_array), count in counts.items() if not is_array})
    return arrays, [Kept(_describe(*holders[key]), count, None) for key, count in iterators.most_common(MAX_HOLDERS)]


def _is_iterator(value: Any) -> bool:
    return type(value).__name__ in ("OwnedIterator", "OwnedMultiDeviceIterator", "NumpyIterator", "_NumpyIterator")


def _describe(node: Node, child: Any) -> str:
    return describe_variable(node, child) if node.parent is None else describe_holder(node, child)
