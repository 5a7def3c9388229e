"""Frames of roll-ups."""

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np

from tb_memplugin.errors import FormatError
from tb_memplugin.events import fields
from tb_memplugin.events.codec import Frame
from tb_memplugin.model import MISSING, PHASES, Category, Integers, Phase
from tb_memplugin.model.groups import Group
from tb_memplugin.model.rollup import DeviceRollup, Levels, PhaseRollup, PoolRollup, Rollup, Spans, TracedRollup

MAX_DEVICES = 1024
"""Most devices of a roll-up; the reader refuses more before it builds objects."""
MAX_PARTS = 65_536

_FACTS = ("first_step", "last_step", "first_training_step", "last_training_step")
_PHASE_SIZES = ("peak_bytes", "peak_step", "in_use_bytes", "pool_bytes")
_POOL_SIZES = ("free_bytes", "largest_free_bytes", "pool_bytes", "capacity_bytes")
_SPAN_COLUMNS = ("first_epoch", "last_epoch", "first_step", "last_step")
_PEAK_COLUMNS = ("samples", "peak_bytes", "peak_step", "p50_bytes", "p95_bytes", "resolution_bytes")
_LEVEL_COLUMNS = ("in_use_bytes", "peak_bytes")


def rollup_frame(rollup: Rollup, sequence: int) -> Frame:
    """Frame of a roll-up. A later frame of the session replaces an earlier one."""
    attributes: dict[str, Any] = {name: getattr(rollup, name) for name in _FACTS}
    attributes |= {
        "started": rollup.started,
        "ended": rollup.ended,
        "is_recorders": rollup.is_recorders,
        "samples": rollup.samples,
        "first_wall_time": rollup.first_wall_time,
        "last_wall_time": rollup.last_wall_time,
    }
    devices, spans = rollup.devices, rollup.spans
    phases = [(at, phase, of) for at, device in enumerate(devices) for phase, of in device.phases.items()]
    traced = [(row, of.traced) for row, (_, _, of) in enumerate(phases) if of.traced is not None]
    pools = [(row, of.pool) for row, (_, _, of) in enumerate(phases) if of.pool is not None]
    parts = [(row, group, size) for row, of in traced for group, size in of.parts.items()]
    column = fields.optional_column
    tables: dict[str, dict[str, Any]] = {
        "devices": {
            "name": [device.name for device in devices],
            **{
                name: column([getattr(device, name) for device in devices])
                for name in ("capacity_bytes", "ooms", "oom_in_use_bytes", "oom_step", "snapshots")
            },
        },
        "phases": {
            "device": column([at for at, _, _ in phases]),
            "phase": column([PHASES.index(phase) for _, phase, _ in phases]),
            "steps": column([of.steps for _, _, of in phases]),
            **{name: column([getattr(of, name) for _, _, of in phases]) for name in _PHASE_SIZES},
        },
        "pools": {
            "row": column([row for row, _ in pools]),
            **{name: column([getattr(pool, name) for _, pool in pools]) for name in _POOL_SIZES},
        },
        "traced": {
            "row": column([row for row, _ in traced]),
            "step": column([of.step for _, of in traced]),
            "peak_bytes": column([of.peak_bytes for _, of in traced]),
        },
        "parts": {
            "row": column([row for row, _, _ in parts]),
            "category": [category for _, (category, _), _ in parts],
            "trainable": column([None if trainable is None else int(trainable) for _, (_, trainable), _ in parts]),
            "bytes": column([size for _, _, size in parts]),
        },
        "spans": {
            "phase": spans.phase,
            **{name: getattr(spans, name) for name in _SPAN_COLUMNS},
            "last_wall_time": spans.last_wall_time,
        },
        "peaks": {name: getattr(spans, name).reshape(-1) for name in _PEAK_COLUMNS},
        "levels": {"step": rollup.levels.step},
        "level_sizes": {name: getattr(rollup.levels, name).reshape(-1) for name in _LEVEL_COLUMNS},
    }
    steps = [rollup.first_step or 0, rollup.last_step or 0]
    return fields.make_frame("rollups", sequence, steps, attributes, tables)


def read_rollup(frame: Frame) -> Rollup:
    """Read the roll-up of a frame of stream ``rollups``."""
    attributes = frame.attributes
    names = _checked_names(fields.strings(fields.table_of(frame, "devices"), "name"))
    spans = _read_spans(frame, len(names))
    is_recorders = attributes.get("is_recorders")
    if not isinstance(is_recorders, bool):
        raise FormatError(f"roll-up does not say whether it is a recorder's: {is_recorders!r:.40}")
    return Rollup(
        started=fields.number(attributes, "started"),
        ended=_optional_number(attributes, "ended"),
        is_recorders=is_recorders,
        samples=fields.size(attributes, "samples"),
        first_wall_time=_optional_number(attributes, "first_wall_time"),
        last_wall_time=_optional_number(attributes, "last_wall_time"),
        devices=_read_devices(frame, names),
        spans=spans,
        levels=_read_levels(frame, len(names)),
        **{name: fields.optional_size(attributes, name) for name in _FACTS},
    )


def _optional_number(attributes: Mapping[str, Any], name: str) -> float | None:
    return None if attributes.get(name) is None else fields.number(attributes, name)


def _checked_names(names: Sequence[str | None]) -> list[str]:
    if len(names) > MAX_DEVICES or len(set(names)) < len(names):
        raise FormatError(f"roll-up of {len(names)} devices has two of a name, or more than {MAX_DEVICES}")
    return [fields.device(name) for name in names]


