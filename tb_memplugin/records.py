"""What goes into the frames of each stream: model objects to frames and back, with every value checked on the way in.

A run directory may come from a stranger, so a frame that decodes is still not believed: indices, signs and lengths are
checked here, and what does not hold is a `FormatError` that costs this frame only.
"""

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np

from tb_memplugin import codec
from tb_memplugin import record_fields as fields
from tb_memplugin.codec import MISSING, Frame
from tb_memplugin.errors import FormatError
from tb_memplugin.model import (
    CATEGORIES,
    MODES,
    PHASES,
    Category,
    DeviceSamples,
    HeldRow,
    Layer,
    LayerActivations,
    LayerTable,
    LedgerRow,
    Samples,
    SessionInfo,
    Snapshot,
)

MAX_LAYERS = 100_000
"""Most layers that a table may hold; a larger one is refused before memory is taken."""
MAX_DEVICES = 256
"""Most devices in one session."""
MAX_LEDGER_ROWS = 200_000
"""Most rows of a ledger; a larger one is refused before memory is taken."""

_DEVICE_COLUMNS = tuple(field.name for field in dataclasses.fields(DeviceSamples))
_LAYER_COLUMNS = ("parameters", "weight_bytes", "trainable_weight_bytes", "optimizer_bytes")


# --- samples ---------------------------------------------------------------------------------------------------------


def samples_frame(samples: Samples, sequence: int) -> Frame:
    """Frame of one or more samples."""
    return _samples_frame("samples", samples, sequence)


def peak_frame(samples: Samples, sequence: int) -> Frame:
    """Frame of the sample of a new highest peak."""
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


def read_samples(frame: Frame) -> Samples:
    """The samples of a frame of stream ``samples`` or ``peak``."""
    table = fields.table_of(frame, "samples")
    names = frame.attributes.get("devices")
    if not isinstance(names, list) or len(names) > MAX_DEVICES:
        raise FormatError("samples do not name their devices")
    if not all(isinstance(name, str) and len(name) <= codec.MAX_STRING_CHARACTERS for name in names):
        raise FormatError("samples do not name their devices in a length that is read")
    devices = {
        name: DeviceSamples(**{column: fields.byte_column(table, f"{column}/{name}") for column in _DEVICE_COLUMNS})
        for name in names
    }
    phase = fields.integers(table, "phase")
    if len(phase) and (phase.min() < 0 or phase.max() >= len(PHASES)):
        raise FormatError(f"samples name an unknown phase {int(phase.max())}")
    return Samples(
        step=fields.steps_of(table),
        phase=phase,
        epoch=fields.integers(table, "epoch"),
        wall_time=fields.floats(table, "wall_time"),
        host_resident_bytes=fields.byte_column(table, "host_resident_bytes"),
        devices=devices,
    )


# --- layer activations -----------------------------------------------------------------------------------------------


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
    """The activation bytes of a frame of stream ``activations``."""
    steps = fields.table_of(frame, "steps")
    layers = fields.strings(fields.table_of(frame, "layers"), "layer")
    values = fields.byte_column(fields.table_of(frame, "bytes"), "bytes")
    step = fields.steps_of(steps)
    if len(layers) > MAX_LAYERS or None in layers or len(set(layers)) != len(layers):
        raise FormatError(f"activations of {len(layers)} layers name one twice or not at all, or are over {MAX_LAYERS}")
    if len(values) != len(step) * len(layers):
        raise FormatError(f"{len(values)} activation values do not fit {len(step)} steps × {len(layers)} layers")
    return LayerActivations(
        step=step,
        wall_time=fields.floats(steps, "wall_time"),
        layers=tuple(path for path in layers if path is not None),
        bytes=np.ascontiguousarray(values.reshape(len(layers), len(step)).T),
    )


# --- meta: session facts and layer tables ----------------------------------------------------------------------------


def session_frame(info: SessionInfo, sequence: int) -> Frame:
    """Frame of the facts about the session, which hold for all of it; the last one read counts."""
    attributes = {
        "record": "session",
        "started": info.started,
        "producer": info.producer,
        "versions": dict(info.versions),
        "notes": list(info.notes),
    }
    return fields.make_frame("meta", sequence, np.zeros(1, np.int64), attributes, {})


