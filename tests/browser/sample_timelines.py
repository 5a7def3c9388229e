"""Timelines for the page's tests: at the peak, the ledger of `sample_runs` is live."""

import json

import numpy as np
import numpy.typing as npt
import sample_runs
from sample_allocator import pieces
from sample_runs import MIB, Plan

from tb_memplugin.schema import MISSING, Band, ChunkOwner, CompiledSpan, Timeline

Integers = npt.NDArray[np.int64]

NO_TIMELINE_STEP = 235
"""The traced step whose timeline was not kept."""
STAYS = ("weights", "optimizer_state", "other_state", "held_tensors", "unattributed")
LARGEST_PIECE = 4 * MIB


def timeline_of(plan: Plan, step: int, *, planned: bool = False) -> Timeline:
    """What moves comes piece after piece up to the peak, and goes in the same order; what stays is
    always there."""
    snapshot = sample_runs.snapshot_at(plan, step)
    ledger = sorted(sample_runs.allocated_at(plan, step), key=lambda row: row.category)
    moving = []
    for owner, row in enumerate(ledger):
        if row.category not in STAYS:
            moving += [(owner, size, 0) for size in pieces(row.bytes, LARGEST_PIECE)]
            moving[-1] = (*moving[-1][:2], row.rounding_bytes or 0)
    peak = len(moving)
    moments = 2 * peak + 2
    rows = [
        (
            0,
            moments,
            row.bytes,
            MISSING if row.rounding_bytes is None else row.rounding_bytes,
            owner,
            -1,
        )
        for owner, row in enumerate(ledger)
        if row.category in STAYS
    ]
    rows += [
        (at + 1, peak + at + 2, size, rounding, owner, owner)
        for at, (owner, size, rounding) in enumerate(moving)
    ]
    start, end, sizes, rounding, owners, ops = np.asarray(rows, np.int64).T
    return Timeline(
        step=step,
        phase="train",
        device=plan.device,
        wall_time=snapshot.wall_time,
        mode=snapshot.mode,
        in_use_bytes=snapshot.in_use_bytes,
        peak=peak,
        events=moments - 1,
        duration_ns=moments * 500_000,
        time_ns=np.arange(moments) * 500_000,
        event=np.arange(moments),
        start=start,
        end=end,
        bytes=sizes,
        rounding_bytes=rounding,
        count=np.asarray(
            [0 if ledger[owner].category == "unattributed" else 1 for owner in owners]
        ),
        owner=owners,
        op=ops,
        address=np.full(len(ops), -1),
        shape=np.full(len(ops), -1),
        line=np.full(len(ops), -1),
        owners=tuple(ChunkOwner(row.layer, row.category, row.trainable) for row in ledger),
        ops=tuple(f"{row.layer or 'data'}/{row.category}" for row in ledger),
        shapes=(),
        lines=(),
        bands=(
            Band("forward", 0, peak + 1),
            Band("backward", peak + 1, peak + 3),
            Band("backward_and_update", peak + 3, moments - 6),
            Band("update", moments - 6, moments),
        ),
        compiled=(CompiledSpan(2, moments - 2),) if planned else (),
        not_available=(
            "Measured times inside compiled modules are not available, because this is a sample.",
        )
        if planned
        else (),
    )


LINES = ("train.py:42", "models/vgg.py:7")


def addresses_of(start: Integers, end: Integers, sizes: Integers) -> Integers:
    """First fit: each row at the lowest address that is free when it is allocated."""
    places = np.zeros(len(start), np.int64)
    live: list[tuple[int, int, int]] = []
    for row in np.argsort(start, kind="stable").tolist():
        live = sorted(one for one in live if one[2] > start[row])
        place = 0
        for low, high, _ in live:
            if low - place >= sizes[row]:
                break
            place = max(place, high)
        places[row] = place
        live.append((place, place + int(sizes[row]), int(end[row])))
    return places


def detailed(answer: bytes) -> bytes:
    """The answer of the route `timeline` with addresses, shapes and lines; those of unattributed
    rows are unknown."""
    length = int.from_bytes(answer[:4], "little")
    head = json.loads(answer[4 : 4 + length])
    rows, first = head["rows"], -(-(4 + length) // 8) * 8
    values = np.frombuffer(answer, "<f8", rows * len(head["columns"]), first).reshape(-1, rows)
    columns = dict(zip(head["columns"], values, strict=True))
    known = columns["count"] == 1
    whole = [columns[name].astype(np.int64) for name in ("start", "end", "bytes")]
    columns["address"] = np.where(known, addresses_of(*whole), np.nan)
    columns["shape"] = np.where(known, np.arange(rows), np.nan)
    columns["line"] = np.where(known, np.arange(rows) % len(LINES), np.nan)
    requested = columns["bytes"] - np.nan_to_num(columns["rounding_bytes"])
    shapes = [{"shape": [2, int(size) // 2], "dtype": "uint8"} for size in requested]
    text = json.dumps({**head, "columns": list(columns), "shapes": shapes, "lines": LINES}).encode()
    padding = b"\0" * (-(4 + len(text)) % 8)
    return (
        len(text).to_bytes(4, "little")
        + text
        + padding
        + np.stack(list(columns.values())).astype("<f8").tobytes()
    )
