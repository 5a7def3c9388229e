"""Selects the traced steps whose requests are kept for replay, to limit the size of a long run's directory. Pure."""

import dataclasses

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
    """Counts the kept steps of each device and phase."""

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
