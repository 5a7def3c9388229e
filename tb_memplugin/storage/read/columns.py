"""Rows of samples and activations: joining and selecting."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tb_memplugin.schema import (
    MISSING,
    SAMPLE_COLUMNS,
    DeviceSamples,
    Integers,
    LayerActivations,
    Samples,
    flat,
    take_rows,
)
from tb_memplugin.storage.files import MAX_SESSION_DEVICES
from tb_memplugin.storage.read.activation_rows import ActivationRows, activation_rows_of, part_of, table_of

DEVICE_FIELDS = tuple(field.name for field in dataclasses.fields(DeviceSamples))
MAX_TABLE_BYTES = 512 << 20
"""Limit of one joined table of one run once it is read as a whole; beyond it, devices or rows are left out."""


def empty_samples() -> Samples:
    none = np.empty(0, np.int64)
    return Samples(none, none, none, np.empty(0, np.float64), none, {})


def take_activations(
    activations: LayerActivations, rows: npt.NDArray[np.intp] | npt.NDArray[np.bool_]
) -> LayerActivations:
    """The given rows; a mask takes them from each part."""
    recorded = activation_rows_of(activations)
    if rows.dtype != np.bool_:
        return table_of(
            ActivationRows(recorded.parts, recorded.order_of(rows.astype(np.intp, copy=False)), recorded.damage)
        )
    parts, at = [], 0
    for part in recorded.parts:
        keep = rows[at : at + len(part)]
        at += len(part)
        if keep.all():
            parts.append(part)
        elif keep.any():
            kept = LayerActivations(part.step[keep], part.wall_time[keep], part.layers, part.take(keep))
            parts.append(part_of(kept, part.layers))
    return table_of(ActivationRows(parts, damage=recorded.damage))


def join_samples(parts: Sequence[Samples]) -> tuple[Samples, str | None]:
    """Concatenate the rows of `parts`, with the devices of all parts (`MISSING` where a part lacks one).

    Also returns a sentence if devices were left out to stay within `MAX_SESSION_DEVICES` and `MAX_TABLE_BYTES`.
    """
    parts = [part for part in parts if len(part)]
    if not parts:
        return empty_samples(), None
    if len(parts) == 1:
        return parts[0], None
    rows = sum(len(part) for part in parts)
    counts: dict[str, int] = {}
    for part in parts:
        for name in part.devices:
            counts[name] = counts.get(name, 0) + len(part)
    names, sentence = shown_devices(counts, rows, MAX_SESSION_DEVICES, MAX_TABLE_BYTES)
    unknown = [np.broadcast_to(np.int64(MISSING), len(part)) for part in parts]

    def joined(name: str, field: str) -> Integers:
        return flat(
            np.concatenate(
                [
                    getattr(part.devices[name], field) if name in part.devices else missing
                    for part, missing in zip(parts, unknown, strict=True)
                ]
            )
        )

    own = {field: flat(np.concatenate([getattr(part, field) for part in parts])) for field in SAMPLE_COLUMNS}
    devices = {name: DeviceSamples(**{field: joined(name, field) for field in DEVICE_FIELDS}) for name in names}
    return Samples(**own, devices=devices), sentence


class SamplesPart(NamedTuple):
    """The rows of one of several frames that were decoded together."""

    whole: Samples
    place: int
    frames: int

    @property
    def rows(self) -> slice:
        rows = len(self.whole) // self.frames
        return slice(self.place * rows, (self.place + 1) * rows)


def tables_of(parts: Sequence[SamplesPart]) -> list[Samples]:
    """The rows of all parts, in order; those of frames that were decoded together stay together if all are there."""
    tables, at = [], 0
    while at < len(parts):
        part = parts[at]
        together = [one.place for one in parts[at : at + part.frames] if one.whole is part.whole]
        if together == list(range(part.frames)):
            tables.append(part.whole)
            at += part.frames
        else:
            tables.append(take_rows(part.whole, part.rows))
            at += 1
    return tables


def samples_bytes(samples: Samples) -> int:
    columns = [getattr(samples, field) for field in SAMPLE_COLUMNS]
    columns += [getattr(figures, field) for figures in samples.devices.values() for field in DEVICE_FIELDS]
    return 500 + sum(100 + (column.nbytes if column.strides != (0,) else 0) for column in columns)


def shown_devices(counts: Mapping[str, int], rows: int, most: int, most_bytes: int) -> tuple[list[str], str | None]:
    """The devices with the most rows, at most `most` and as many as fit into `most_bytes` with `rows` rows each.

    Also returns a sentence if there are others.

    Args:
        counts: Device to the number of its rows, in display order.
    """
    fitting = max(1, most_bytes // (max(1, rows) * 8 * len(DEVICE_FIELDS)))
    names, room = list(counts), min(fitting, most)
    if len(names) <= room:
        return names, None
    kept = set(sorted(names, key=lambda name: -counts[name])[:room])
    reason = f"at most {most} are" if most <= fitting else f"{rows} rows of all devices would exceed {most_bytes} bytes"
    shown = [name for name in names if name in kept]
    return shown, f"{len(names) - room} of {len(names)} devices are not shown: {reason}"


def join_activations(parts: Sequence[LayerActivations]) -> tuple[LayerActivations, str | None]:
    """Concatenate the rows of `parts`, with the layers of all parts (`MISSING` where a part lacks one).

    Also returns a sentence if the last rows were left out to stay below `MAX_TABLE_BYTES`.
    """
    pieces = [piece for part in parts for piece in activation_rows_of(part).parts]
    layers = len({path for names in {piece.layers for piece in pieces} for path in names})
    rows, room = sum(map(len, pieces)), MAX_TABLE_BYTES // (8 * max(1, layers))
    if rows <= room:
        return table_of(ActivationRows(pieces)), None
    fitting, left = [], room
    for piece in pieces:
        cut = slice(0, left)
        table = LayerActivations(piece.step[cut], piece.wall_time[cut], piece.layers, piece.take(cut))
        fitting.append(piece if len(piece) <= left else part_of(table, piece.layers))
        left = max(0, left - len(piece))
        if not left:
            break
    return (
        table_of(ActivationRows(fitting)),
        f"activations of {rows - room} of {rows} rows are not shown: all would exceed {MAX_TABLE_BYTES} bytes",
    )


def rows_not_in(candidates: Samples, samples: Samples) -> npt.NDArray[np.bool_]:
    """Mask of the rows of `candidates` that are not in `samples`, by step, phase and time."""
    return ~np.isin(_row_keys(candidates), _row_keys(samples))


def _row_keys(samples: Samples) -> npt.NDArray[np.uint64]:
    place = samples.step.astype(np.uint64) * np.uint64(8) + samples.phase.astype(np.uint64)
    keys: npt.NDArray[np.uint64] = np.ascontiguousarray(samples.wall_time).view(np.uint64)
    keys = keys ^ (place * np.uint64(0x9E3779B97F4A7C15))
    return keys
