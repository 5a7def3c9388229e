"""Frames of roll-ups.

All integers of a roll-up are one column, because a view of a thousand workers reads a thousand roll-ups: each column of
a frame takes longer to decode than its few values.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from tb_memplugin.errors import FormatError
from tb_memplugin.events.frames.codec import Frame
from tb_memplugin.events.records import fields
from tb_memplugin.model import CATEGORIES, PHASES, Floats, Integers, Phase
from tb_memplugin.model.basics import fields_of, optional_column, optional_values
from tb_memplugin.model.groups import Group, TracedPeak
from tb_memplugin.model.rollup import DeviceRollup, Levels, PhaseRollup, PoolRollup, Rollup, Spans

MAX_DEVICES = 1024
"""Most devices of a roll-up; the reader refuses more before it builds objects."""

_FACTS = ("first_step", "last_step", "first_training_step", "last_training_step")
_PHASE_SIZES = ("peak_bytes", "peak_step", "in_use_bytes", "pool_bytes")
_POOL_SIZES = ("free_bytes", "largest_free_bytes", "pool_bytes", "capacity_bytes")
_SPAN_COLUMNS = ("first_step", "last_step")
_PEAK_COLUMNS = ("peak_bytes", "peak_step")
_LEVEL_COLUMNS = ("in_use_bytes", "peak_bytes")
_COLUMNS: Mapping[str, Sequence[str]] = {
    "devices": ("capacity_bytes", "ooms", "oom_in_use_bytes", "oom_step", "snapshots"),
    "phases": ("device", "phase", "steps", *_PHASE_SIZES),
    "pools": ("row", *_POOL_SIZES),
    "traced": ("row", "step", "peak_bytes"),
    "parts": ("row", "trainable", "bytes"),
    "spans": ("phase", *_SPAN_COLUMNS),
    "peaks": _PEAK_COLUMNS,
    "levels": ("step",),
    "level_sizes": _LEVEL_COLUMNS,
}
"""The integer columns of each table, in the order in which they are stored."""

Tables: TypeAlias = Mapping[str, Mapping[str, Integers]]
"""Table to column to its integers."""


def rollup_frame(rollup: Rollup, sequence: int) -> Frame:
    """Frame of a roll-up. A later frame of the session replaces an earlier one."""
    more = ("started", "ended", "is_recorders", "samples", "first_wall_time", "last_wall_time")
    attributes = fields_of(rollup, *_FACTS, *more)
    attributes["went_on"] = [at for at, device in enumerate(rollup.devices) if device.went_on]
    devices, spans = rollup.devices, rollup.spans
    phases = [(at, phase, of) for at, device in enumerate(devices) for phase, of in device.phases.items()]
    traced = [(row, of.traced) for row, (_, _, of) in enumerate(phases) if of.traced is not None]
    pools = [(row, of.pool) for row, (_, _, of) in enumerate(phases) if of.pool is not None]
    parts = [(row, group, size) for row, of in traced for group, size in of.parts.items()]
    column = optional_column
    tables: Tables = {
        "devices": {name: column([getattr(device, name) for device in devices]) for name in _COLUMNS["devices"]},
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
            "trainable": column([None if trainable is None else int(trainable) for _, (_, trainable), _ in parts]),
            "bytes": column([size for _, _, size in parts]),
        },
        "spans": fields_of(spans, *_COLUMNS["spans"]),
        "peaks": {name: getattr(spans, name).reshape(-1) for name in _PEAK_COLUMNS},
        "levels": {"step": rollup.levels.step},
        "level_sizes": {name: getattr(rollup.levels, name).reshape(-1) for name in _LEVEL_COLUMNS},
    }
    attributes["lengths"], values = packed(tables)
    stored = {
        "integers": {"value": values},
        "names": {"name": [device.name for device in devices]},
        "categories": {"category": [category for _, (category, _), _ in parts]},
        "times": {"last_wall_time": spans.last_wall_time},
    }
    steps = [rollup.first_step or 0, rollup.last_step or 0]
    return fields.make_frame("rollups", sequence, steps, attributes, stored)


def packed(tables: Tables) -> tuple[dict[str, int], Integers]:
    """The rows of each table, and all columns one after the other."""
    columns = [tables[table][name] for table, names in _COLUMNS.items() for name in names]
    return {table: len(tables[table][names[0]]) for table, names in _COLUMNS.items()}, np.concatenate(columns)


def unpacked(frame: Frame) -> Tables:
    """The tables that were packed into a frame; no value is negative unless it is `MISSING`."""
    values = fields.byte_column(fields.table_of(frame, "integers"), "value")
    lengths = frame.attributes.get("lengths")
    if not isinstance(lengths, dict):
        raise FormatError(f"roll-up lacks the lengths of its tables: {lengths!r:.40}")
    tables, at = {}, 0
    for table, names in _COLUMNS.items():
        length = fields.size(lengths, table)
        tables[table] = {name: values[at + row * length : at + (row + 1) * length] for row, name in enumerate(names)}
        at += length * len(names)
    if at != len(values):
        raise FormatError(f"roll-up has {len(values)} integers instead of {at}")
    return tables


def read_rollup(frame: Frame) -> Rollup:
    """Read the roll-up of a frame of stream ``rollups``."""
    attributes = frame.attributes
    tables = unpacked(frame)
    names = _checked_names(fields.strings(fields.table_of(frame, "names"), "name"))
    categories = fields.strings(fields.table_of(frame, "categories"), "category")
    times = fields.floats(fields.table_of(frame, "times"), "last_wall_time")
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
        devices=_read_devices(tables, names, categories, attributes.get("went_on", [])),
        spans=_read_spans(tables, len(names), times),
        levels=_read_levels(tables, len(names)),
        **{name: fields.optional_size(attributes, name) for name in _FACTS},
    )


def _optional_number(attributes: Mapping[str, Any], name: str) -> float | None:
    return None if attributes.get(name) is None else fields.number(attributes, name)


def _checked_names(names: Sequence[str | None]) -> list[str]:
    if len(names) > MAX_DEVICES or len(set(names)) < len(names):
        raise FormatError(f"roll-up of {len(names)} devices has two of a name, or more than {MAX_DEVICES}")
    return [fields.device(name) for name in names]


def _read_devices(
    tables: Tables, names: Sequence[str], categories: Sequence[str | None], went_on: Any
) -> tuple[DeviceRollup, ...]:
    table = tables["devices"]
    if len(table["ooms"]) != len(names):
        raise FormatError(f"roll-up has figures of {len(table['ooms'])} devices and {len(names)} names")
    if not isinstance(went_on, list) or not all(type(at) is int and 0 <= at < len(names) for at in went_on):
        raise FormatError(f"roll-up names other devices than its own as ones that went on: {went_on!r:.40}")
    figures = ("capacity_bytes", "oom_in_use_bytes", "oom_step")
    capacities, in_use, steps = (optional_values(table[name]) for name in figures)
    ooms, snapshots = _counts(table, "ooms"), _counts(table, "snapshots")
    phases: list[dict[Phase, PhaseRollup]] = [{} for _ in names]
    for device, phase, of in _read_phases(tables, len(names), categories):
        phases[device][phase] = of
    again = [at in went_on for at in range(len(names))]
    return tuple(map(DeviceRollup, names, capacities, ooms, again, in_use, steps, snapshots, phases))


def _read_phases(
    tables: Tables, devices: int, categories: Sequence[str | None]
) -> list[tuple[int, Phase, PhaseRollup]]:
    table = tables["phases"]
    device, phase = _indices(table, "device", devices), _indices(table, "phase", len(PHASES))
    sizes = zip(*(optional_values(table[name]) for name in _PHASE_SIZES), strict=True)
    traced, pools = _read_traced(tables, len(device), categories), _read_pools(tables, len(device))
    steps = _counts(table, "steps")
    return [
        (
            device[row],
            PHASES[phase[row]],
            PhaseRollup(steps[row], peak, peak_step, in_use, pool, pools.get(row), traced.get(row)),
        )
        for row, (peak, peak_step, in_use, pool) in enumerate(sizes)
    ]


def _read_pools(tables: Tables, rows: int) -> dict[int, PoolRollup]:
    table = tables["pools"]
    free, largest, pool = (_counts(table, name) for name in _POOL_SIZES[:3])
    states = map(PoolRollup, free, largest, pool, optional_values(table["capacity_bytes"]))
    return dict(zip(_indices(table, "row", rows), states, strict=True))


def _read_traced(tables: Tables, rows: int, categories: Sequence[str | None]) -> dict[int, TracedPeak]:
    table, parts = tables["traced"], tables["parts"]
    unknown = {*categories} - {*CATEGORIES}
    if unknown or len(categories) != len(parts["row"]):
        raise FormatError(f"roll-up of {len(parts['row'])} parts has {len(categories)} categories, unknown: {unknown}")
    of_row: dict[int, dict[Group, int]] = {}
    trainable = [None if value is None else value == 1 for value in optional_values(parts["trainable"])]
    sizes = _counts(parts, "bytes")
    for at, category, trains, size in zip(_indices(parts, "row", rows), categories, trainable, sizes, strict=True):
        of_row.setdefault(at, {})[category, trains] = size  # type: ignore[index]  # checked above
    steps, peaks, row = _counts(table, "step"), _counts(table, "peak_bytes"), _indices(table, "row", rows)
    return {at: TracedPeak(step, peak, of_row.get(at, {})) for at, step, peak in zip(row, steps, peaks, strict=True)}


def _read_spans(tables: Tables, devices: int, times: Floats) -> Spans:
    table, peaks = tables["spans"], tables["peaks"]
    fields.check_range("phase", table["phase"], 0, len(PHASES) - 1)
    fields.check_range("first_step", table["first_step"], 0, fields.MAX_BYTES)
    if (table["last_step"] < table["first_step"]).any() or len(times) != len(table["phase"]):
        raise FormatError(f"roll-up has {len(times)} times for {len(table['phase'])} spans, or one that ends too early")
    shape = devices, len(times)
    return Spans(**table, last_wall_time=times, **{name: _shaped(peaks[name], shape) for name in _PEAK_COLUMNS})


def _read_levels(tables: Tables, devices: int) -> Levels:
    step = tables["levels"]["step"]
    fields.check_range("step", step, 0, fields.MAX_BYTES)
    return Levels(step, *(_shaped(tables["level_sizes"][name], (devices, len(step))) for name in _LEVEL_COLUMNS))


def _shaped(column: Integers, shape: tuple[int, int]) -> Integers:
    if len(column) != shape[0] * shape[1]:
        raise FormatError(f"roll-up has {len(column)} values for {shape[0]} devices and {shape[1]} rows")
    return column.reshape(shape)


def _indices(table: Mapping[str, Integers], name: str, end: int) -> list[int]:
    fields.check_range(name, table[name], 0, end - 1)
    indices: list[int] = table[name].tolist()
    return indices


def _counts(table: Mapping[str, Integers], name: str) -> list[int]:
    return _indices(table, name, fields.MAX_BYTES + 1)
