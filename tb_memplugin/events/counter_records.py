"""Frames of counters."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tb_memplugin.errors import FormatError
from tb_memplugin.events import fields
from tb_memplugin.events.codec import Frame
from tb_memplugin.model import COUNTER_KINDS, Counters

MAX_ROWS = 4096
"""Most rows of a frame."""


def counters_frame(counters: Counters, sequence: int) -> Frame:
    """Frame of one or more rows."""
    table: dict[str, Any] = {
        "step": counters.step,
        "kind": counters.kind,
        "name": counters.name,
        "count": counters.count,
        "bytes": counters.bytes,
        "detail": counters.detail,
    }
    return fields.make_frame("counters", sequence, counters.step, {}, {"counters": table})


def read_counters(frame: Frame) -> Counters:
    """Read the rows of a frame of stream ``counters``; rows of kinds that are unknown here are left out."""
    table = fields.table_of(frame, "counters")
    step, count = fields.steps_of(table), fields.integers(table, "count")
    if len(step) > MAX_ROWS:
        raise FormatError(f"frame of counters has {len(step)} rows; the limit is {MAX_ROWS}")
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