def layer_table_frame(table: LayerTable, sequence: int) -> Frame:
    """Frame of one layer table."""
    attributes = {
        "record": "layers",
        "wall_time": table.wall_time,
        "reason": table.reason,
        "optimizer": table.optimizer,
        "other_optimizer_bytes": table.other_optimizer_bytes,
        "other_state_bytes": table.other_state_bytes,
    }
    layers = table.layers
    columns: dict[str, Any] = {
        "path": [layer.path for layer in layers],
        "type": [layer.type for layer in layers],
        "trainable": fields.optional_column([int(layer.trainable) for layer in layers]),
        "output_dtype": [layer.output_dtype for layer in layers],
        "output_bytes": fields.optional_column([layer.output_bytes for layer in layers]),
        "output_rank": fields.optional_column(
            [None if layer.output_shape is None else len(layer.output_shape) for layer in layers]
        ),
    }
    for name in _LAYER_COLUMNS:
        columns[name] = fields.optional_column([getattr(layer, name) for layer in layers])
    dimensions = [size for layer in layers for size in layer.output_shape or ()]
    tables = {"layers": columns, "dimensions": {"size": fields.optional_column(dimensions)}}
    return fields.make_frame("meta", sequence, np.asarray([table.step]), attributes, tables)


def read_meta(session: str, frame: Frame) -> SessionInfo | LayerTable:
    """The session facts or the layer table of a frame of stream ``meta``."""
    record = frame.attributes.get("record")
    if record == "session":
        return _read_session(session, frame.attributes)
    if record == "layers":
        return _read_layers(frame)
    raise FormatError(f"unknown record {record!r:.40} in stream meta")


def _read_session(session: str, attributes: Mapping[str, Any]) -> SessionInfo:
    producer, versions, notes = attributes.get("producer"), attributes.get("versions"), attributes.get("notes")
    if (
        producer not in ("recorder", "summary", "import")
        or not isinstance(versions, dict)
        or not isinstance(notes, list)
    ):
        raise FormatError("session facts are incomplete")
    return SessionInfo(
        session=session,
        started=fields.number(attributes, "started"),
        producer=producer,
        versions={fields.text(name): fields.text(version) for name, version in versions.items()},
        notes=tuple(fields.text(note) for note in notes),
    )


def _read_layers(frame: Frame) -> LayerTable:
    table, dimensions = fields.table_of(frame, "layers"), fields.integers(fields.table_of(frame, "dimensions"), "size")
    paths, types, dtypes = (fields.strings(table, name) for name in ("path", "type", "output_dtype"))
    if len(paths) > MAX_LAYERS or None in paths or None in types:
        raise FormatError(f"layer table of {len(paths)} layers lacks a path or a type, or is over {MAX_LAYERS}")
    figures = {name: fields.byte_column(table, name) for name in (*_LAYER_COLUMNS, "output_bytes")}
    if any((figures[name] == MISSING).any() for name in _LAYER_COLUMNS):
        raise FormatError("layer table lacks a byte count")
    ranks = fields.integers(table, "output_rank")
    if (ranks[ranks != MISSING] < 0).any() or ranks[ranks != MISSING].sum() != len(dimensions):
        raise FormatError("layer table's output shapes do not fit its dimensions")
    trainable = fields.integers(table, "trainable")
    layers, at = [], 0
    for row, (path, kind) in enumerate(zip(paths, types, strict=True)):
        rank = int(ranks[row])
        shape = None if rank == MISSING else tuple(int(size) for size in dimensions[at : at + rank])
        at += 0 if shape is None else rank
        layers.append(
            Layer(
                path=str(path),
                type=str(kind),
                trainable=bool(trainable[row] == 1),
                output_shape=shape,
                output_dtype=dtypes[row],
                output_bytes=fields.maybe(figures["output_bytes"][row]),
                **{name: int(figures[name][row]) for name in _LAYER_COLUMNS},
            )
        )
    optimizer = frame.attributes.get("optimizer")
    return LayerTable(
        step=frame.first_step,
        wall_time=fields.number(frame.attributes, "wall_time"),
        reason=fields.text(frame.attributes.get("reason")),
        layers=tuple(layers),
        optimizer=None if optimizer is None else fields.text(optimizer),
        other_optimizer_bytes=fields.size(frame.attributes, "other_optimizer_bytes"),
        other_state_bytes=fields.size(frame.attributes, "other_state_bytes"),
    )


# --- snapshots -------------------------------------------------------------------------------------------------------


