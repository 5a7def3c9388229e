"""Reads allocator events and op executions from TensorFlow profiles (XSpace, ``*.xplane.pb``),
without TensorFlow."""

import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from tb_memplugin.errors import FormatError
from tb_memplugin.importers import wire
from tb_memplugin.importers.hlo import read_module
from tb_memplugin.schema import (
    LAYER_PREFIX,
    AllocationTrace,
    Floats,
    Integers,
    Intervals,
    Module,
    distinct,
    rows_of,
)

MAX_PROFILE_BYTES = 1 << 31
"""Largest supported profile: the limit of a protobuf message."""
MAX_EVENTS = 20_000_000
_MAX_TYPE = 256
"""Fewest characters of a display name that is no op type."""
_NO_OP = b"(null)"
"""Op name in TensorFlow 2.16 and 2.18 for allocations that no op requested, e.g. those of XLA."""
_MEMORY = {b"MemoryAllocation": 1, b"MemoryDeallocation": -1}
_LAUNCH = b"ExecutorState::ProcessAsync::Start"
"""Event of an asynchronous op, such as one whose inside XLA compiled; its statistic ``name`` is the
op's."""
_PREFIXES = {"calls": b"EagerLocalExecute: ", "layers": LAYER_PREFIX.encode()}
_FIELDS = (
    *("time_ps", "kind", "thread", "address", "allocated", "requested", "in_use", "available"),
    *("dtype", "op", "region", "shape", "allocator"),
)
"""The columns of memory events, those of `AllocationTrace` and the allocator's name; the last four
are texts."""
_STATISTICS = (
    *(b"addr", b"allocation_bytes", b"requested_bytes", b"bytes_allocated", b"bytes_available"),
    *(b"data_type", b"tf_op", b"region_type", b"shape", b"allocator_name"),
)
"""The statistics of a memory event in the order of its columns behind time, kind and thread."""
_FRAGMENTATION = -1
_COLUMNS = {b"fragmentation": _FRAGMENTATION} | {
    name: column for column, name in enumerate(_STATISTICS, start=3)
}
_TEXTS, _ALLOCATOR = _FIELDS.index("op"), _FIELDS.index("allocator")
_COLUMNS[b"name"] = _TEXTS  # of a launch
_SPANS = {"ops": 2, "calls": 3, "layers": 4, "launches": 5}
# Tags of the fields of XSpace, XPlane, XLine, metadata entries, XEvent and XStat.
_SPACE_PLANES = 8 * 1 + wire.LENGTH
_PLANE_NAME, _PLANE_LINES, _PLANE_EVENT_NAMES, _PLANE_STAT_NAMES = (
    8 * field + wire.LENGTH for field in (2, 3, 4, 5)
)
_LINE_NAME, _LINE_EVENTS, _LINE_DISPLAY_NAME = (8 * field + wire.LENGTH for field in (2, 4, 11))
_LINE_TIME = 8 * 3
_ENTRY_KEY, _ENTRY_VALUE = 8 * 1, 8 * 2 + wire.LENGTH
_NAME, _DISPLAY_NAME, _METADATA_STATS = (8 * field + wire.LENGTH for field in (2, 4, 5))
_EVENT_METADATA, _EVENT_OFFSET, _EVENT_DURATION = 8 * 1, 8 * 2, 8 * 3
_EVENT_STATS = 8 * 4 + wire.LENGTH
_STAT_METADATA, _STAT_UNSIGNED, _STAT_SIGNED, _STAT_REFERENCE = 8 * 1, 8 * 3, 8 * 4, 8 * 7
_STAT_REAL, _STAT_TEXT, _STAT_BYTES = 8 * 2 + wire.FIXED64, 8 * 5 + wire.LENGTH, 8 * 6 + wire.LENGTH


