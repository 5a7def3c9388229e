"""Reads allocator events and op executions from TensorFlow profiles (XSpace, ``*.xplane.pb``), without TensorFlow."""

import dataclasses
import itertools
import math
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from tb_memplugin.errors import FormatError
from tb_memplugin.importers.profile import wire
from tb_memplugin.importers.profile.descriptors import unread_events_class
from tb_memplugin.importers.profile.hlo import read_module
from tb_memplugin.model import Integers
from tb_memplugin.model.basics import distinct
from tb_memplugin.model.trace import LAYER_PREFIX, AllocationTrace, Intervals, Module

MAX_PROFILE_BYTES = 1 << 31
"""Largest supported profile: the limit of a protobuf message."""
MAX_EVENTS = 20_000_000
"""Most events of one profile."""

_NO_OP = b"(null)"
"""Op name in TensorFlow 2.16 and 2.18 for allocations that no op requested, e.g. those of XLA."""
_MEMORY = {b"MemoryAllocation": 1, b"MemoryDeallocation": -1}
_CALL = b"EagerLocalExecute: "
_COLUMNS = {
    b"addr": 3,
    b"allocation_bytes": 4,
    b"requested_bytes": 5,
    b"bytes_allocated": 6,
    b"bytes_available": 7,
    b"data_type": 8,
    b"tf_op": 9,
    b"region_type": 10,
    b"shape": 11,
    b"allocator_name": 12,
    b"fragmentation": -1,
}
"""Statistic of a memory event to its column, after time, kind and thread."""
_TEXTS, _ALLOCATOR, _FRAGMENTATION = (9, 10, 11, 12), 12, -1
_SPANS = {"ops": 2, "calls": 3, "layers": 4}
# Tags of the fields of XEvent and XStat.
_EVENT_METADATA, _EVENT_OFFSET, _EVENT_DURATION, _EVENT_STATS = 8 * 1, 8 * 2, 8 * 3, 8 * 4 + wire.LENGTH
_STAT_METADATA, _STAT_UNSIGNED, _STAT_SIGNED, _STAT_REFERENCE = 8 * 1, 8 * 3, 8 * 4, 8 * 7
_STAT_REAL, _STAT_TEXT = 8 * 2 + wire.FIXED64, 8 * 5 + wire.LENGTH


def read_traces(data: bytes) -> tuple[AllocationTrace, ...]:
    """One trace for each allocator with memory events in the profile: devices first, then by name.

    Raises:
        FormatError: The bytes are no profile, are damaged, or contain the events of several hosts.
    """
    space = _parse(data)
    hosts = [plane for plane in space.planes if plane.name.startswith(b"/host:") and plane.lines]
    with_memory = [plane for plane in hosts if _memory_events(plane)]
    if len(with_memory) > 1:
        raise FormatError(
            f"the profile has memory events of {len(with_memory)} hosts, which cannot be told apart: import each "
            "host's profile separately"
        )
    traces = [trace for plane in with_memory for trace in _PlaneReader(plane).traces()]
    modules = _modules(space)
    traces = [dataclasses.replace(trace, modules=modules) for trace in traces]
    return tuple(sorted(traces, key=lambda trace: (":" not in trace.device, trace.device)))


def _parse(data: bytes) -> Any:
    if len(data) > MAX_PROFILE_BYTES:
        raise FormatError(f"the profile has {len(data)} bytes; at most {MAX_PROFILE_BYTES} are supported")
    if not data:
        raise FormatError("the profile is empty (0 bytes)")
    space = unread_events_class()()
    try:
        space.ParseFromString(data)
    except Exception as error:  # protobuf's DecodeError, whose module depends on the installed protobuf
        raise FormatError(
            f"not a TensorFlow profile (XSpace), or a truncated one: its {len(data)} bytes do not parse ({error})"
        ) from None
    if not any(plane.name.startswith(b"/") for plane in space.planes):
        raise FormatError(f"not a TensorFlow profile (XSpace): its {len(data)} bytes contain no host or device")
    if sum(len(line.events) for plane in space.planes for line in plane.lines) > MAX_EVENTS:
        raise FormatError(f"the profile has more than the supported {MAX_EVENTS} events")
    return space


def _modules(space: Any) -> tuple[Module, ...]:
    """The compiled modules, from the statistics of the metadata plane."""
    modules: list[Module] = []
    for plane in space.planes:
        if plane.name == b"/host:metadata":
            protos = (stat.bytes_value for entry in plane.event_metadata for stat in entry.value.stats)
            modules.extend(module for proto in protos if proto and (module := read_module(proto)) is not None)
    return tuple(modules)


def _memory_events(plane: Any) -> bool:
    return any(entry.value.name in _MEMORY for entry in plane.event_metadata)


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "replace")