def snapshot_frame(snapshot: Snapshot, sequence: int) -> Frame:
    """Frame of one snapshot."""
    attributes = {
        "phase": snapshot.phase,
        "device": snapshot.device,
        "wall_time": snapshot.wall_time,
        "mode": snapshot.mode,
        "in_use_bytes": snapshot.in_use_bytes,
        "pool_bytes": snapshot.pool_bytes,
        "largest_free_bytes": snapshot.largest_free_bytes,
        "capacity_bytes": snapshot.capacity_bytes,
        "fragmentation": snapshot.fragmentation,
        "rounding_bytes": snapshot.rounding_bytes,
        "not_available": list(snapshot.not_available),
    }
    ledger, held = snapshot.ledger, snapshot.held_for_backward
    tables: dict[str, dict[str, Any]] = {
        "ledger": ledger_columns(ledger),
        "held_for_backward": {
            "layer": [row.layer for row in held],
            "bytes": fields.optional_column([row.bytes for row in held]),
        },
    }
    return fields.make_frame("snapshots", sequence, np.asarray([snapshot.step]), attributes, tables)


def read_snapshot(frame: Frame) -> Snapshot:
    """The snapshot of a frame of stream ``snapshots``; its ledger is known to sum to `in_use_bytes`."""
    attributes = frame.attributes
    phase, mode, notes = attributes.get("phase"), attributes.get("mode"), attributes.get("not_available")
    if phase not in PHASES or mode not in MODES or not isinstance(notes, list):
        raise FormatError(f"snapshot of unknown phase {phase!r:.20} or mode {mode!r:.20}")
    fragmentation = attributes.get("fragmentation")
    if fragmentation is not None and not 0 <= fields.number(attributes, "fragmentation") <= 1:
        raise FormatError(f"snapshot's fragmentation {fragmentation!r:.20} is not between 0 and 1")
    ledger = read_ledger(fields.table_of(frame, "ledger"))
    in_use = fields.size(attributes, "in_use_bytes")
    if sum(row.bytes for row in ledger) != in_use:
        raise FormatError(f"snapshot's ledger does not sum to its {in_use} bytes in use")
    held = fields.table_of(frame, "held_for_backward")
    return Snapshot(
        step=frame.first_step,
        phase=phase,
        device=fields.text(attributes.get("device")),
        wall_time=fields.number(attributes, "wall_time"),
        mode=mode,
        in_use_bytes=in_use,
        pool_bytes=fields.optional_size(attributes, "pool_bytes"),
        largest_free_bytes=fields.optional_size(attributes, "largest_free_bytes"),
        capacity_bytes=fields.optional_size(attributes, "capacity_bytes"),
        fragmentation=None if fragmentation is None else float(fragmentation),
        rounding_bytes=fields.optional_size(attributes, "rounding_bytes"),
        ledger=ledger,
        held_for_backward=tuple(
            HeldRow(layer, size)
            for layer, size in zip(fields.strings(held, "layer"), fields.known_bytes(held, "bytes"), strict=True)
        ),
        not_available=tuple(fields.text(note) for note in notes),
    )


def ledger_columns(ledger: Sequence[LedgerRow]) -> dict[str, Any]:
    """The columns of a ledger."""
    return {
        "layer": [row.layer for row in ledger],
        "category": [row.category for row in ledger],
        "trainable": fields.optional_column([None if row.trainable is None else int(row.trainable) for row in ledger]),
        "bytes": fields.optional_column([row.bytes for row in ledger]),
        "rounding_bytes": fields.optional_column([row.rounding_bytes for row in ledger]),
    }


def read_ledger(table: Mapping[str, Any]) -> tuple[LedgerRow, ...]:
    """The rows of a ledger."""
    categories = fields.strings(table, "category")
    if len(categories) > MAX_LEDGER_ROWS:
        raise FormatError(f"ledger of {len(categories)} rows is over the limit of {MAX_LEDGER_ROWS}")
    unknown = set(categories) - set(get_args(Category))
    if unknown:
        raise FormatError(f"ledger has a category that is none of {CATEGORIES}: {unknown.pop()!r:.40}")
    layers, trainable = fields.strings(table, "layer"), fields.integers(table, "trainable")
    sizes, rounding = fields.known_bytes(table, "bytes"), fields.byte_column(table, "rounding_bytes")
    return tuple(
        LedgerRow(
            layer=layers[row],
            category=category,  # type: ignore[arg-type]  # checked above
            trainable=None if trainable[row] == MISSING else bool(trainable[row]),
            bytes=sizes[row],
            rounding_bytes=fields.maybe(rounding[row]),
        )
        for row, category in enumerate(categories)
    )


# --- shared ----------------------------------------------------------------------------------------------------------


def new_session_info(
    session: str, producer: Any, versions: Mapping[str, str], notes: Sequence[str] = ()
) -> SessionInfo:
    """Facts about a session that starts now."""
    return SessionInfo(session, time.time(), producer, dict(versions), tuple(notes))
