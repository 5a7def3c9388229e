"""Rows of samples: joined, thinned to what is shown, and of several workers as one table."""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tb_memplugin.schema import (
    MISSING,
    NO_SAMPLES,
    DeviceSamples,
    Integers,
    Samples,
    all_columns,
    fields_of,
    full_device_name,
    join_rows,
    take_rows,
)

_DEVICE_FIELDS = tuple(field.name for field in fields_of(DeviceSamples))
MAX_SESSION_DEVICES = 256
"""Most devices shown per session."""
MAX_RUN_DEVICES = 1024
"""Most devices shown per run, of all workers together."""
MAX_TABLE_BYTES = 512 << 20
"""Limit of one joined table of one run once it is read as a whole; beyond it, devices or rows are
left out."""
ROW_BYTES = 64
"""What each row counts as at least, as a view widens the columns of one device: a run may have
`MAX_RUN_ROWS`."""
MAX_COLUMN_BYTES = 2 << 30
"""Limit of the columns of all devices of several workers, which bounds the time of reading each
once."""


def join_samples(parts: Sequence[Samples]) -> tuple[Samples, str | None]:
    """Concatenate the rows of `parts`, with the devices of all parts (`MISSING` where a part lacks
    one).

    Also returns a sentence if devices were left out to stay within `MAX_SESSION_DEVICES` and
    `MAX_TABLE_BYTES`."""
    parts = [part for part in parts if len(part)]
    if len(parts) < 2:
        return parts[0] if parts else NO_SAMPLES, None
    counts: Counter[str] = Counter()
    for part in parts:
        counts.update(dict.fromkeys(part.devices, len(part)))
    names, sentence = _shown_devices(
        counts, sum(map(len, parts)), MAX_SESSION_DEVICES, MAX_TABLE_BYTES
    )
    return join_rows(parts, names), sentence


def samples_bytes(samples: Samples) -> int:
    return 500 + sum(
        100 + (column.nbytes if column.strides != (0,) else 0) for column in all_columns(samples)
    )


def counted_bytes(samples: Samples) -> int:
    """What samples count as: bytes in memory, and `ROW_BYTES` for each row at least."""
    return max(samples_bytes(samples), ROW_BYTES * len(samples))


def _shown_devices(
    counts: Mapping[str, int], rows: int, most: int, most_bytes: int
) -> tuple[list[str], str | None]:
    """The devices with the most rows, at most `most` and as many as fit into `most_bytes` with
    `rows` rows each.

    Also returns a sentence if there are others. `counts` has the devices with their rows, in
    display order."""
    fitting = max(1, most_bytes // (max(1, rows) * 8 * len(_DEVICE_FIELDS)))
    names, room = list(counts), min(fitting, most)
    if len(names) <= room:
        return names, None
    kept = set(sorted(names, key=lambda name: -counts[name])[:room])
    reason = (
        f"at most {most} are"
        if most <= fitting
        else (f"{rows} rows of all devices would exceed {most_bytes} bytes")
    )
    shown = [name for name in names if name in kept]
    return shown, f"{len(names) - room} of {len(names)} devices are not shown: {reason}"


def rows_not_in(candidates: Samples, samples: Samples) -> npt.NDArray[np.bool_]:
    """Mask of the rows of `candidates` that are not in `samples`, by step, phase and time."""
    keys = _row_keys(candidates)
    # Faster than `numpy.isin`, which hashes since NumPy 2.3.
    known = np.sort(_row_keys(samples))
    first, end = np.searchsorted(known, keys, "left"), np.searchsorted(known, keys, "right")
    return np.asarray(first == end)


def _row_keys(samples: Samples) -> npt.NDArray[np.uint64]:
    place = samples.step.astype(np.uint64) * np.uint64(8) + samples.phase.astype(np.uint64)
    keys: npt.NDArray[np.uint64] = np.ascontiguousarray(samples.wall_time).view(np.uint64)
    keys = keys ^ (place * np.uint64(0x9E3779B97F4A7C15))
    return keys


def thinned(samples: Samples, halvings: int = 1) -> Samples:
    """At most about one row of 2^`halvings`: of neighbors in a phase, those with the highest peak
    of each device.

    The first and the last row of each phase stay."""
    if not halvings:
        return samples
    keep = np.zeros(len(samples), np.bool_)
    heights = [_height(figures) for figures in samples.devices.values()] or [
        samples.host_resident_bytes
    ]
    for phase in np.unique(samples.phase):
        rows = np.flatnonzero(samples.phase == phase)
        keep[rows[[0, -1]]] = True
        for height in heights:
            keep[rows[_highest(height[rows], len(heights) << halvings)]] = True
    return samples if keep.all() else take_rows(samples, keep)


def _height(figures: DeviceSamples) -> Integers:
    return np.where(figures.peak_bytes == MISSING, figures.in_use_bytes, figures.peak_bytes)


def _highest(column: Integers, group: int) -> Integers:
    """The row of the first highest value in each group of neighbors, without groups that have no
    value."""
    groups = np.pad(column, (0, -len(column) % group), constant_values=MISSING).reshape(-1, group)
    best = groups.argmax(axis=1)
    known = np.flatnonzero(groups[np.arange(len(groups)), best] != MISSING)
    rows: Integers = known * group + best[known]
    return rows


def samples_of_workers(by_worker: Mapping[str, Samples]) -> tuple[Samples, str | None]:
    """The rows of all workers by step, with the devices as `full_device_name` names them.

    Each worker has rows of its own, so a column of one device has no value in most rows. Columns
    are built when they are read: those of all devices of many workers would need gigabytes. Also
    returns a sentence if devices were left out for their number or size."""
    parts = {worker: samples for worker, samples in by_worker.items() if len(samples)}
    if not parts:
        return NO_SAMPLES, None
    every = join_rows([dataclasses.replace(part, devices={}) for part in parts.values()])
    order = np.argsort(every.step, kind="stable")
    place = np.empty(len(order), np.intp)
    place[order] = np.arange(len(order))
    sources: dict[str, tuple[DeviceSamples, npt.NDArray[np.intp]]] = {}
    begin = 0
    for worker, part in parts.items():
        rows = place[begin : begin + len(part)]
        sources.update(
            (full_device_name(worker, device), (figures, rows))
            for device, figures in part.devices.items()
        )
        begin += len(part)
    counts = {name: len(rows) for name, (_, rows) in sources.items()}
    names, sentence = _shown_devices(counts, len(order), MAX_RUN_DEVICES, MAX_COLUMN_BYTES)
    devices = _WorkerDevices({name: sources[name] for name in names}, len(order))
    return dataclasses.replace(take_rows(every, order), devices=devices), sentence


class _WorkerDevices(Mapping[str, DeviceSamples]):
    """Device to its figures in a table of `length` rows, from its own figures and the rows that
    these have there."""

    def __init__(
        self, sources: Mapping[str, tuple[DeviceSamples, npt.NDArray[np.intp]]], length: int
    ) -> None:
        self._sources = sources
        self._length = length

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)

    def __contains__(self, name: object) -> bool:
        return name in self._sources  # that of `Mapping` would make the figures

    def __getitem__(self, name: str) -> DeviceSamples:
        figures, rows = self._sources[name]

        def widened(column: Integers) -> Integers:
            if column.strides == (0,) and column[0] == MISSING:
                return np.broadcast_to(np.int64(MISSING), self._length)
            values = np.full(self._length, MISSING, np.int64)
            values[rows] = column
            return values

        return DeviceSamples(
            **{field: widened(getattr(figures, field)) for field in _DEVICE_FIELDS}
        )
