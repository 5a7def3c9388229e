"""Reads TensorFlow profiles (XSpace, ``*.xplane.pb``) without TensorFlow.

The allocators' events and the executions round them.
"""

import dataclasses
import math
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from tb_memplugin.errors import FormatError
from tb_memplugin.importers.descriptors import xspace_class
from tb_memplugin.importers.hlo import read_module
from tb_memplugin.trace import AllocationTrace, Intervals, Module

MAX_PROFILE_BYTES = 1 << 31
"""Largest profile that is read: the limit of a protobuf message."""
MAX_EVENTS = 20_000_000
"""Most events that are believed to be in one profile."""
LAYER_PREFIX = "tb_memplugin/layer:"
"""What `recorder.observe` puts before a layer's path in the names of its spans."""

_ALLOCATION, _DEALLOCATION = b"MemoryAllocation", b"MemoryDeallocation"
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
    b"fragmentation": 12,
    b"allocator_name": 13,
}
"""Statistics of a memory event, to their place in a row after time, kind and thread."""
_NOT_SAID = (-1, -1, -1, -1, -1, -1, -1, -1, -1, math.nan, -1)
_FIRST_TEXT, _FRAGMENTATION = 9, 12


def read_traces(data: bytes) -> tuple[AllocationTrace, ...]:
    """One trace for each allocator that has memory events in the profile, devices first, by name.

    Raises:
        FormatError: The bytes are no profile, or a damaged one.
    """
    space = _parse(data)
    hosts = [plane for plane in space.planes if plane.name.startswith(b"/host:") and plane.lines]
    with_memory = [plane for plane in hosts if _memory_events(plane)]
    if len(with_memory) > 1:
        raise FormatError(
            f"the profile holds the memory events of {len(with_memory)} hosts, whose clocks and allocators cannot be "
            "told apart: import each host's profile by itself"
        )
    traces = [trace for plane in with_memory for trace in _PlaneReader(plane).traces()]
    modules = _modules(space)
    traces = [dataclasses.replace(trace, modules=modules) for trace in traces]
    return tuple(sorted(traces, key=lambda trace: (":" not in trace.device, trace.device)))


def _parse(data: bytes) -> Any:
    if len(data) > MAX_PROFILE_BYTES:
        raise FormatError(f"the profile has {len(data)} bytes, more than the {MAX_PROFILE_BYTES} that are read")
    if not data:
        raise FormatError("the profile is empty: it has 0 bytes")
    space = xspace_class()()
    try:
        space.ParseFromString(data)
    except Exception as error:  # protobuf's DecodeError, whose module depends on the installed protobuf
        raise FormatError(
            f"not a TensorFlow profile (XSpace), or a truncated one: its {len(data)} bytes do not parse ({error})"
        ) from None
    if not any(plane.name.startswith(b"/") for plane in space.planes):
        raise FormatError(f"not a TensorFlow profile (XSpace): its {len(data)} bytes name no host or device")
    if sum(len(line.events) for plane in space.planes for line in plane.lines) > MAX_EVENTS:
        raise FormatError(f"the profile holds more than the {MAX_EVENTS} events that are read")
    return space


def _modules(space: Any) -> tuple[Module, ...]:
    """Plans of the compiled modules: statistics of the event metadata of the plane that has no events."""
    found: list[Module] = []
    for plane in space.planes:
        if plane.name == b"/host:metadata":
            protos = (stat.bytes_value for entry in plane.event_metadata for stat in entry.value.stats)
            found.extend(module for module in (read_module(proto) for proto in protos if proto) if module is not None)
    return tuple(found)


def _memory_events(plane: Any) -> bool:
    return any(entry.value.name in (_ALLOCATION, _DEALLOCATION) for entry in plane.event_metadata)


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "replace")


class _Strings:
    """Interned strings: text to its index."""

    def __init__(self) -> None:
        self._index: dict[bytes, int] = {}

    def add(self, text: bytes) -> int:
        if not text:
            return -1
        return self._index.setdefault(text, len(self._index))

    def all(self) -> tuple[str, ...]:
        return tuple(_decoded(text) for text in self._index)


