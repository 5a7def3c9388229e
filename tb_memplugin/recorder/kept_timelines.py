"""Which traced steps keep their timeline: a pure policy, so that a long run's directory does not grow without end."""

import dataclasses

ALL_OF_FIRST = 64
"""So many timelines of a device and phase are kept one after the other; then of as many again every second, then every
fourth, and so on."""


@dataclasses.dataclass
class _Seen:
    timelines: int = 0
    highest_bytes: int = 0


class KeptTimelines:
    """Counts the timelines of each device and phase."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], _Seen] = {}

    def wants(self, device: str, phase: str, in_use_bytes: int) -> bool:
        """Whether the timeline of a step with this peak is to be kept; a new highest peak always is."""
        seen = self._seen.setdefault((device, phase), _Seen())
        number, higher = seen.timelines, in_use_bytes > seen.highest_bytes
        seen.timelines += 1
        seen.highest_bytes = max(seen.highest_bytes, in_use_bytes)
        every = 1 << max(0, (number // ALL_OF_FIRST).bit_length())
        return higher or number < ALL_OF_FIRST or number % every == 0