def read_traces(data: bytes) -> tuple[AllocationTrace, ...]:
    """One trace for each allocator with memory events in the profile: devices first, then by name.
    Other or damaged bytes and the events of several hosts are a `FormatError`."""
    planes = _planes(data)
    readers = [
        _PlaneReader(data, fields)
        for name, fields in planes
        if name.startswith(b"/host:") and (fields.tag == _PLANE_LINES).any()
    ]
    with_memory = [reader for reader in readers if reader.has_memory]
    if len(with_memory) > 1:
        raise FormatError(
            f"the profile has memory events of {len(with_memory)} hosts, which cannot be told "
            "apart: import each host's profile separately"
        )
    modules = tuple(
        module
        for name, fields in planes
        if name == b"/host:metadata"
        for module in _modules(data, fields)
    )
    traces = [trace for reader in with_memory for trace in reader.traces(modules)]
    return tuple(sorted(traces, key=lambda trace: (":" not in trace.device, trace.device)))


def _planes(data: bytes) -> list[tuple[bytes, wire.Fields]]:
    if len(data) > MAX_PROFILE_BYTES:
        raise FormatError(
            f"the profile has {len(data)} bytes; at most {MAX_PROFILE_BYTES} are supported"
        )
    if not data:
        raise FormatError("the profile is empty (0 bytes)")
    planes = [
        (_text(data, fields, _PLANE_NAME), fields)
        for fields in _split_all(data, wire.split(data, 0, len(data)).of(_SPACE_PLANES))
    ]
    if not any(name.startswith(b"/") for name, _ in planes):
        raise FormatError(
            f"not a TensorFlow profile (XSpace): its {len(data)} bytes contain no host or device"
        )
    return planes


def _split_all(data: bytes, messages: wire.Fields) -> list[wire.Fields]:
    return [wire.split(data, at, at + size) for at, size in rows_of(messages.at, messages.value)]


def _text(data: bytes, fields: wire.Fields, tag: int) -> bytes:
    return ([b"", *wire.texts(fields.of(tag).inner(data))])[-1]


def _modules(data: bytes, plane: wire.Fields) -> Iterator[Module]:
    messages = plane.of(_PLANE_EVENT_NAMES).inner(data)
    for tag in (_ENTRY_VALUE, _METADATA_STATS, _STAT_BYTES):
        messages = wire.select(messages, tag)[0].inner(data)
    for proto in wire.texts(messages):
        module = read_module(proto)
        if module is not None:
            yield module


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "replace")


class _Names:
    """Names of a plane's events or statistics, in the order of their keys; `typed` marks those like
    ``name:Type``."""

    def __init__(self, messages: wire.Messages) -> None:
        data, count = messages.data, len(messages.start)
        keys, values = wire.select(messages, _ENTRY_KEY, _ENTRY_VALUE)
        columns = np.zeros((5, count), np.int64)
        columns[0] = keys.column(count)
        for row, found in zip(
            (1, 3), wire.select(values.inner(data), _NAME, _DISPLAY_NAME), strict=True
        ):
            columns[row : row + 2, values.message[found.message]] = found.at, found.value
        columns = columns[:, np.argsort(columns[0], kind="stable")]
        last = np.ones(count, bool)
        last[:-1] = columns[0][1:] != columns[0][:-1]
        self._keys, at, size, display, shown = columns[:, last]
        self.texts = wire.texts(wire.Messages(data, at, at + size))
        suffix = at + size - shown
        self.typed = (shown > 0) & (shown < np.minimum(size, _MAX_TYPE))
        self.typed &= np.frombuffer(data, np.uint8).take(suffix - 1, mode="clip") == ord(":")
        self.typed &= wire.equal(data, suffix, display, np.where(self.typed, shown, 0))

    def find(self, keys: Integers) -> Integers:
        known = self._keys
        if not len(known):
            return np.full(len(keys), -1)
        consecutive = int(known[-1]) - int(known[0]) == len(known) - 1  # as TensorFlow numbers them
        place = keys - known[0] if consecutive else np.searchsorted(known, keys)
        place = np.clip(place, 0, len(known) - 1)
        found: Integers = np.where(known[place] == keys, place, -1)
        return found


