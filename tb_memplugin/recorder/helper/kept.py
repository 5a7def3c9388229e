"""What is kept of the analyzed steps: all timelines of the first ones, requests of a few steps of
each batch size."""

import collections

# timelines that are all kept; of twice as many every second one, then every fourth one, and so on
ALL_OF_FIRST = 64


class KeptTimelines:
    def __init__(self) -> None:
        # timelines and the highest bytes in use
        self._counts: dict[tuple[str, str], tuple[int, int]] = {}

    def wants(self, device: str, phase: str, in_use_bytes: int) -> bool:
        """Whether to keep the timeline of a step with this peak. A new highest peak is always
        kept."""
        number, highest = self._counts.get((device, phase), (0, 0))
        self._counts[device, phase] = (number + 1, max(highest, in_use_bytes))
        every = 1 << max(0, (number // ALL_OF_FIRST).bit_length())
        return in_use_bytes > highest or number < ALL_OF_FIRST or number % every == 0


EACH_BATCH = 3  # most steps of one batch size after a change of the program
OTHER_PEAK = 0.05
"""Share by which a step's peak differs from those of the kept ones, so that it is of another kind,
such as one after an update with accumulated gradients, and kept as well. The steps of an ordinary
training differ by less (docs/accuracy.md)."""
EACH_CHANGE = 9  # most steps of all batch sizes after a change of the program
MOST = 48  # most steps of one device and phase in a session
FIRST = -1  # in place of the batch size of the first step, which counts for none


class KeptRequests:
    def __init__(self) -> None:
        self._total: collections.Counter[tuple[str, str]] = collections.Counter()
        # batch sizes and peaks since the last change
        self._kept: dict[tuple[str, str], list[tuple[int | None, int]]] = collections.defaultdict(
            list
        )

    def wants(
        self, device: str, phase: str, batch_size: int | None, peak_bytes: int, first: bool
    ) -> bool:
        """Whether to keep a step with this peak: the first one after a change, a few of each batch
        size, and of these those with another peak."""
        key, kept = (device, phase), self._kept[device, phase]
        if first:
            kept.clear()
        most = len(kept) < EACH_CHANGE and self._total[key] < MOST
        peaks = [peak for size, peak in kept if size == batch_size]
        is_other = all(abs(peak_bytes - peak) > OTHER_PEAK * peak for peak in peaks)
        wanted = most and (first or len(peaks) < EACH_BATCH or is_other)
        if wanted:
            self._total[key] += 1
            kept.append((FIRST if first else batch_size, peak_bytes))
        return wanted
