"""Rows of samples and activations: joining and selecting."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tb_memplugin.model import LayerActivations, Samples
from tb_memplugin.reader.activation_rows import ActivationRows, part_of, rows_of, table_of
from tb_memplugin.reader.device_columns import DEVICE_FIELDS, DeviceColumns, columns_of, compact, flat
from tb_memplugin.reader.limits import MAX_SESSION_DEVICES
from tb_memplugin.reader.narrow import Narrow, joined

MAX_TABLE_BYTES = 512 << 20
"""Limit of one joined table of one run once it is read as a whole; beyond it, devices or rows are left out."""


def empty_samples() -> Samples:
    """No rows."""
    none = np.empty(0, np.int64)
    return Samples(none, none, none, np.empty(0, np.float64), none, {})


def empty_activations() -> LayerActivations:
    """No rows."""
    return LayerActivations(np.empty(0, np.int64), np.empty(0, np.float64), (), np.empty((0, 0), np.int64))


def take_activations(
    activations: LayerActivations, rows: npt.NDArray[np.intp] | npt.NDArray[np.bool_]
) -> LayerActivations:
    """The given rows; a mask takes them from each part."""
    recorded = rows_of(activations)
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
            kept = LayerActivations(part.step[keep], part.wall_time[keep], part.layers, part.bytes()[keep])
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
        return compact(parts[0]), None
    rows = sum(len(part) for part in parts)
    counts: dict[str, int] = {}
    for part in parts:
        for name in part.devices:
            counts[name] = counts.get(name, 0) + len(part)
    names, sentence = shown_devices(counts, rows, MAX_SESSION_DEVICES, MAX_TABLE_BYTES)
    columns = [columns_of(part) for part in parts]
    table = Samples(
        step=np.concatenate([part.step for part in parts]),
        phase=flat(np.concatenate([part.phase for part in parts])),
        epoch=flat(np.concatenate([part.epoch for part in parts])),
        wall_time=np.concatenate([part.wall_time for part in parts]),
        host_resident_bytes=flat(np.concatenate([part.host_resident_bytes for part in parts])),
        devices=DeviceColumns({name: _join_device(parts, columns, name) for name in names}),
    )
    return table, sentence


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
    pieces = [piece for part in parts for piece in rows_of(part).parts]
    layers = len({path for names in {piece.layers for piece in pieces} for path in names})
    rows, room = sum(map(len, pieces)), MAX_TABLE_BYTES // (8 * max(1, layers))
    if rows <= room:
        return table_of(ActivationRows(pieces)), None
    fitting, left = [], room
    for piece in pieces:
        cut = slice(0, left)
        table = LayerActivations(piece.step[cut], piece.wall_time[cut], piece.layers, piece.bytes()[cut])
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


def _join_device(
    parts: Sequence[Samples], columns: Sequence[Mapping[str, tuple[Narrow, ...]]], name: str
) -> tuple[Narrow, ...]:
    of_parts = [of_part.get(name) for of_part in columns]
    return tuple(
        joined([len(part) if found is None else found[at] for part, found in zip(parts, of_parts, strict=True)])
        for at in range(len(DEVICE_FIELDS))
    )
