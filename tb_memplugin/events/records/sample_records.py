"""Frames of rows over steps: samples, parts of host memory, counters of the program, and activation bytes by layer."""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tb_memplugin.errors import FormatError
from tb_memplugin.events.frames.codec import Frame
from tb_memplugin.events.records import fields
from tb_memplugin.model import (
    COUNTER_KINDS,
    HOST_BYTES,
    HOST_COLUMNS,
    MISSING,
    PHASES,
    Counters,
    DeviceSamples,
    HostSamples,
    LayerActivations,
    Samples,
)
from tb_memplugin.model.basics import fields_of


def activations_frame(activations: LayerActivations, sequence: int) -> Frame:
    """Frame of activation bytes by layer over steps."""
    if activations.bytes.shape != (len(activations), len(activations.layers)):
        raise FormatError(
            f"activation bytes of shape {activations.bytes.shape} do not fit "
            f"{len(activations)} steps × {len(activations.layers)} layers"
        )
    tables = {
        "steps": {"step": activations.step, "wall_time": activations.wall_time},
        "layers": {"layer": activations.layers},
        "bytes": {"bytes": np.ascontiguousarray(activations.bytes.T).reshape(-1)},
    }
    return fields.make_frame("activations", sequence, activations.step, {}, tables)


def read_activations(frame: Frame) -> LayerActivations:
    """Read the activation bytes of a frame of stream ``activations``."""
    steps = fields.table_of(frame, "steps")
    layers = fields.strings(fields.table_of(frame, "layers"), "layer")
    values = fields.byte_column(fields.table_of(frame, "bytes"), "bytes")
    step = fields.steps_of(steps)
    if len(layers) > fields.MAX_LAYERS or None in layers or len(set(layers)) != len(layers):
        raise FormatError(
            f"activations need unique layer paths, at most {fields.MAX_LAYERS}. Received: {len(layers)} columns"
        )
    if len(values) != len(step) * len(layers):
        raise FormatError(f"{len(values)} activation values do not fit {len(step)} steps × {len(layers)} layers")
    return LayerActivations(
        step=step,
        wall_time=fields.floats(steps, "wall_time"),
        layers=tuple(path for path in layers if path is not None),
        bytes=values.reshape(len(layers), len(step)).T,
    )


MAX_COUNTER_ROWS = 4096
"""Most rows of a frame."""


def counters_frame(counters: Counters, sequence: int) -> Frame:
    """Frame of one or more rows."""
    table = fields_of(counters, "step", "kind", "name", "count", "bytes", "detail")
    return fields.make_frame("counters", sequence, counters.step, {}, {"counters": table})


def read_counters(frame: Frame) -> Counters:
    """Read the rows of a frame of stream ``counters``; rows of kinds that are unknown here are left out."""
    table = fields.table_of(frame, "counters")
    step, count = fields.steps_of(table), fields.integers(table, "count")
    if len(step) > MAX_COUNTER_ROWS:
        raise FormatError(f"frame of counters has {len(step)} rows; the limit is {MAX_COUNTER_ROWS}")
    fields.check_range("count", count, 0, fields.MAX_BYTES)
    kinds, names, details = (fields.strings(table, name) for name in ("kind", "name", "detail"))
    sizes = fields.byte_column(table, "bytes")
    known = np.asarray([kind in COUNTER_KINDS for kind in kinds], np.bool_)
    every = Counters(step, kinds, names, count, sizes, details)  # type: ignore[arg-type]  # the unknown kinds go
    return every if known.all() else take_counters(every, known)


def take_counters(counters: Counters, rows: slice | npt.NDArray[np.bool_]) -> Counters:
    """The given rows."""
    kept = np.arange(len(counters))[rows].tolist()
    return dataclasses.replace(
        counters,
        step=counters.step[rows],
        kind=tuple(counters.kind[at] for at in kept),
        name=tuple(counters.name[at] for at in kept),
        count=counters.count[rows],
        bytes=counters.bytes[rows],
        detail=tuple(counters.detail[at] for at in kept),
    )


def join_counters(parts: Sequence[Counters]) -> Counters | None:
    """The rows of all parts; None if there are none."""
    parts = [part for part in parts if len(part)]
    if not parts:
        return None
    return Counters(
        step=np.concatenate([part.step for part in parts]),
        kind=tuple(itertools.chain(*(part.kind for part in parts))),
        name=tuple(itertools.chain(*(part.name for part in parts))),
        count=np.concatenate([part.count for part in parts]),
        bytes=np.concatenate([part.bytes for part in parts]),
        detail=tuple(itertools.chain(*(part.detail for part in parts))),
    )


def host_frame(host: HostSamples, sequence: int) -> Frame:
    """Frame of one or more rows."""
    table = fields_of(host, *HOST_COLUMNS)
    return fields.make_frame("host", sequence, host.step, {}, {"host": table})


def read_host(frame: Frame) -> HostSamples:
    """Read the rows of a frame of stream ``host``.

    Raises:
        FormatError: A column is missing or out of range, or the parts of a row exceed its resident memory.
    """
    table = fields.table_of(frame, "host")
    phase = fields.integers(table, "phase")
    fields.check_range("phase", phase, 0, len(PHASES) - 1)
    host = HostSamples(
        step=fields.steps_of(table),
        phase=phase,
        wall_time=fields.floats(table, "wall_time"),
        **{name: fields.byte_column(table, name) for name in HOST_BYTES},
    )
    known = host.resident_bytes != MISSING
    if (host.known_parts_bytes()[known] > host.resident_bytes[known]).any() or np.isinf(host.wall_time).any():
        raise FormatError("parts of host memory exceed its resident memory")
    return host


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
    table = fields_of(samples, "step", "phase", "epoch", "wall_time", "host_resident_bytes")
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
