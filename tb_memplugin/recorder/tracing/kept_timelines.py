"""Selects the traced steps that keep their timeline, to limit the size of a long run's directory. Pure."""

import dataclasses

ALL_OF_FIRST = 64
"""The first timelines of a device and phase are all kept; after this many, every second one, after twice as many, every
fourth one, and so on."""


@dataclasses.dataclass
class _Counts:
    timelines: int = 0
    highest_bytes: int = 0


class KeptTimelines:
    """Counts the timelines of each device and phase."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], _Counts] = {}

    def wants(self, device: str, phase: str, in_use_bytes: int) -> bool:
        """Whether to keep the timeline of a step with this peak. A new highest peak is always kept."""
        counts = self._counts.setdefault((device, phase), _Counts())
        number, higher = counts.timelines, in_use_bytes > counts.highest_bytes
        counts.timelines += 1
        counts.highest_bytes = max(counts.highest_bytes, in_use_bytes)
        every = 1 << max(0, (number // ALL_OF_FIRST).bit_length())
        return higher or number < ALL_OF_FIRST or number % every == 0