class _Strings:
    """Interned strings: text to its index."""

    def __init__(self) -> None:
        self._index: dict[bytes, int] = {}

    def add(self, text: bytes) -> int:
        if text in (b"", _NO_OP):
            return -1
        return self._index.setdefault(text, len(self._index))

    def all(self) -> tuple[str, ...]:
        return tuple(_decoded(text) for text in self._index)


class _PlaneReader:
    """Builds the columns of one host plane."""

    def __init__(self, plane: Any) -> None:
        self._strings = _Strings()
        self._stat_names = {entry.key: entry.value.name for entry in plane.stat_metadata}
        self._threads = [_decoded(line.name or line.display_name) for line in plane.lines]
        events = wire.joined(list(itertools.chain.from_iterable(line.events for line in plane.lines)))
        counts = [len(line.events) for line in plane.lines]
        thread = np.repeat(np.arange(len(counts)), counts)
        begin = 1000 * np.asarray([line.timestamp_ns for line in plane.lines], np.int64)[thread]
        metadata, offset, duration = (np.zeros(len(thread), np.int64) for _ in range(3))
        stats: list[wire.Fields] = []
        for field in wire.fields(events):
            for tag, column in ((_EVENT_METADATA, metadata), (_EVENT_OFFSET, offset), (_EVENT_DURATION, duration)):
                found = field.of(tag)
                column[found.message] = found.value
            stats.append(field.of(_EVENT_STATS))
        begin += offset
        kind, name = self._metadata(plane.event_metadata, metadata)
        self._spans = {
            span: _intervals(np.stack([thread, begin, begin + duration, name])[:, kind == code])
            for span, code in _SPANS.items()
        }
        memory = np.flatnonzero(np.abs(kind) == 1)
        self._numbers = np.full((len(memory), _TEXTS[-1] + 1), -1, np.int64)
        self._numbers[:, :3] = np.stack([begin, kind, thread], axis=1)[memory]
        self._fragmentation = np.full(len(memory), math.nan)
        row = np.full(len(thread), -1)
        row[memory] = np.arange(len(memory))
        self._statistics(events.data, stats, row)

    def _metadata(self, entries: Iterable[Any], used: Integers) -> tuple[Integers, ...]:
        """(kind, name) of each event: 1 or -1 for memory events, a code of `_SPANS` for spans; 0 for other events."""
        keys = distinct(used)
        kinds, names = dict.fromkeys(keys.tolist(), 0), dict.fromkeys(keys.tolist(), -1)
        add, layer_prefix = self._strings.add, LAYER_PREFIX.encode()
        for entry in entries:
            key, value = entry.key, entry.value
            if key not in kinds:
                continue
            text, display = value.name, value.display_name
            if display and text.endswith(b":" + display):
                kinds[key], names[key] = _SPANS["ops"], add(text)
            elif text in _MEMORY:
                kinds[key] = _MEMORY[text]
            elif text.startswith(_CALL):
                kinds[key], names[key] = _SPANS["calls"], add(text[len(_CALL) :])
            elif text.startswith(layer_prefix):
                kinds[key], names[key] = _SPANS["layers"], add(text[len(layer_prefix) :])
        place = np.searchsorted(keys, used)
        return tuple(np.fromiter(values.values(), np.int64, len(keys))[place] for values in (kinds, names))

    def _statistics(self, data: wire.Octets, stats: Iterable[wire.Fields], row: Integers) -> None:
        """Store the statistics of the memory events in their columns; `row` is -1 for other events."""
        none = np.zeros((3, 0), np.int64)
        kept = [found.rows(np.flatnonzero(row[found.message] >= 0)) for found in stats]
        parts = ((found.message, found.at, found.at + found.value) for found in kept)
        of, start, end = np.concatenate([none, *parts], axis=1)
        key, number, reference = (np.zeros(len(of), np.int64) for _ in range(3))
        real, text = np.full(len(of), -1), np.zeros((2, len(of)), np.int64)
        for field in wire.fields(wire.Messages(data, start, end)):
            for tag, column in (
                (_STAT_METADATA, key),
                (_STAT_REFERENCE, reference),
                (_STAT_UNSIGNED, number),
                (_STAT_SIGNED, number),
            ):
                found = field.of(tag)
                column[found.message] = found.value
            found = field.of(_STAT_REAL)
            real[found.message] = found.at
            found = field.of(_STAT_TEXT)
            text[:, found.message] = found.at, found.value
        for stat, name in self._stat_names.items():
            place = _COLUMNS.get(name)
            if place is None:
                continue
            of_kind = np.flatnonzero(key == stat)
            rows = row[of[of_kind]]
            if place == _FRAGMENTATION:
                of_kind, rows = of_kind[real[of_kind] >= 0], rows[real[of_kind] >= 0]
                self._fragmentation[rows] = wire.doubles(data, real[of_kind])
            elif place in _TEXTS:
                self._numbers[rows, place] = self._texts(data, reference[of_kind], text[:, of_kind])
            else:
                self._numbers[rows, place] = number[of_kind]

    def _texts(self, data: wire.Octets, reference: Integers, text: Integers) -> Integers:
        """Indices of texts, which a statistic contains or refers to by the key of a metadata name."""
        known, places = np.unique(reference, return_inverse=True)
        names = [self._strings.add(self._stat_names.get(key, b"") if key else b"") for key in known.tolist()]
        indices: Integers = np.asarray(names, np.int64)[places]
        for place in np.flatnonzero(reference == 0).tolist():
            start, size = text[:, place]
            indices[place] = self._strings.add(data[start : start + size].tobytes())
        return indices

    def traces(self) -> list[AllocationTrace]:
        """One trace for each allocator."""
        numbers = self._numbers
        if not len(numbers):
            return []
        strings = self._strings.all()
        if (numbers[:, 3:8] < 0).any():
            bad = int((numbers[:, 3:8] < 0).any(axis=1).sum())
            raise FormatError(
                f"{bad} of the profile's {len(numbers)} memory events lack their address, size or bytes in use"
            )
        traces = []
        for allocator in sorted(set(numbers[:, _ALLOCATOR].tolist())):
            rows = numbers[:, _ALLOCATOR] == allocator
            name = strings[allocator] if allocator >= 0 else ""
            traces.append(
                _trace(name, numbers[rows], self._fragmentation[rows], strings, tuple(self._threads), self._spans)
            )
        return traces


