"""Bytes in use, peak, capacity and pool of a session's samples, several times faster than whole frames are decoded.

Frames of a session repeat the same head, so the places of its columns are worked out once. Anything unusual (a gap,
damage, devices that come and go) is left to the general way: the result is then None.
"""

import json
import threading
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

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
PLAN_BYTES = 64 << 20
"""Limit of the cached plans: one of a large frame takes several megabytes."""
_SAMPLES = STREAMS.index("samples")
_KINDS = ("i", *(f"r{planes}" for planes in range(1, 9)))


class _Group(NamedTuple):
    """Columns of one type: their rows in the result, and the places of their bytes, shape [columns, rows, planes]."""

    kind: str
    rows: list[int]
    places: npt.NDArray[np.intp]


class _Plan(NamedTuple):
    """Where the columns of a frame lie, and its devices."""

    devices: tuple[str, ...]
    rows: int
    times_at: int
    groups: tuple[_Group, ...]


def read_figures(contents: Iterable[TagContent], most_values: int, most_rows: int) -> Samples | None:
    """The samples of one session from all of its tags, in order of the steps.

    Args:
        contents: The session's tags of stream ``samples``.
        most_values, most_rows: Limits of the numbers and of the rows in the result.
    """
    parts: dict[int, tuple[Integers, npt.NDArray[np.float64]]] = {}
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
            # A copy: a view would keep all columns.
            parts[sequence] = _values(plan, rest), np.frombuffer(rest, "<f8", plan.rows, plan.times_at).astype(float)
    if devices is None or sorted(parts) != list(range(len(parts))):
        return None
    values = np.concatenate([parts[at][0] for at in range(len(parts))], axis=1)
    times = np.concatenate([parts[at][1] for at in range(len(parts))])
    return _samples(devices, values, times)


def _samples(devices: tuple[str, ...], values: Integers, times: npt.NDArray[np.float64]) -> Samples | None:
    steps, phases, resident, sizes = values[0], values[1], values[2], values[3:]
    known = np.where(values[2:] == MISSING, 0, values[2:])
    valid = (
        np.isfinite(times).all()
        and (steps[1:] >= steps[:-1]).all()
        and 0 <= steps[0] <= steps[-1] <= MAX_BYTES
        and 0 <= phases.min() <= phases.max() < len(PHASES)
        and (not known.size or 0 <= known.min() <= known.max() <= MAX_BYTES)
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
            places = sum(group.places.nbytes for group in known.groups)
            _plans.put(text, size, known, len(text) + places + 1000 * (1 + len(known.devices)))
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
    groups: dict[str, list[int]] = {}
    for row, name in enumerate(names):
        kind, _ = columns[name]
        if kind not in _KINDS:
            raise FormatError(f"column {name!r:.80} is of type {kind!r:.20}")
        groups.setdefault(kind, []).append(row)
    kind, times_at = columns["wall_time"]
    if kind != "f" or not rows:
        raise FormatError("samples lack their times")
    return _Plan(
        devices,
        rows,
        times_at,
        tuple(
            _Group(kind, of_kind, _places(kind, rows, [columns[names[row]][1] for row in of_kind]))
            for kind, of_kind in groups.items()
        ),
    )


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


def _places(kind: str, rows: int, begins: list[int]) -> npt.NDArray[np.intp]:
    """Places of the bytes of transposed columns: first the lowest bytes of all rows, then the next."""
    planes = np.arange(value_bytes(kind), dtype=np.intp) * rows
    return np.asarray(begins, np.intp)[:, None, None] + np.arange(rows)[None, :, None] + planes


def _values(plan: _Plan, rest: bytes) -> Integers:
    """Steps, phases and the figures of each device, shape [columns, rows]."""
    data = np.frombuffer(rest, np.uint8)
    values = np.empty((sum(len(group.rows) for group in plan.groups), plan.rows), np.int64)
    for group in plan.groups:
        bytes_of = np.zeros((len(group.rows), plan.rows, 8), np.uint8)
        bytes_of[:, :, : group.places.shape[2]] = data[group.places]
        stored = bytes_of.view("<i8")[:, :, 0]
        values[group.rows] = np.cumsum(stored, axis=1) if group.kind == "i" else stored
    return values
