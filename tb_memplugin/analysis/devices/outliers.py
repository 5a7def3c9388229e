"""Devices whose peak lies apart from those of comparable devices, and the categories that explain it. Pure.

In a large training most devices do the same work. Where they do not, names usually show it: all workers of a pipeline
stage contain its number. Devices are compared within groups that share a number at a place of their names, if that
explains how their peaks differ. A group has devices of several workers, so a faulty worker is no group of its own.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tb_memplugin.model import Integers
from tb_memplugin.model.groups import Group
from tb_memplugin.model.units import counted, format_bytes

MIN_GROUP = 5
"""Fewest devices with a median to compare with."""
MIN_WORKERS = 3
"""Fewest workers of a group by numbers."""
MIN_SHARE = 0.02
"""Least difference, as a share of the median: less is noise, or nothing to act on."""
SPREADS = 8.0
"""Least difference in median absolute deviations of the group: of normally distributed peaks, 1 in 15 million lies
farther from the median."""
QUANTILE, EXPLAINS = 0.9, 0.5
"""A grouping is used if it lowers this quantile of the distances from the median to at most this share."""
MAX_PARTS = 3
"""Most categories that explain a difference."""


@dataclasses.dataclass(frozen=True)
class ComparedDevice:
    """A device as it is compared: its name with that of its worker, its peak, and the breakdown of a traced step."""

    name: str
    worker: str
    peak_bytes: int
    parts: Mapping[Group, int] | None


@dataclasses.dataclass(frozen=True)
class Outlier:
    """A device whose peak lies apart.

    Attributes:
        name: Its name.
        group: Pattern of the names of the compared devices, such as ``stage_1_worker_*/GPU:*``.
        devices: Number of these.
        median_bytes: Median of their peaks.
        bytes: Peak − median.
        parts: Categories whose bytes differ most from their medians in the group, largest difference first, with the
            difference; only those in the direction of `bytes`. Empty without breakdowns.
    """

    name: str
    group: str
    devices: int
    median_bytes: int
    bytes: int
    parts: tuple[tuple[Group, int], ...]

    @property
    def sentence(self) -> str:
        """The finding."""
        direction = "more" if self.bytes > 0 else "less"
        return (
            f"{self.name} peaks at {format_bytes(self.median_bytes + self.bytes)}, {format_bytes(abs(self.bytes))} "
            f"{direction} than the median of {counted(self.devices, 'device')} ({self.group})"
        )


def outliers(devices: Sequence[ComparedDevice]) -> list[Outlier]:
    """The devices whose peak lies apart, the largest difference first."""
    if len(devices) < MIN_GROUP:
        return []
    peaks = np.asarray([device.peak_bytes for device in devices], np.int64)
    names = [_split(device.name) for device in devices]
    workers = [device.worker for device in devices]
    found = []
    for places, members in _groups(names, workers, peaks):
        of_group = peaks[members]
        median = int(np.median(of_group))
        differences = of_group - median
        least = max(SPREADS * float(np.median(np.abs(differences))), MIN_SHARE * median)
        for at in np.flatnonzero(np.abs(differences) > least).tolist():
            device = devices[members[at]]
            own = [devices[member] for member in members.tolist()]
            found.append(
                Outlier(
                    device.name,
                    _pattern(names, members, places),
                    len(members),
                    median,
                    int(differences[at]),
                    _parts(device, own, int(differences[at])),
                )
            )
    return sorted(found, key=lambda outlier: -abs(outlier.bytes))


def _split(name: str) -> tuple[str, ...]:
    """Text and numbers of a name by turns."""
    return tuple(re.split(r"([0-9]+)", name))


def _groups(
    names: Sequence[tuple[str, ...]], workers: Sequence[str], peaks: Integers
) -> list[tuple[tuple[int, ...], npt.NDArray[np.intp]]]:
    """Groups of comparable devices, each with the places of the names whose numbers its members share."""
    alike: dict[tuple[str, ...], list[int]] = {}
    for at, name in enumerate(names):
        alike.setdefault(name[::2], []).append(at)
    groups = []
    for members in alike.values():
        rows = np.asarray(members, np.intp)
        places: tuple[int, ...] = ()
        spread = _spread(peaks[rows], [np.arange(len(rows))])
        while True:
            candidates = {
                (*places, place): _parted(names, members, (*places, place))
                for place in range(1, len(names[members[0]]), 2)
                if place not in places
            }
            spreads = {
                key: _spread(peaks[rows], parts)
                for key, parts in candidates.items()
                if all(_is_group(part, [workers[members[at]] for at in part]) for part in parts)
            }
            best = min(spreads, key=lambda key: spreads[key], default=None)
            if best is None or spreads[best] > EXPLAINS * spread or not spread:
                break
            places, spread = best, spreads[best]
        groups += [(places, rows[part]) for part in _parted(names, members, places) if len(part) >= MIN_GROUP]
    return groups


def _is_group(devices: Sequence[int], workers: Sequence[str]) -> bool:
    return len(devices) >= MIN_GROUP and len(set(workers)) >= MIN_WORKERS


def _parted(names: Sequence[tuple[str, ...]], members: Sequence[int], places: Sequence[int]) -> list[list[int]]:
    """Indices into `members`, grouped by their names' numbers at some places."""
    parts: dict[tuple[str, ...], list[int]] = {}
    for at, member in enumerate(members):
        parts.setdefault(tuple(names[member][place] for place in places), []).append(at)
    return list(parts.values())


def _spread(peaks: Integers, parts: Sequence[Sequence[int] | npt.NDArray[np.intp]]) -> float:
    """A quantile of the distances of all peaks, each from the median of its part."""
    distances = [np.abs(peaks[part] - np.median(peaks[part])) for part in parts]
    return float(np.quantile(np.concatenate(distances), QUANTILE))


def _pattern(
    names: Sequence[tuple[str, ...]], members: Sequence[int] | npt.NDArray[np.intp], places: Sequence[int]
) -> str:
    """A name of the group with stars for the numbers in which its members differ."""
    first = names[members[0]]
    differs = {
        place for place in range(1, len(first), 2) if any(names[member][place] != first[place] for member in members)
    }
    return "".join("*" if place in differs and place not in places else part for place, part in enumerate(first))


def _parts(device: ComparedDevice, group: Sequence[ComparedDevice], difference: int) -> tuple[tuple[Group, int], ...]:
    known = [member.parts for member in group if member.parts is not None]
    if device.parts is None or len(known) < MIN_GROUP:
        return ()
    differences = {
        key: device.parts.get(key, 0) - int(np.median([parts.get(key, 0) for parts in known]))
        for key in {key for parts in known for key in parts}
    }
    wanted = [(key, size) for key, size in differences.items() if size * difference > 0]
    return tuple(sorted(wanted, key=lambda part: (-abs(part[1]), part[0][0]))[:MAX_PARTS])
