"""Bytes in use, peak, capacity and pool of a session's samples, several times faster than whole frames are decoded.

Frames of a session repeat the same head, so the places of its columns are worked out once. Anything unusual (a gap,
damage, devices that come and go) is left to the general way: the result is then None.
"""

import dataclasses
import json
import threading
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tb_memplugin.errors import FormatError
from tb_memplugin.events import codec, fields
from tb_memplugin.events.column_codec import value_bytes
from tb_memplugin.events.fields import MAX_BYTES
from tb_memplugin.events.metadata import STREAMS
from tb_memplugin.events.sample_records import MAX_DEVICES
from tb_memplugin.model import MISSING, PHASES, DeviceSamples, Integers, Samples
from tb_memplugin.reader.cache import ByteCache
from tb_memplugin.reader.device_columns import DEVICE_FIELDS, compact
from tb_memplugin.reader.source import TagContent

FIELDS = ("in_use_bytes", "peak_bytes", "capacity_bytes", "pool_bytes")
"""Fields of `DeviceSamples` that are read; all others are unknown in the result."""
MAX_BODY_BYTES = 4 << 20
"""Largest inflated body that is read; the recorder's frames of eight devices take a quarter."""
PLAN_BYTES = 8 << 20
"""Limit of the cached plans."""
TOGETHER_BYTES = 4 << 20
"""Bodies of one plan that are decoded together."""
_SAMPLES = STREAMS.index("samples")
_WITHOUT_SIGN = np.int64(~MISSING)
_KINDS = ("i", *(f"r{planes}" for planes in range(1, 9)))


@dataclasses.dataclass(frozen=True, eq=False)  # found by identity: comparing all columns would take longer
class _Plan:
    """Where the columns of a frame lie, and its devices.

    Attributes:
        devices: Their names.
        rows: Rows of the frame.
        times_at: Offset of the times.
        columns: Type and offset of steps, phases, host memory, and the `FIELDS` of each device.
    """

    devices: tuple[str, ...]
    rows: int
    times_at: int
    columns: tuple[tuple[str, int], ...]


class _Parts:
    """The values of frames by their sequence number; bodies of one plan are decoded together."""

    def __init__(self) -> None:
        self.sequences: set[int] = set()
        self._values: dict[int, tuple[Integers, npt.NDArray[np.float64]]] = {}
        self._waiting: dict[_Plan, list[tuple[int, memoryview]]] = {}
        self._bytes = 0

    def add(self, sequence: int, plan: _Plan, body: memoryview) -> None:
        """Add the columns of a frame."""
        self.sequences.add(sequence)
        self._waiting.setdefault(plan, []).append((sequence, body))
        self._bytes += len(body)
        if self._bytes >= TOGETHER_BYTES:
            self._decode()

    def joined(self) -> tuple[Integers, npt.NDArray[np.float64]]:
        """The columns of all frames, shape [columns, rows], and their times."""
        self._decode()
        parts = [self._values[at] for at in sorted(self._values)]
        return np.concatenate([part[0] for part in parts], axis=1), np.concatenate([part[1] for part in parts])

    def _decode(self) -> None:
        for plan, frames in self._waiting.items():
            data = np.frombuffer(b"".join(body for _, body in frames), np.uint8).reshape(len(frames), -1)
            values = _values(plan, data)
            # A copy, in one piece: a view would keep all columns.
            times = data[:, plan.times_at : plan.times_at + 8 * plan.rows].copy().view("<f8")
            for at, (sequence, _) in enumerate(frames):
                self._values[sequence] = values[:, at], times[at]
        self._waiting, self._bytes = {}, 0


def read_figures(contents: Iterable[TagContent], most_values: int, most_rows: int) -> Samples | None:
    """The samples of one session from all of its tags, in order of the steps.

    Args:
        contents: The session's tags of stream ``samples``.
        most_values, most_rows: Limits of the numbers and of the rows in the result.
    """
    parts = _Parts()
    devices: tuple[str, ...] | None = None
    size = rows = 0
    for content in contents:
        if content.damage:
            return None
        for stored in content.frames:
            try:
                stream, sequence, text, rest = codec.inflate(stored.data, MAX_BODY_BYTES)
                plan = _cached_plan(text, len(rest))
            except (FormatError, ValueError, KeyError, TypeError, MemoryError, RecursionError):
                return None
            devices = plan.devices if devices is None else devices
            size += plan.rows * (4 + len(FIELDS) * len(plan.devices))
            rows += plan.rows
            if size > most_values or rows > most_rows or (plan.devices, stream) != (devices, _SAMPLES):
                return None
            if sequence in parts.sequences:
                return None
            parts.add(sequence, plan, rest)
    if devices is None or parts.sequences != set(range(len(parts.sequences))):
        return None
    return _samples(devices, *parts.joined())