class _PlaneReader:
    def __init__(self, data: bytes, plane: wire.Fields) -> None:
        self._data, self._plane = data, plane
        self._names, self._stat_names = (
            _Names(plane.of(tag).inner(data)) for tag in (_PLANE_EVENT_NAMES, _PLANE_STAT_NAMES)
        )
        self._strings = dict.fromkeys((b"", _NO_OP), -1)  # text to its index
        self.has_memory = not _MEMORY.keys().isdisjoint(self._names.texts)

    def traces(self, modules: tuple[Module, ...]) -> list[AllocationTrace]:
        data = self._data
        lines = _split_all(data, self._plane.of(_PLANE_LINES))
        parts = [fields.of(_LINE_EVENTS) for fields in lines]
        if sum(len(part.tag) for part in parts) > MAX_EVENTS:
            raise FormatError(f"the profile has more than the supported {MAX_EVENTS} events")
        line = np.repeat(np.arange(len(parts)), [len(part.tag) for part in parts])
        events = wire.Fields(*map(np.concatenate, zip(*parts, strict=True))).inner(data)
        kinds, names = self._kinds()
        # Most events are of no use here, as their metadata says, which TensorFlow writes first.
        first = wire.heads(events)
        used = first.message[
            (kinds[self._names.find(first.value)] != 0) | (first.tag != _EVENT_METADATA)
        ]
        messages = wire.Messages(data, events.start[used], events.end[used])
        *numbers, stats = wire.select(
            messages, _EVENT_METADATA, _EVENT_OFFSET, _EVENT_DURATION, _EVENT_STATS
        )
        metadata, offset, duration = (found.column(len(used)) for found in numbers)
        metadata = self._names.find(metadata)
        kind, name, thread = kinds[metadata], names[metadata], line[used]
        line_ns = np.asarray([fields.of(_LINE_TIME).value[-1:].sum() for fields in lines], np.int64)
        begin = 1000 * line_ns[thread] + offset
        columns = np.stack([thread, begin, begin + duration, name])
        memory = np.flatnonzero((np.abs(kind) == 1) | (kind == _SPANS["launches"]))
        rows = np.full((len(_FIELDS), len(memory)), -1, np.int64)
        rows[:3] = begin[memory], kind[memory], thread[memory]
        fragmentation = np.full(len(memory), math.nan)
        row = np.full(len(used), -1)
        row[memory] = np.arange(len(memory))
        stats = stats.rows(np.flatnonzero(row[stats.message] >= 0))
        self._statistics(stats.inner(data), row[stats.message], rows, fragmentation)
        launches = rows[1] == _SPANS["launches"]
        columns[3, memory[launches]] = rows[_TEXTS, launches]
        spans = {span: _intervals(columns[:, kind == code]) for span, code in _SPANS.items()}
        memory, rows, fragmentation = (
            memory[~launches],
            rows[:, ~launches],
            fragmentation[~launches],
        )
        bad = int((rows[3:8] < 0).any(axis=0).sum())
        if bad:
            raise FormatError(
                f"{bad} of the profile's {len(memory)} memory events lack their address, size or "
                "bytes in use"
            )
        strings = tuple(_decoded(text) for text in list(self._strings)[2:])
        threads = tuple(
            _decoded(_text(data, fields, _LINE_NAME) or _text(data, fields, _LINE_DISPLAY_NAME))
            for fields in lines
        )
        traces = []
        for allocator in distinct(rows[_ALLOCATOR]).tolist():
            own = np.flatnonzero(rows[_ALLOCATOR] == allocator)
            own = own[np.argsort(rows[0, own], kind="stable")]
            by_allocator, missed = in_allocator_order(rows[1, own] * rows[4, own], rows[6, own])
            own = own[by_allocator]
            label = strings[allocator] if allocator >= 0 else ""
            fields: dict[str, Any] = dict(zip(_FIELDS, rows[:, own], strict=True))
            before_first = fields["in_use"][0] - fields["kind"][0] * fields["allocated"][0]
            trace = AllocationTrace(
                **{**fields, **spans, "allocator": label},
                device=device_name(label),
                fragmentation=fragmentation[own],
                strings=strings,
                threads=threads,
                start_in_use=int(before_first),
                missed=missed,
                modules=modules,
            )
            traces.append(trace)
        return traces

    def _interned(self, texts: Iterable[bytes]) -> list[int]:
        index = self._strings
        return [index.setdefault(text, len(index) - 2) for text in texts]

    def _kinds(self) -> tuple[Integers, Integers]:
        """(kind, name) by each metadata entry: 1 or -1 for memory events, a code of `_SPANS` for
        spans, else 0. The last row is that of unknown entries."""
        texts = [*self._names.texts, b""]
        kind = np.append(np.where(self._names.typed, _SPANS["ops"], 0), 0)
        for row in np.flatnonzero(kind == 0).tolist():
            kind[row] = _MEMORY.get(texts[row], _SPANS["launches"] * (texts[row] == _LAUNCH))
            for span, prefix in _PREFIXES.items():
                if texts[row].startswith(prefix):
                    kind[row], texts[row] = _SPANS[span], texts[row][len(prefix) :]
        name = np.full(len(texts), -1)
        spans = np.flatnonzero(kind > 1)
        name[spans] = self._interned(texts[row] for row in spans.tolist())
        return kind, name

    def _statistics(
        self, stats: wire.Messages, row: Integers, columns: Integers, fragmentation: Floats
    ) -> None:
        key, tag, value, at = np.zeros((4, len(row)), np.int64)
        for field in wire.fields(stats):
            named = field.of(_STAT_METADATA)
            key[named.message] = named.value
            other = field.rows(np.flatnonzero(field.tag != _STAT_METADATA))
            for column, found in ((tag, other.tag), (value, other.value), (at, other.at)):
                column[other.message] = found
        places = np.asarray([*(_COLUMNS.get(name, 0) for name in self._stat_names.texts), 0])
        place = places[self._stat_names.find(key)]
        number = np.where((tag == _STAT_UNSIGNED) | (tag == _STAT_SIGNED), value, 0)
        is_text = place >= _TEXTS
        number[is_text] = -1
        references = np.flatnonzero(is_text & (tag == _STAT_REFERENCE))
        name = self._stat_names.find(value[references])
        texts = [*self._stat_names.texts, b""]
        index, used = np.full(len(texts), -1), distinct(name)
        index[used] = self._interned(texts[row] for row in used.tolist())
        number[references] = index[name]
        written = np.flatnonzero(is_text & (tag == _STAT_TEXT))
        number[written] = self._interned(
            wire.texts(wire.Messages(stats.data, at[written], (at + value)[written]))
        )
        known = np.flatnonzero(place > 0)
        columns[place[known], row[known]] = number[known]
        real = np.flatnonzero((place == _FRAGMENTATION) & (tag == _STAT_REAL))
        octets = np.frombuffer(stats.data, np.uint8)[at[real][:, None] + np.arange(8)]
        fragmentation[row[real]] = octets.view("<f8").reshape(-1)