class _PlaneReader:
    """Builds the columns of one host plane."""

    def __init__(self, plane: Any) -> None:
        self._strings = _Strings()
        self._stat_names = {entry.key: entry.value.name for entry in plane.stat_metadata}
        self._columns = {key: _COLUMNS[name] for key, name in self._stat_names.items() if name in _COLUMNS}
        self._references: dict[int, int] = {}
        self._events: list[list[Any]] = []
        self._spans: dict[str, list[tuple[int, int, int, int]]] = {"ops": [], "calls": [], "layers": []}
        self._threads: list[str] = []
        memory, spans = self._metadata(plane.event_metadata)
        for line in plane.lines:
            self._line(line, memory, spans)

    def _metadata(self, entries: Iterable[Any]) -> tuple[dict[int, int], dict[int, tuple[str, int]]]:
        """Event metadata that matter: id to 1 or -1 for memory events, id to (kind of span, name) for the others."""
        memory: dict[int, int] = {}
        spans: dict[int, tuple[str, int]] = {}
        layer_prefix = LAYER_PREFIX.encode()
        for entry in entries:
            name, display = entry.value.name, entry.value.display_name
            if name == _ALLOCATION:
                memory[entry.key] = 1
            elif name == _DEALLOCATION:
                memory[entry.key] = -1
            elif display and name.endswith(b":" + display):
                spans[entry.key] = ("ops", self._strings.add(name))
            elif name.startswith(_CALL):
                spans[entry.key] = ("calls", self._strings.add(name[len(_CALL) :]))
            elif name.startswith(layer_prefix):
                spans[entry.key] = ("layers", self._strings.add(name[len(layer_prefix) :]))
        return memory, spans

    def _line(self, line: Any, memory: dict[int, int], spans: dict[int, tuple[str, int]]) -> None:
        thread, start = len(self._threads), line.timestamp_ns * 1000
        self._threads.append(_decoded(line.name or line.display_name))
        columns, references, append = self._columns, self._references, self._events.append
        for event in line.events:
            key = event.metadata_id
            kind = memory.get(key)
            if kind is None:
                span = spans.get(key)
                if span is not None:
                    begin = start + event.offset_ps
                    self._spans[span[0]].append((thread, begin, begin + event.duration_ps, span[1]))
                continue
            row = [start + event.offset_ps, kind, thread, *_NOT_SAID]
            for stat in event.stats:
                column = columns.get(stat.metadata_id)
                if column is None:
                    continue
                if column < _FIRST_TEXT:
                    row[column] = stat.int64_value or stat.uint64_value
                elif column == _FRAGMENTATION:
                    row[column] = stat.double_value
                else:
                    reference = stat.ref_value
                    known = references.get(reference)
                    row[column] = self._text_index(stat) if known is None else known
            append(row)

    def _text_index(self, stat: Any) -> int:
        """Index of a text: in the stat itself, or the name of other stat metadata that it refers to."""
        reference = stat.ref_value
        if not reference:
            return self._strings.add(stat.str_value)
        found = self._references[reference] = self._strings.add(self._stat_names.get(reference, b""))
        return found

    def traces(self) -> list[AllocationTrace]:
        """The columns, one trace for each allocator."""
        if not self._events:
            return []
        strings = self._strings.all()
        numbers = np.asarray([event[:12] for event in self._events], dtype=np.int64)
        fragmentation = np.asarray([event[12] for event in self._events], dtype=np.float64)
        allocators = np.asarray([event[13] for event in self._events], dtype=np.int64)
        if (numbers[:, 3:8] < 0).any():
            bad = int((numbers[:, 3:8] < 0).any(axis=1).sum())
            raise FormatError(
                f"{bad} of the profile's {len(numbers)} memory events lack their address, size or bytes in use"
            )
        shared = {name: _intervals(spans) for name, spans in self._spans.items()}
        traces = []
        for allocator in np.unique(allocators):
            rows = allocators == allocator
            name = strings[allocator] if allocator >= 0 else ""
            traces.append(_trace(name, numbers[rows], fragmentation[rows], strings, tuple(self._threads), shared))
        return traces


def _intervals(spans: list[tuple[int, int, int, int]]) -> Intervals:
    columns = np.asarray(sorted(spans), dtype=np.int64).reshape(-1, 4)
    return Intervals(*(np.ascontiguousarray(columns[:, column]) for column in range(4)))


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
    """The order in which the allocator made the events, and the number of places where even this order does not close.

    Each event says how many bytes were in use after it, so event B follows A where ``in_use(A) + change(B) ==
    in_use(B)``. Threads take their time stamps outside the allocator's lock: neighbours may be swapped, and the chain
    of bytes in use tells how.

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
        found = next((index for index, event in enumerate(ahead) if before[event] == level), None)
        if found is None:
            missed += 1
            found = 0
        event = waiting.pop(position + found)
        waiting.insert(position, event)
        placed.append(event)
        level = after[event]
        position += 1
    return np.asarray(placed), missed


_WINDOW = 64
"""How far out of time order an event may be: more than the threads that allocate at once."""


def _first_level(before: list[int], after: list[int]) -> int:
    """Bytes in use before the first event, where the first by time need not be the first by order."""
    ahead = range(min(len(before), _WINDOW))
    produced = {after[event] for event in ahead}
    return next((before[event] for event in ahead if before[event] not in produced), before[0])


def device_name(allocator: str) -> str:
    """``GPU_0_bfc`` to ``GPU:0``; an allocator that belongs to no device keeps its name."""
    match = re.fullmatch(r"(GPU|TPU)_(\d+)_bfc", allocator)
    if match:
        return f"{match[1]}:{match[2]}"
    return "CPU:0" if allocator == "bfc_cpu_allocator_for_gpu" else allocator or "unknown"