def _samples(devices: tuple[str, ...], values: Integers, times: npt.NDArray[np.float64]) -> Samples | None:
    steps, phases, resident, sizes = values[0], values[1], values[2], values[3:]
    # `MISSING` has the sign bit alone: without it, it is 0, and any other negative value is too large.
    largest = max(int((column & _WITHOUT_SIGN).max()) for column in values[2:])
    valid = (
        np.isfinite(times).all()
        and (steps[1:] >= steps[:-1]).all()
        and 0 <= steps[0] <= steps[-1] <= MAX_BYTES
        and 0 <= phases.min() <= phases.max() < len(PHASES)
        and largest <= MAX_BYTES
    )
    if not valid:
        return None
    unknown: Integers = np.broadcast_to(np.int64(MISSING), len(steps))
    table = {
        name: DeviceSamples(
            **{
                field: sizes[at * len(FIELDS) + FIELDS.index(field)] if field in FIELDS else unknown
                for field in DEVICE_FIELDS
            }
        )
        for at, name in enumerate(devices)
    }
    # Copies, as the others would be kept with these.
    return compact(Samples(steps.copy(), phases.copy(), unknown, times, resident.copy(), table))


_plans: ByteCache[_Plan] = ByteCache(PLAN_BYTES)
_plans_lock = threading.Lock()


def _cached_plan(text: bytes, size: int) -> _Plan:
    with _plans_lock:
        known = _plans.get(text, size)
    if known is None:
        known = _plan(text, size)
        with _plans_lock:
            _plans.put(text, size, known, len(text) + 100 * len(known.columns) + 1000)
    return known


def _plan(text: bytes, size: int) -> _Plan:
    """The plan of frames with this head and as many bytes of columns; raises if it is unusual."""
    head = json.loads(text)
    devices = tuple(map(fields.device, head["attributes"]["devices"]))
    if len(devices) > MAX_DEVICES:
        raise FormatError(f"samples of {len(devices)} devices")
    columns: Mapping[str, tuple[str, int]]
    columns, rows = _columns(head["tables"], size)
    names = ["step", "phase", "host_resident_bytes", *(f"{field}/{device}" for device in devices for field in FIELDS)]
    for name in names:
        kind, _ = columns[name]
        if kind not in _KINDS:
            raise FormatError(f"column {name!r:.80} is of type {kind!r:.20}")
    kind, times_at = columns["wall_time"]
    if kind != "f" or not rows:
        raise FormatError("samples lack their times")
    return _Plan(devices, rows, times_at, tuple(columns[name] for name in names))


def _columns(tables: Any, size: int) -> tuple[dict[str, tuple[str, int]], int]:
    """Name to type and offset of the columns of the only table, and its number of rows."""
    (table,) = tables.values()
    columns, at, lengths = {}, 0, set()
    for name, kind, length in table:
        if type(length) is not int or length < 0:
            raise FormatError(f"column {name!r:.80} has {length!r:.20} values")
        columns[name] = kind, at
        at += length * value_bytes(kind)
        lengths.add(length)
    (rows,) = lengths
    if at != size:
        raise FormatError(f"frame has {size} bytes of columns, not {at}")
    return columns, rows


def _values(plan: _Plan, data: npt.NDArray[np.uint8]) -> Integers:
    """Steps, phases, host memory and the figures of each device, shape [columns, frames, rows].

    Args:
        plan: The plan of all frames.
        data: Their bodies, shape [frames, bytes].
    """
    values = np.zeros((len(plan.columns), len(data), plan.rows), "<i8")
    bytes_of = values.view(np.uint8).reshape(*values.shape, 8)
    for at, (kind, begin) in enumerate(plan.columns):
        planes = value_bytes(kind)
        stored = data[:, begin : begin + planes * plan.rows]
        # A capacity is the same in all frames, which is soon told: then it is decoded once.
        same = bool((stored[-1] == stored[0]).all() and (stored == stored[0]).all())
        frames = slice(0, 1 if same else None)
        # Columns are transposed: first the lowest bytes of all rows, then the next.
        for plane in range(planes):
            bytes_of[at, frames, :, plane] = stored[frames, plane * plan.rows : (plane + 1) * plan.rows]
        if kind == "i":
            np.cumsum(values[at, frames], axis=1, out=values[at, frames])
        if same:
            values[at, 1:] = values[at, 0]
    return values
