"""Frames of samples and of peaks."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tb_memplugin.errors import FormatError
from tb_memplugin.events import fields
from tb_memplugin.events.codec import Frame
from tb_memplugin.model import MISSING, PHASES, DeviceSamples, Samples

MAX_DEVICES = 256
"""Most devices in one session."""

_DEVICE_COLUMNS = tuple(field.name for field in dataclasses.fields(DeviceSamples))


def samples_frame(samples: Samples, sequence: int) -> Frame:
    """Frame of one or more samples."""
    return _samples_frame("samples", samples, sequence)


def peak_frame(samples: Samples, sequence: int) -> Frame:
    """Frame of the sample with a new highest peak."""
    return _samples_frame("peak", samples, sequence)


def _samples_frame(stream: str, samples: Samples, sequence: int) -> Frame:
    table: dict[str, Any] = {
        "step": samples.step,
        "phase": samples.phase,
        "epoch": samples.epoch,
        "wall_time": samples.wall_time,
        "host_resident_bytes": samples.host_resident_bytes,
    }
    for device, figures in samples.devices.items():
        for name in _DEVICE_COLUMNS:
            table[f"{name}/{device}"] = getattr(figures, name)
    return fields.make_frame(stream, sequence, samples.step, {"devices": list(samples.devices)}, {"samples": table})


def read_samples(frame: Frame, device_columns: Sequence[str] = _DEVICE_COLUMNS) -> Samples:
    """Read the samples of a frame of stream ``samples`` or ``peak``; of devices only some columns, if only some are
    needed."""
    table = fields.table_of(frame, "samples")
    names = frame.attributes.get("devices")
    if not isinstance(names, list) or len(names) > MAX_DEVICES:
        raise FormatError(f"samples must list at most {MAX_DEVICES} devices")
    names = list(map(fields.device, names))
    figures = iter(fields.byte_columns(table, [f"{column}/{name}" for name in names for column in device_columns]))
    unknown = dict.fromkeys(_DEVICE_COLUMNS, np.broadcast_to(np.int64(MISSING), len(fields.steps_of(table))))
    devices = {
        name: DeviceSamples(**{**unknown, **{column: next(figures) for column in device_columns}}) for name in names
    }
    phase = fields.integers(table, "phase")
    if len(phase) and (phase.min() < 0 or phase.max() >= len(PHASES)):
        raise FormatError(f"samples have a phase other than 0 to {len(PHASES) - 1}: {int(phase.max())}")
    return Samples(
        step=fields.steps_of(table),
        phase=phase,
        epoch=fields.integers(table, "epoch"),
        wall_time=fields.floats(table, "wall_time"),
        host_resident_bytes=fields.byte_column(table, "host_resident_bytes"),
        devices=devices,
    )
