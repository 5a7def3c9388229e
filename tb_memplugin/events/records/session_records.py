"""Frames of session facts and of layer tables, both in stream ``meta``."""

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from tb_memplugin.errors import FormatError
from tb_memplugin.events.frames.codec import Frame
from tb_memplugin.events.records import fields
from tb_memplugin.model import MISSING, Layer, LayerTable, SessionInfo
from tb_memplugin.model.basics import fields_of, optional_column
from tb_memplugin.model.layers import RECOMPUTED

_LAYER_COLUMNS = ("parameters", "weight_bytes", "trainable_weight_bytes", "optimizer_bytes")


def new_session_info(
    session: str, producer: Any, versions: Mapping[str, str], earlier: int | None = None
) -> SessionInfo:
    """The facts of a session that starts now."""
    return SessionInfo(session, time.time(), producer, dict(versions), (), earlier=earlier)


def session_frame(info: SessionInfo, sequence: int) -> Frame:
    """Frame of the facts of a session. A later frame of the session replaces an earlier one."""
    attributes: dict[str, Any] = {
        "record": "session",
        "started": info.started,
        "producer": info.producer,
        "versions": dict(info.versions),
        "notes": list(info.notes),
    }
    if info.ended is not None:
        attributes["ended"] = info.ended
    if info.analyzing is not None:
        attributes["analyzing"] = info.analyzing
    if info.earlier is not None:
        attributes["earlier"] = info.earlier
    return fields.make_frame("meta", sequence, np.zeros(1, np.int64), attributes, {})


def layer_table_frame(table: LayerTable, sequence: int) -> Frame:
    """Frame of one layer table."""
    attributes = {
        "record": "layers",
        **fields_of(table, "wall_time", "reason", "optimizer", "other_optimizer_bytes", "other_state_bytes"),
    }
    layers = table.layers
    columns: dict[str, Any] = {
        "path": [layer.path for layer in layers],
        "type": [layer.type for layer in layers],
        "trainable": optional_column([int(layer.trainable) for layer in layers]),
        "output_dtype": [layer.output_dtype for layer in layers],
        "output_bytes": optional_column([layer.output_bytes for layer in layers]),
        "output_rank": optional_column(
            [None if layer.output_shape is None else len(layer.output_shape) for layer in layers]
        ),
    }
    if any(layer.unit is not None for layer in layers):
        columns["unit"] = optional_column([layer.unit for layer in layers])
    if any(layer.recomputed is not None for layer in layers):
        columns["recomputed"] = [layer.recomputed for layer in layers]
    for name in _LAYER_COLUMNS:
        columns[name] = optional_column([getattr(layer, name) for layer in layers])
    dimensions = [size for layer in layers for size in layer.output_shape or ()]
    tables = {"layers": columns, "dimensions": {"size": optional_column(dimensions)}}
    return fields.make_frame("meta", sequence, np.asarray([table.step]), attributes, tables)


def read_meta(session: str, frame: Frame) -> SessionInfo | LayerTable:
    """Read the session facts or the layer table of a frame of stream ``meta``."""
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
        raise FormatError("session facts lack a known producer, versions or notes")
    return SessionInfo(
        session=session,
        started=fields.number(attributes, "started"),
        producer=producer,
        versions={fields.text(name): fields.text(version) for name, version in versions.items()},
        notes=tuple(fields.text(note) for note in notes),
        ended=None if attributes.get("ended") is None else fields.number(attributes, "ended"),
        analyzing=fields.optional_size(attributes, "analyzing"),
        earlier=fields.optional_size(attributes, "earlier"),
    )


def _read_layers(frame: Frame) -> LayerTable:
    table, dimensions = fields.table_of(frame, "layers"), fields.integers(fields.table_of(frame, "dimensions"), "size")
    paths, types, dtypes = (fields.strings(table, name) for name in ("path", "type", "output_dtype"))
    if len(paths) > fields.MAX_LAYERS or None in paths or None in types:
        raise FormatError(f"layer table of {len(paths)} layers lacks a path or a type, or is over {fields.MAX_LAYERS}")
    figures = {name: fields.byte_column(table, name) for name in (*_LAYER_COLUMNS, "output_bytes")}
    if any((figures[name] == MISSING).any() for name in _LAYER_COLUMNS):
        raise FormatError("layer table lacks a byte count")
    # Only tables of models with a known layer graph have units.
    units = fields.byte_column(table, "unit") if "unit" in table else np.full(len(paths), MISSING)
    recomputed = fields.strings(table, "recomputed") if "recomputed" in table else [None] * len(paths)
    if not {*recomputed} <= {None, *RECOMPUTED}:
        raise FormatError(f"layer table says of layers that they are recomputed {recomputed!r:.80}")
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
                unit=fields.maybe(units[row]),
                recomputed=RECOMPUTED.get(recomputed[row] or ""),
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
