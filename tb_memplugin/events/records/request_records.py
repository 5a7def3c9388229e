"""Frames of the requests of traced steps."""

from typing import Any

import numpy as np

from tb_memplugin.errors import FormatError
from tb_memplugin.events.frames.codec import Frame
from tb_memplugin.events.records import fields
from tb_memplugin.events.records.memory_map_records import MAX_REGIONS, addresses
from tb_memplugin.events.records.snapshot_records import owner_columns, read_owners
from tb_memplugin.model import MODES, SQUARE_POWER, Integers, StepRequests
from tb_memplugin.model.basics import fields_of

MAX_REQUESTS = 200_000
"""Most chunks of a step; one with more is neither written nor read."""
MAX_POWER = 2
MAX_TOTAL_BYTES = 2.0**62
"""Most bytes of all chunks of a step together: their sums stay within 64 bits."""
_COLUMNS = ("address", "allocated", "requested", "birth", "death", "batch_power", "owner", "op")


def requests_frame(requests: StepRequests, sequence: int) -> Frame:
    """Frame of the requests of one step."""
    if len(requests) > MAX_REQUESTS:
        raise FormatError(f"step of {len(requests)} chunks is over the limit of {MAX_REQUESTS}")
    attributes = fields_of(
        requests, "phase", "device", "wall_time", "mode", "first", "batch_size", "capacity_bytes", "events"
    )
    tables = {
        "chunks": fields_of(requests, *_COLUMNS),
        "owners": owner_columns(requests.owners),
        "ops": {"name": list(requests.ops)},
        "regions": {"address": requests.region_address, "bytes": requests.region_bytes},
        "added_regions": {"address": requests.added_address, "bytes": requests.added_bytes},
    }
    if requests.unrepeatable:
        tables["unrepeatable"] = {"layer": list(requests.unrepeatable)}
    return fields.make_frame("requests", sequence, [requests.step], attributes, tables)


def read_requests(frame: Frame) -> StepRequests:
    """Read the requests of a frame of stream ``requests``.

    Every event allocates or frees exactly one chunk, and no two chunks of the step's start overlap.
    """
    attributes = frame.attributes
    phase, mode, first = attributes.get("phase"), attributes.get("mode"), attributes.get("first")
    if phase is None or mode not in MODES or not isinstance(first, bool):
        raise FormatError(f"requests with unknown phase {phase!r:.20} or mode {mode!r:.20}")
    table = fields.table_of(frame, "chunks")
    columns = {name: fields.integers(table, name) for name in _COLUMNS}
    if len(columns["address"]) > MAX_REQUESTS:
        raise FormatError(f"step of {len(columns['address'])} chunks is over the limit of {MAX_REQUESTS}")
    owners = read_owners(fields.table_of(frame, "owners"))
    ops = _texts(fields.strings(fields.table_of(frame, "ops"), "name"))
    unrepeatable = _texts(fields.strings(frame.tables.get("unrepeatable", {"layer": ()}), "layer"))
    events = fields.size(attributes, "events")
    addresses(table, "address")
    fields.known_bytes(table, "allocated")
    fields.known_bytes(table, "requested")
    fields.check_range("batch_power", columns["batch_power"], SQUARE_POWER, MAX_POWER)
    fields.check_range("owner", columns["owner"], 0, len(owners) - 1)
    fields.check_range("op", columns["op"], -1, len(ops) - 1)
    _check_events(columns, events)
    regions, added = fields.table_of(frame, "regions"), fields.table_of(frame, "added_regions")
    for one in (regions, added):
        fields.known_bytes(one, "bytes")
        if len(addresses(one, "address")) > MAX_REGIONS:
            raise FormatError(f"step with over {MAX_REGIONS} regions")
    return StepRequests(
        step=frame.first_step,
        phase=fields.optional_phase(phase),
        device=fields.device(attributes.get("device")),
        wall_time=fields.number(attributes, "wall_time"),
        mode=mode,
        first=first,
        batch_size=fields.optional_size(attributes, "batch_size"),
        capacity_bytes=fields.optional_size(attributes, "capacity_bytes"),
        events=events,
        owners=owners,
        ops=ops,
        region_address=fields.integers(regions, "address"),
        region_bytes=fields.integers(regions, "bytes"),
        added_address=fields.integers(added, "address"),
        added_bytes=fields.integers(added, "bytes"),
        unrepeatable=unrepeatable,
        **columns,
    )


def _check_events(columns: dict[str, Integers], events: int) -> None:
    """Every event is the birth or the death of one chunk, and a chunk dies after its birth."""
    birth, death = columns["birth"], columns["death"]
    if float(columns["allocated"].astype(np.float64).sum()) > MAX_TOTAL_BYTES:
        raise FormatError(f"chunks of a step sum to over {MAX_TOTAL_BYTES:.0f} bytes")
    if (columns["requested"] > columns["allocated"]).any():
        raise FormatError("a chunk of a step has more requested than allocated bytes")
    fields.check_range("birth", birth, -1, events - 1)
    fields.check_range("death", death, 0, events)
    if (death <= birth).any():
        raise FormatError("a chunk of a step is freed before it is allocated")
    of_events = np.concatenate([birth[birth >= 0], death[death < events]])
    if len(of_events) != events or len(np.unique(of_events)) != events:
        raise FormatError(f"{len(of_events)} allocations and deallocations do not match a step of {events} events")
    old = np.flatnonzero(birth < 0)
    old = old[np.argsort(columns["address"][old], kind="stable")]
    ends = columns["address"][old] + columns["allocated"][old]
    if (columns["address"][old][1:] < ends[:-1]).any():
        raise FormatError("chunks at the start of a step overlap")


def _texts(column: tuple[Any, ...]) -> tuple[str, ...]:
    if len(column) > MAX_REQUESTS or None in column:
        raise FormatError(f"a step has at most {MAX_REQUESTS} names of ops and of layers. Received: {len(column)}")
    return column
