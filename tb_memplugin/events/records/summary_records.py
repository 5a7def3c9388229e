"""Frames of the summaries of sessions."""

from collections.abc import Sequence
from typing import Any

from tb_memplugin.errors import FormatError
from tb_memplugin.events.frames.codec import Frame
from tb_memplugin.events.records import fields
from tb_memplugin.model import CATEGORIES, PHASES
from tb_memplugin.model.basics import fields_of, optional_column, optional_values
from tb_memplugin.model.groups import Group, TracedPeak
from tb_memplugin.model.worker_summary import RUN_STATUSES, DeviceSummary, WorkerSummary

MAX_DEVICES = 1024 * len(PHASES)
"""Most rows of a summary; the reader refuses more before it builds objects."""
_FACTS = ("started", "ended", "status", "first_step", "last_step", "last_wall_time")
_KNOWN = ("peak_bytes", "peak_step", "ooms", "snapshots")
_SIZES = ("capacity_bytes", "last_in_use_bytes", "pool_bytes")
_TRACED = ("traced_step", "traced_peak_bytes")


def summary_frame(summary: WorkerSummary, sequence: int) -> Frame:
    """Frame of a session's summary, without steps. A later frame of the session replaces an earlier one."""
    devices = summary.devices
    highest = [max(device.traced, key=lambda one: one.peak_bytes, default=None) for device in devices]
    parts = [(at, group, size) for at, one in enumerate(highest) if one for group, size in one.parts.items()]
    tables = {
        "devices": {
            "name": [device.name for device in devices],
            "phase": optional_column(PHASES.index(device.phase) for device in devices),
            **{name: optional_column(getattr(one, name) for one in devices) for name in (*_KNOWN, *_SIZES)},
            "traced_step": optional_column(None if one is None else one.step for one in highest),
            "traced_peak_bytes": optional_column(None if one is None else one.peak_bytes for one in highest),
        },
        "parts": {
            "device": optional_column(at for at, _, _ in parts),
            "category": [category for _, (category, _), _ in parts],
            "trainable": optional_column(trainable for _, (_, trainable), _ in parts),
            "bytes": optional_column(size for _, _, size in parts),
        },
    }
    steps = [summary.first_step or 0, summary.last_step or 0]
    return fields.make_frame("rollups", sequence, steps, fields_of(summary, *_FACTS), tables)


def read_summary(frame: Frame) -> WorkerSummary:
    """The summary of a frame of stream ``rollups``.

    Raises:
        FormatError: It is damaged.
    """
    facts, table = frame.attributes, fields.table_of(frame, "devices")
    status, ended, names = facts.get("status"), facts.get("ended"), fields.strings(table, "name")
    if status not in RUN_STATUSES or ended not in (True, False, None) or len(names) > MAX_DEVICES:
        raise FormatError(f"summary of {len(names)} devices with status {status!r:.20}, ended: {ended!r:.20}")
    phase = fields.integers(table, "phase")
    fields.check_range("phase", phase, 0, len(PHASES) - 1)
    columns: dict[str, Sequence[Any]] = {
        "name": [fields.device(name) for name in names],
        "phase": [PHASES[at] for at in phase.tolist()],
        **{name: fields.known_bytes(table, name) for name in _KNOWN},
        **{name: optional_values(fields.byte_column(table, name)) for name in _SIZES},
        "traced": _read_traced(frame, len(names)),
    }
    rows = zip(*columns.values(), strict=True)
    return WorkerSummary(
        worker="",
        sessions=1,
        started=fields.number(facts, "started"),
        ended=ended,
        status=status,
        first_step=fields.optional_size(facts, "first_step"),
        last_step=fields.optional_size(facts, "last_step"),
        last_wall_time=None if facts.get("last_wall_time") is None else fields.number(facts, "last_wall_time"),
        devices=tuple(DeviceSummary(**dict(zip(columns, row, strict=True))) for row in rows),
    )


def _read_traced(frame: Frame, devices: int) -> list[tuple[TracedPeak, ...]]:
    table, parts = fields.table_of(frame, "devices"), fields.table_of(frame, "parts")
    device, category = fields.integers(parts, "device"), fields.strings(parts, "category")
    fields.check_range("device", device, 0, devices - 1)
    if unknown := {*category} - {*CATEGORIES}:
        raise FormatError(f"summary with unknown categories {unknown!r:.80}")
    groups: list[dict[Group, int]] = [{} for _ in range(devices)]
    trainable = optional_values(fields.byte_column(parts, "trainable"))
    sizes = fields.known_bytes(parts, "bytes")
    for at, name, trains, size in zip(device.tolist(), category, trainable, sizes, strict=True):
        groups[at][name, None if trains is None else trains == 1] = size
    steps, peaks = (optional_values(fields.byte_column(table, name)) for name in _TRACED)
    return [
        () if step is None or peak is None else (TracedPeak(step, peak, of_device),)
        for step, peak, of_device in zip(steps, peaks, groups, strict=True)
    ]
