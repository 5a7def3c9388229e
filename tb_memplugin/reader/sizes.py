"""What decoded records take in memory, and what a frame would take as objects. Estimates, above rather than below."""

from collections.abc import Iterable, Mapping

from tb_memplugin.events.codec import Frame
from tb_memplugin.model import (
    HOST_COLUMNS,
    Counters,
    HostSamples,
    LayerTable,
    LedgerRow,
    MemoryMap,
    Oom,
    Run,
    SessionInfo,
    Snapshot,
    StepRequests,
    Timeline,
)
from tb_memplugin.reader.activation_rows import rows_of
from tb_memplugin.reader.device_columns import samples_bytes

ROW_BYTES = 400
"""One ledger row, owner or layer."""
_TEXT_BYTES = 150
"""The name of an op, and its place in a list."""
_STRING_BYTES = 60
"""A string without its characters."""
_NUMBER_BYTES = 40
_COUNTER_BYTES = 60
"""One row of counters without its texts: numbers in columns, and places in tuples."""

_OBJECTS: Mapping[str, Mapping[str, int]] = {
    "meta": {"layers": ROW_BYTES, "dimensions": _NUMBER_BYTES},
    "snapshots": {
        "ledger": ROW_BYTES,
        "held_for_backward": ROW_BYTES,
        "held_tensors": ROW_BYTES,
        "held_tensor_shapes": _NUMBER_BYTES,
    },
    "oom": {"ledger": ROW_BYTES, "fixes": ROW_BYTES, "owners": ROW_BYTES},
    "maps": {"owners": ROW_BYTES},
    "timelines": {"owners": ROW_BYTES, "shapes": ROW_BYTES, "dimensions": _NUMBER_BYTES},
    "requests": {"owners": ROW_BYTES},
    "counters": {"counters": _COUNTER_BYTES},
}
"""Stream to its tables whose rows become objects, and the bytes of one."""


def objects_bytes(stream: str, frame: Frame) -> int:
    """Bytes of the objects that reading a frame makes."""
    return sum(
        size * len(next(iter(frame.tables[table].values()), ()))
        for table, size in _OBJECTS.get(stream, {}).items()
        if table in frame.tables
    )


def meta_bytes(value: SessionInfo | LayerTable) -> int:
    """Session facts or a layer table."""
    if isinstance(value, SessionInfo):
        return ROW_BYTES + _texts(value.notes) + _texts(value.versions) + _texts(value.versions.values())
    dimensions = sum(len(layer.output_shape or ()) for layer in value.layers)
    return ROW_BYTES * (1 + len(value.layers)) + _NUMBER_BYTES * dimensions + _names(value.layers, "path")


def snapshot_bytes(snapshot: Snapshot) -> int:
    """A snapshot."""
    held = snapshot.held_tensors
    rows = 1 + len(snapshot.ledger) + len(snapshot.saved_for_backward) + len(held)
    return ROW_BYTES * rows + _ledger_names(snapshot.ledger) + _names(held, "held_by") + _texts(snapshot.not_available)


def map_bytes(memory_map: MemoryMap | None) -> int:
    """A memory map."""
    if memory_map is None:
        return 0
    columns = 8 * (8 * len(memory_map) + 2 * len(memory_map.region_bytes))
    owners = ROW_BYTES * (1 + len(memory_map.owners)) + _names(memory_map.owners, "layer")
    return columns + owners + _texts(memory_map.not_available)


def oom_bytes(oom: Oom) -> int:
    """A failed allocation."""
    fixes = sum(ROW_BYTES + len(fix.sentence) for fix in oom.fixes)
    rows = ROW_BYTES * (1 + len(oom.ledger)) + _ledger_names(oom.ledger)
    return rows + fixes + map_bytes(oom.map) + _texts(oom.not_available)


def timeline_bytes(timeline: Timeline) -> int:
    """A timeline. A shape counts as two texts: a tuple and the name of a dtype."""
    columns = 8 * (10 * len(timeline) + 2 * len(timeline.time_ns))
    texts = len(timeline.ops) + len(timeline.lines) + 2 * len(timeline.shapes)
    owners = ROW_BYTES * (1 + len(timeline.owners)) + _names(timeline.owners, "layer")
    return columns + owners + _TEXT_BYTES * texts + _texts(timeline.not_available)


def requests_bytes(requests: StepRequests) -> int:
    """A step's requests."""
    columns = 8 * (8 * len(requests) + 2 * len(requests.region_bytes) + 2 * len(requests.added_bytes))
    owners = ROW_BYTES * (1 + len(requests.owners)) + _names(requests.owners, "layer")
    return columns + owners + _TEXT_BYTES * len(requests.ops)


def counters_bytes(counters: Counters) -> int:
    """Counters."""
    texts = {*counters.name, *counters.detail}
    return ROW_BYTES + _COUNTER_BYTES * len(counters) + _texts(text for text in texts if text)


def host_bytes(host: HostSamples) -> int:
    """Parts of host memory."""
    return ROW_BYTES + 8 * len(HOST_COLUMNS) * len(host)


def _ledger_names(ledger: Iterable[LedgerRow]) -> int:
    return _names(ledger, "layer")


def _names(rows: Iterable[object], field: str) -> int:
    """Characters of the different names among the rows."""
    return sum(len(name) for name in {getattr(row, field) for row in rows} if name)


def _texts(texts: Iterable[str]) -> int:
    return sum(_STRING_BYTES + len(text) for text in texts)


def run_bytes(run: Run) -> int:
    """Estimated size of a run."""
    return (
        1000
        + samples_bytes(run.samples)
        + rows_of(run.activations).nbytes
        + sum(map(meta_bytes, run.layer_tables))
        + sum(map(snapshot_bytes, run.snapshots))
        + sum(map(map_bytes, run.maps))
        + sum(map(oom_bytes, run.ooms))
        + sum(map(timeline_bytes, run.timelines))
        + sum(map(requests_bytes, run.requests))
        + sum(map(counters_bytes, run.counters))
        # Their samples are those of the run.
        + sum(host_bytes(memory.parts) for memory in run.host.values())
    )