def _intervals(columns: Integers) -> Intervals:
    order = np.lexsort(columns[::-1])
    return Intervals(*(np.ascontiguousarray(column[order]) for column in columns))


def in_allocator_order(change: Any, in_use: Any) -> tuple[Any, int]:
    """The allocator's own order of the events, and the number of places where bytes in use still do
    not match.

    `change` has the signed bytes of each event, sorted by time, `in_use` the bytes in use after it.
    Threads take time stamps outside the allocator's lock. Event B follows A if ``in_use(A) +
    change(B) == in_use(B)``."""
    if not (in_use[:-1] + change[1:] != in_use[1:]).any():
        return np.arange(len(change)), 0
    before, after = (in_use - change).tolist(), in_use.tolist()
    order = list(range(len(change)))
    missed = 0
    level = before[0] if before[0] not in set(after[1:_WINDOW]) else _first_level(before, after)
    for place in range(len(order)):
        ahead = enumerate(order[place : place + _WINDOW])
        following = next((index for index, event in ahead if before[event] == level), None)
        missed += following is None
        order.insert(place, order.pop(place + (following or 0)))
        level = after[order[place]]
    return np.asarray(order), missed


_WINDOW = 64
"""How far an event may be from its place in time order; more than the number of allocating
threads."""


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
