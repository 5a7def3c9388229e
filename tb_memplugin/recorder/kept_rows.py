"""`KeptRows`: when to look at the arrays and iterators that the program keeps."""

import time

from tb_memplugin.model import MISSING
from tb_memplugin.recorder.observe.heap.kept_objects import kept_objects
from tb_memplugin.recorder.sampling.counter_rows import Value

FREE_SECONDS = 0.25
"""Processor time that it may take at any cost, so that short programs are told."""
SHARE = 0.2
"""Share of the overhead budget that it may take beyond that."""
GROWTH_BYTES = 8 << 20
"""Least growth of host RSS from one look to the next; twice as much each time."""


class KeptRows:
    """For the training's thread."""

    def __init__(self, overhead: float) -> None:
        self.values: list[Value] = []
        self._overhead = overhead
        self._began = time.monotonic()
        self._spent_seconds = 0.0
        self._next_bytes = 0
        self._step_bytes = GROWTH_BYTES

    def look(self, resident_bytes: int) -> float:
        """Look if host RSS has grown and the budget allows; the processor seconds spent."""
        budget = FREE_SECONDS + SHARE * self._overhead * (time.monotonic() - self._began)
        if not self._overhead or resident_bytes < self._next_bytes or self._spent_seconds > budget:
            return 0.0
        if self._next_bytes:
            self._step_bytes *= 2
        self._next_bytes = resident_bytes + self._step_bytes
        began = time.thread_time()
        arrays, iterators = kept_objects()
        self.values = [
            *(
                ("kept_arrays", one.holder, one.number, MISSING if one.size is None else one.size, None)
                for one in arrays
            ),
            *(("kept_iterators", one.holder, one.number, MISSING, None) for one in iterators),
        ]
        seconds = time.thread_time() - began
        self._spent_seconds += seconds
        return seconds