def _intervals(columns: Integers) -> Intervals:
    order = np.lexsort(columns[::-1])
    return Intervals(*(np.ascontiguousarray(column[order]) for column in columns))


def _trace(
    allocator: str,
    numbers: Any,
    fragmentation: Any,
    strings: tuple[str, ...],
    threads: tuple[str, ...],
    spans: dict[str, Intervals],
) -> AllocationTrace:
    order = np.argsort(numbers[:, 0], kind="stable")
    columns = numbers[order]
    change = columns[:, 1] * columns[:, 4]
    order2, missed = in_allocator_order(change, columns[:, 6])
    columns, fragmentation = columns[order2], fragmentation[order][order2]
    time_ps, kind, thread, address, allocated, requested, in_use, available, dtype, op, region, shape = (
        np.ascontiguousarray(columns[:, index]) for index in range(12)
    )
    return AllocationTrace(
        device=device_name(allocator),
        allocator=allocator,
        time_ps=time_ps,
        kind=kind,
        address=address,
        allocated=allocated,
        requested=requested,
        op=op,
        region=region,
        shape=shape,
        dtype=dtype,
        in_use=in_use,
        available=available,
        fragmentation=fragmentation,
        thread=thread,
        strings=strings,
        ops=spans["ops"],
        calls=spans["calls"],
        layers=spans["layers"],
        threads=threads,
        start_in_use=int(columns[0, 6] - columns[0, 1] * columns[0, 4]),
        missed=missed,
    )


def in_allocator_order(change: Any, in_use: Any) -> tuple[Any, int]:
    """The allocator's own order of the events, and the number of places where bytes in use still do not match.

    Threads take time stamps outside the allocator's lock, so neighbors may be swapped. Event B follows A if ``in_use(A)
    + change(B) == in_use(B)``.

    Args:
        change: Signed bytes of each event, sorted by time.
        in_use: Bytes in use after each event.
    """
    count = len(change)
    order = np.arange(count)
    if not (in_use[:-1] + change[1:] != in_use[1:]).any():
        return order, 0
    before = (in_use - change).tolist()
    after = in_use.tolist()
    waiting = list(range(count))
    placed: list[int] = []
    missed = 0
    level = before[0] if before[0] not in set(after[1:_WINDOW]) else _first_level(before, after)
    position = 0
    while position < len(waiting):
        ahead = waiting[position : position + _WINDOW]
        following = next((index for index, event in enumerate(ahead) if before[event] == level), None)
        if following is None:
            missed += 1
            following = 0
        event = waiting.pop(position + following)
        waiting.insert(position, event)
        placed.append(event)
        level = after[event]
        position += 1
    return np.asarray(placed), missed


_WINDOW = 64
"""How far an event may be from its place in time order; more than the number of allocating threads."""


def _first_level(before: list[int], after: list[int]) -> int:
    """Bytes in use before the allocator's first event, which need not be the first by time."""
    ahead = range(min(len(before), _WINDOW))
    produced = {after[event] for event in ahead}
    return next((before[event] for event in ahead if before[event] not in produced), before[0])


def device_name(allocator: str) -> str:
    """``GPU_0_bfc`` to ``GPU:0``; an allocator that belongs to no device keeps its name."""
    match = re.fullmatch(r"(GPU|TPU)_(\d+)_bfc", allocator)
    if match:
        return f"{match[1]}:{match[2]}"
    return "CPU:0" if allocator == "bfc_cpu_allocator_for_gpu" else allocator or "unknown"
