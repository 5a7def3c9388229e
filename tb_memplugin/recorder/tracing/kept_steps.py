"""Selects the traced steps that keep their timeline and their requests, to limit the size of the run. Pure."""

import dataclasses

ALL_OF_FIRST = 64
"""The first timelines of a device and phase are all kept; after this many, every second one, after twice as many, every
fourth one, and so on."""


@dataclasses.dataclass
class _TimelineCounts:
    timelines: int = 0
    highest_bytes: int = 0


class KeptTimelines:
    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], _TimelineCounts] = {}

    def wants(self, device: str, phase: str, in_use_bytes: int) -> bool:
        """Whether to keep the timeline of a step with this peak. A new highest peak is always kept."""
        counts = self._counts.setdefault((device, phase), _TimelineCounts())
        number, higher = counts.timelines, in_use_bytes > counts.highest_bytes
        counts.timelines += 1
        counts.highest_bytes = max(counts.highest_bytes, in_use_bytes)
        every = 1 << max(0, (number // ALL_OF_FIRST).bit_length())
        return higher or number < ALL_OF_FIRST or number % every == 0


EACH_BATCH = 3
"""Most steps of one batch size after a change of the program."""
EACH_CHANGE = 9
"""Most steps of all batch sizes after a change of the program."""
MOST = 48
"""Most steps of one device and phase in a session."""


@dataclasses.dataclass
class _Counts:
    total: int = 0
    since_change: int = 0
    batches: dict[int | None, int] = dataclasses.field(default_factory=dict)


class KeptRequests:
    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], _Counts] = {}

    def wants(self, device: str, phase: str, batch_size: int | None, first: bool) -> bool:
        """Whether to keep a step: the first one after a change, and a few of each batch size."""
        counts = self._counts.setdefault((device, phase), _Counts())
        if first:
            counts.since_change, counts.batches = 0, {}
        of_batch = counts.batches.get(batch_size, 0)
        wanted = counts.total < MOST and counts.since_change < EACH_CHANGE and (first or of_batch < EACH_BATCH)
        if wanted:
            counts.total += 1
            counts.since_change += 1
            counts.batches[batch_size] = of_batch + (not first)
        return wanted
