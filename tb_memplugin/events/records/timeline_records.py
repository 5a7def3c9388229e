"""Frames of timelines."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tb_memplugin.errors import FormatError
from tb_memplugin.events.frames.codec import Frame
from tb_memplugin.events.records import fields
from tb_memplugin.events.records.snapshot_records import owner_columns, read_owners
from tb_memplugin.model import BAND_NAMES, MODES, PHASES, Band, CompiledSpan, Integers, TensorShape, Timeline
from tb_memplugin.model.basics import fields_of
from tb_memplugin.model.timeline import live_sums

MAX_MOMENTS = 100_000
"""Most moments, and most allocations, of a timeline; a larger one is neither written nor read."""
MAX_BANDS = 10_000
MAX_DIMENSIONS = 254
"""Most dimensions of a tensor, as in TensorFlow."""
MAX_ALL_DIMENSIONS = 1_000_000
"""Most dimensions of all shapes of a timeline together."""
MAX_TOTAL_BYTES = 2.0**62
"""Most bytes of all allocations of a timeline together: their sums stay within 64 bits."""

_COLUMNS = ("start", "end", "bytes", "rounding_bytes", "count", "owner", "op", "address", "shape", "line")


def timeline_frame(timeline: Timeline, sequence: int) -> Frame:
    """Frame of one timeline."""
    if max(len(timeline), len(timeline.time_ns)) > MAX_MOMENTS:
        raise FormatError(f"timeline of {len(timeline)} allocations is over the limit of {MAX_MOMENTS}")
    attributes = {
        "step": timeline.step,
        "phase": timeline.phase,
        "device": timeline.device,
        "wall_time": timeline.wall_time,
        "mode": timeline.mode,
        "in_use_bytes": timeline.in_use_bytes,
        "peak": timeline.peak,
        "events": timeline.events,
        "duration_ns": timeline.duration_ns,
        "not_available": list(timeline.not_available),
    }
    tables = {
        "moments": {"time_ns": timeline.time_ns, "event": timeline.event},
        "allocations": fields_of(timeline, *_COLUMNS),
        "owners": owner_columns(timeline.owners),
        "ops": {"name": list(timeline.ops)},
        "lines": {"name": list(timeline.lines)},
        **_shape_tables(timeline.shapes),
        "bands": {
            "name": [band.name for band in timeline.bands],
            "start": np.asarray([band.start for band in timeline.bands], np.int64),
            "end": np.asarray([band.end for band in timeline.bands], np.int64),
        },
        "compiled": {
            "start": np.asarray([span.start for span in timeline.compiled], np.int64),
            "end": np.asarray([span.end for span in timeline.compiled], np.int64),
        },
    }
    return fields.make_frame("timelines", sequence, [timeline.step], attributes, tables)


def read_timeline(frame: Frame) -> Timeline:
    """Read the timeline of a frame of stream ``timelines``.

    Its allocations sum to `in_use_bytes` at the peak, and to no more at any other moment.
    """
    attributes = frame.attributes
    phase, mode, notes = attributes.get("phase"), attributes.get("mode"), attributes.get("not_available")
    if phase not in PHASES or mode not in MODES or not isinstance(notes, list):
        raise FormatError(f"timeline with unknown phase {phase!r:.20} or mode {mode!r:.20}")
    time_ns, event = _read_moments(fields.table_of(frame, "moments"))
    owners = read_owners(fields.table_of(frame, "owners"))
    ops = _texts(fields.table_of(frame, "ops"), "name")
    shapes, lines = _read_shapes(frame), _texts(fields.table_of(frame, "lines"), "name")
    columns = _read_allocations(fields.table_of(frame, "allocations"), len(time_ns))
    for name, values in (("op", ops), ("shape", shapes), ("line", lines)):
        fields.check_range(name, columns[name], -1, len(values) - 1)
    fields.check_range("owner", columns["owner"], 0, len(owners) - 1)
    peak, in_use = fields.size(attributes, "peak"), fields.size(attributes, "in_use_bytes")
    _check_levels(columns, len(time_ns), peak, in_use)
    bands, compiled = fields.table_of(frame, "bands"), fields.table_of(frame, "compiled")
    names = _texts(bands, "name")
    if not set(names) <= set(BAND_NAMES):
        raise FormatError(f"timeline has an unknown band; expected one of {BAND_NAMES}")
    return Timeline(
        step=fields.size(attributes, "step"),
        phase=phase,
        device=fields.device(attributes.get("device")),
        wall_time=fields.number(attributes, "wall_time"),
        mode=mode,
        in_use_bytes=in_use,
        peak=peak,
        events=fields.size(attributes, "events"),
        duration_ns=fields.size(attributes, "duration_ns"),
        time_ns=time_ns,
        event=event,
        owners=owners,
        ops=ops,
        shapes=shapes,
        lines=lines,
        bands=tuple(
            Band(name, start, end)  # type: ignore[arg-type]  # checked above
            for name, (start, end) in zip(names, _read_spans(bands, len(time_ns)), strict=True)
        ),
        compiled=tuple(CompiledSpan(start, end) for start, end in _read_spans(compiled, len(time_ns))),
        not_available=tuple(fields.text(note) for note in notes),
        **columns,
    )


def _read_moments(table: Mapping[str, Any]) -> tuple[Integers, Integers]:
    time_ns, event = fields.integers(table, "time_ns"), fields.integers(table, "event")
    if not 0 < len(time_ns) <= MAX_MOMENTS:
        raise FormatError(f"timeline of {len(time_ns)} moments; 1 to {MAX_MOMENTS} are accepted")
    for name, column in (("time_ns", time_ns), ("event", event)):
        fields.check_range(name, column, 0, fields.MAX_BYTES)
        if (np.diff(column) < 0).any():
            raise FormatError(f"column {name!r} of a timeline decreases")
    return time_ns, event


def _read_allocations(table: Mapping[str, Any], moments: int) -> dict[str, Integers]:
    columns = {name: fields.integers(table, name) for name in _COLUMNS}
    if len(columns["start"]) > MAX_MOMENTS:
        raise FormatError(f"timeline of {len(columns['start'])} allocations is over the limit of {MAX_MOMENTS}")
    fields.check_range("start", columns["start"], 0, moments - 1)
    fields.check_range("end", columns["end"], 1, moments)
    if (columns["end"] <= columns["start"]).any():
        raise FormatError("an allocation of a timeline ends before it starts")
    fields.known_bytes(table, "bytes")
    fields.byte_column(table, "rounding_bytes")
    fields.check_range("count", columns["count"], 0, fields.MAX_BYTES)
    fields.check_range("address", columns["address"], -1, fields.MAX_BYTES)
    return columns


def _shape_tables(shapes: Sequence[TensorShape]) -> dict[str, dict[str, Any]]:
    """Dtype and number of dimensions of each shape, and the dimensions of all."""
    return {
        "shapes": {
            "dtype": [one.dtype for one in shapes],
            "dimensions": np.asarray([len(one.shape) for one in shapes], np.int64),
        },
        "dimensions": {"size": np.asarray([size for one in shapes for size in one.shape], np.int64)},
    }


def _read_shapes(frame: Frame) -> tuple[TensorShape, ...]:
    table = fields.table_of(frame, "shapes")
    dtypes, counts = _texts(table, "dtype"), fields.integers(table, "dimensions")
    sizes = fields.integers(fields.table_of(frame, "dimensions"), "size")
    fields.check_range("dimensions", counts, 0, MAX_DIMENSIONS)
    fields.check_range("size", sizes, 0, fields.MAX_BYTES)
    needed = int(counts.sum())
    if len(sizes) > MAX_ALL_DIMENSIONS or len(sizes) != needed:
        raise FormatError(
            f"shapes of a timeline need {needed} dimensions (at most {MAX_ALL_DIMENSIONS}), but it has {len(sizes)}"
        )
    ends = np.cumsum(counts).tolist()
    every = sizes.tolist()
    parts = zip(dtypes, counts.tolist(), ends, strict=True)
    return tuple(TensorShape(tuple(every[end - count : end]), dtype) for dtype, count, end in parts)


def _check_levels(columns: Mapping[str, Integers], moments: int, peak: int, in_use: int) -> None:
    if peak >= moments:
        raise FormatError(f"timeline's peak is moment {peak}, but it has {moments} moments")
    if float(columns["bytes"].astype(np.float64).sum()) > MAX_TOTAL_BYTES:
        raise FormatError(f"allocations of a timeline sum to over {MAX_TOTAL_BYTES:.0f} bytes")
    levels = live_sums(columns["start"], columns["end"], columns["bytes"], moments)
    if int(levels[peak]) != in_use or int(levels.max()) > in_use:
        raise FormatError(
            f"timeline's allocations sum to {int(levels[peak])} bytes at its peak and to {int(levels.max())} at most, "
            f"not to its {in_use} bytes in use"
        )


def _read_spans(table: Mapping[str, Any], moments: int) -> list[tuple[int, int]]:
    start, end = fields.integers(table, "start"), fields.integers(table, "end")
    if len(start) > MAX_BANDS:
        raise FormatError(f"timeline of {len(start)} spans is over the limit of {MAX_BANDS}")
    fields.check_range("start", start, 0, moments - 1)
    fields.check_range("end", end, 1, moments)
    if (end <= start).any():
        raise FormatError("a span of a timeline ends before it starts")
    return list(zip(start.tolist(), end.tolist(), strict=True))


def _texts(table: Mapping[str, Any], name: str) -> tuple[str, ...]:
    column = fields.strings(table, name)
    if len(column) > MAX_MOMENTS:
        raise FormatError(f"column {name!r} of {len(column)} texts is over the limit of {MAX_MOMENTS}")
    texts = tuple(text for text in column if text is not None)
    if len(texts) != len(column):
        raise FormatError(f"column {name!r} lacks a text")
    return texts
