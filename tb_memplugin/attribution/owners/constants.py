"""Chunks of the constants of function graphs. Pure.

The trace names no op for such a chunk, so its size identifies it among the chunks without another owner.
"""

from collections import defaultdict
from collections.abc import Iterable

from tb_memplugin.attribution.trace.window import Owner, Window
from tb_memplugin.model.trace import ConstantFact

RARE_BYTES = 64 << 10
"""Chunks of this size and more that nobody else owns are constants of their size, also if there are more of them."""


class ConstantChunks:
    """Assigns chunks to constants of their size.

    Args:
        window: The window.
        chunks: Chunks without another owner that outlive the window.
        ambiguous: Sizes that other chunks have as well, such as batches: there may be no more chunks than constants.
    """

    def __init__(self, window: Window, chunks: Iterable[int], ambiguous: Iterable[int]) -> None:
        self._window = window
        constants: dict[int, list[ConstantFact]] = defaultdict(list)
        for fact in window.facts.constants:
            constants[fact.requested_bytes].append(fact)
        by_size: dict[int, list[int]] = defaultdict(list)
        for chunk in chunks:
            if window.requested[chunk] in constants:
                by_size[window.requested[chunk]].append(chunk)
        self._facts: dict[int, ConstantFact] = {}
        others = set(ambiguous)
        for size, same_size in by_size.items():
            most = len(constants[size])
            if len(same_size) <= most or size not in others:
                # Each variant of a function has its own; of small chunks, some may belong to something else.
                self._assign(same_size if size >= RARE_BYTES else same_size[:most], constants[size])

    def _assign(self, chunks: list[int], constants: list[ConstantFact]) -> None:
        """Give chunks to constants of one size: each its own, or else what the constants have in common."""
        if len(chunks) == len(constants):
            self._facts.update(zip(chunks, constants, strict=True))
            return
        first, *others = constants
        common = {
            field: getattr(first, field)
            for field in ("layer", "function", "line", "of_input")
            if all(getattr(other, field) == getattr(first, field) for other in others)
        }
        shape = first.shape if all(other.shape == first.shape for other in others) else (first.requested_bytes,)
        dtype = first.dtype if shape == first.shape else "bytes"
        fact = ConstantFact(first.requested_bytes, shape, dtype, **common)
        self._facts.update(dict.fromkeys(chunks, fact))

    def fact(self, chunk: int) -> ConstantFact | None:
        """The constant in a chunk; None if there is none."""
        return self._facts.get(chunk)

    def owner(self, chunk: int) -> Owner | None:
        """The owner of a chunk with a constant; None for other chunks."""
        fact = self._facts.get(chunk)
        if fact is None:
            return None
        return self._window.layer_owner(fact.layer, "inputs" if fact.of_input else "other_state")