def _read_devices(frame: Frame, names: Sequence[str]) -> tuple[DeviceRollup, ...]:
    table = fields.table_of(frame, "devices")
    sizes = fields.byte_columns(table, ("capacity_bytes", "oom_in_use_bytes", "oom_step"))
    ooms, snapshots = _counts(table, "ooms"), _counts(table, "snapshots")
    phases: list[dict[Phase, PhaseRollup]] = [{} for _ in names]
    for device, phase, of in _read_phases(frame, len(names)):
        phases[device][phase] = of
    return tuple(
        DeviceRollup(
            name=name,
            capacity_bytes=fields.maybe(sizes[0][at]),
            ooms=ooms[at],
            oom_in_use_bytes=fields.maybe(sizes[1][at]),
            oom_step=fields.maybe(sizes[2][at]),
            snapshots=snapshots[at],
            phases=phases[at],
        )
        for at, name in enumerate(names)
    )


def _read_phases(frame: Frame, devices: int) -> list[tuple[int, Phase, PhaseRollup]]:
    table = fields.table_of(frame, "phases")
    device, phase = _indices(table, "device", devices), _indices(table, "phase", len(PHASES))
    steps, columns = _counts(table, "steps"), fields.byte_columns(table, _PHASE_SIZES)
    sizes = zip(*(_optional(column) for column in columns), strict=True)
    traced, pools = _read_traced(frame, len(device)), _read_pools(frame, len(device))
    return [
        (
            device[row],
            PHASES[phase[row]],
            PhaseRollup(steps[row], peak, peak_step, in_use, pool, pools.get(row), traced.get(row)),
        )
        for row, (peak, peak_step, in_use, pool) in enumerate(sizes)
    ]


def _read_pools(frame: Frame, rows: int) -> dict[int, PoolRollup]:
    table = fields.table_of(frame, "pools")
    row = _indices(table, "row", rows)
    free, largest, pool = (fields.known_bytes(table, name) for name in _POOL_SIZES[:3])
    capacity = _optional(fields.byte_column(table, "capacity_bytes"))
    states = map(PoolRollup, free, largest, pool, capacity)
    return dict(zip(row, states, strict=True))


def _read_traced(frame: Frame, rows: int) -> dict[int, TracedRollup]:
    table, parts = fields.table_of(frame, "traced"), fields.table_of(frame, "parts")
    categories = fields.strings(parts, "category")
    unknown = set(categories) - set(get_args(Category))
    if unknown or len(categories) > MAX_PARTS:
        raise FormatError(f"roll-up of {len(categories)} parts has more than {MAX_PARTS}, or unknown ones: {unknown}")
    of_row: dict[int, dict[Group, int]] = {}
    trainable = [None if value is None else value == 1 for value in _optional(fields.integers(parts, "trainable"))]
    sizes = fields.known_bytes(parts, "bytes")
    for at, category, trains, size in zip(_indices(parts, "row", rows), categories, trainable, sizes, strict=True):
        of_row.setdefault(at, {})[category, trains] = size  # type: ignore[index]  # checked above
    steps, peaks = fields.steps_of(table).tolist(), fields.known_bytes(table, "peak_bytes")
    return {
        at: TracedRollup(step, peak, of_row.get(at, {}))
        for at, step, peak in zip(_indices(table, "row", rows), steps, peaks, strict=True)
    }


def _read_spans(frame: Frame, devices: int) -> Spans:
    table, peaks = fields.table_of(frame, "spans"), fields.table_of(frame, "peaks")
    phase = fields.integers(table, "phase")
    fields.check_range("phase", phase, 0, len(PHASES) - 1)
    columns = {name: fields.byte_column(table, name) for name in _SPAN_COLUMNS}
    fields.check_range("first_step", columns["first_step"], 0, fields.MAX_BYTES)
    if (np.diff(np.stack([columns["first_step"], columns["last_step"]]), axis=0) < 0).any():
        raise FormatError("a span of a roll-up ends before it begins")
    shape = devices, len(phase)
    return Spans(
        phase=phase,
        last_wall_time=fields.floats(table, "last_wall_time"),
        **columns,
        **{name: _shaped(fields.byte_column(peaks, name), shape) for name in _PEAK_COLUMNS},
    )


def _read_levels(frame: Frame, devices: int) -> Levels:
    step = fields.steps_of(fields.table_of(frame, "levels"))
    sizes = fields.byte_columns(fields.table_of(frame, "level_sizes"), _LEVEL_COLUMNS)
    return Levels(step, *(_shaped(column, (devices, len(step))) for column in sizes))


def _shaped(column: Integers, shape: tuple[int, int]) -> Integers:
    if len(column) != shape[0] * shape[1]:
        raise FormatError(f"roll-up has {len(column)} values for {shape[0]} devices and {shape[1]} rows")
    return column.reshape(shape)


def _indices(table: Mapping[str, Any], name: str, end: int) -> list[int]:
    column = fields.integers(table, name)
    fields.check_range(name, column, 0, end - 1)
    indices: list[int] = column.tolist()
    return indices


def _counts(table: Mapping[str, Any], name: str) -> list[int]:
    column = fields.integers(table, name)
    fields.check_range(name, column, 0, fields.MAX_BYTES)
    counts: list[int] = column.tolist()
    return counts


def _optional(column: Integers) -> list[int | None]:
    return [None if value == MISSING else value for value in column.tolist()]
