"""Rows of samples and activations: joining and selecting."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tb_memplugin.model import MISSING, DeviceSamples, Integers, LayerActivations, Samples
from tb_memplugin.reader.limits import MAX_SESSION_DEVICES

MAX_TABLE_BYTES = 512 << 20
"""Limit of one joined table of one run; beyond it, columns (devices) or rows are left out."""

DEVICE_FIELDS = tuple(field.name for field in dataclasses.fields(DeviceSamples))


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
    """The given rows."""
    return dataclasses.replace(
        activations,
        step=activations.step[rows],
        wall_time=activations.wall_time[rows],
        bytes=activations.bytes[rows],
    )


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
    joined = Samples(
        step=np.concatenate([part.step for part in parts]),
        phase=np.concatenate([part.phase for part in parts]),
        epoch=np.concatenate([part.epoch for part in parts]),
        wall_time=np.concatenate([part.wall_time for part in parts]),
        host_resident_bytes=np.concatenate([part.host_resident_bytes for part in parts]),
        devices={name: _join_device(parts, name) for name in names},
    )
    return joined, sentence


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
    parts = [part for part in parts if len(part) and part.layers]
    if not parts:
        return empty_activations(), None
    columns: dict[str, int] = {}
    for layers in dict.fromkeys(part.layers for part in parts):
        for path in layers:
            columns.setdefault(path, len(columns))
    rows = sum(len(part) for part in parts)
    room = MAX_TABLE_BYTES // (8 * len(columns))
    sentence = None
    if rows > room:
        sentence = (
            f"activations of {rows - room} of {rows} rows are not shown: all would exceed {MAX_TABLE_BYTES} bytes"
        )
        rows = room
    elif len(parts) == 1:
        return parts[0], None
    values = np.full((rows, len(columns)), MISSING, np.int64)
    at = 0
    whole = tuple(columns)
    for part in parts:
        count = min(len(part), rows - at)
        if count <= 0:
            break
        if part.layers == whole:
            values[at : at + count] = part.bytes[:count]
        else:
            values[at : at + count, [columns[path] for path in part.layers]] = part.bytes[:count]
        at += count
    return (
        LayerActivations(
            step=np.concatenate([part.step for part in parts])[:rows],
            wall_time=np.concatenate([part.wall_time for part in parts])[:rows],
            layers=whole,
            bytes=values,
        ),
        sentence,
    )


def rows_not_in(candidates: Samples, samples: Samples) -> npt.NDArray[np.bool_]:
    """Mask of the rows of `candidates` that are not in `samples`, by step, phase and time."""
    return ~np.isin(_row_keys(candidates), _row_keys(samples))


def _row_keys(samples: Samples) -> npt.NDArray[np.uint64]:
    place = samples.step.astype(np.uint64) * np.uint64(8) + samples.phase.astype(np.uint64)
    keys: npt.NDArray[np.uint64] = np.ascontiguousarray(samples.wall_time).view(np.uint64)
    keys = keys ^ (place * np.uint64(0x9E3779B97F4A7C15))
    return keys


def _join_device(parts: Sequence[Samples], name: str) -> DeviceSamples:
    def column(field: str) -> Integers:
        pieces = [
            getattr(part.devices[name], field) if name in part.devices else np.full(len(part), MISSING, np.int64)
            for part in parts
        ]
        return np.concatenate(pieces)

    return DeviceSamples(**{field: column(field) for field in DEVICE_FIELDS})
