"""The quantities of `quantities` in the answers of ``inspect``, as JSON and as text."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from quantities import ALL, Sighting, Value, words

PERSISTENT = ("weights", "optimizer_state", "other_state", "held_tensors")
SIDES = {True: "trainable", False: "frozen", None: "other"}


def json_sightings(name: str, run: Mapping[str, Any]) -> Iterator[Sighting]:
    """Every figure of a run in ``inspect --format json``."""
    for quantity, value in _quantities(run):
        yield Sighting(f"{name}: {quantity}", value, "inspect --format json")


def _quantities(run: Mapping[str, Any]) -> Iterator[tuple[str, Value | None]]:
    for device in run["devices"].values():
        yield "capacity", device["capacity_bytes"]
        yield f"bytes in use at the peak of step {device['peak_step']}", device["peak_bytes"]
    for layer in run["layers"]:
        yield f"parameters of layer {layer['path']}", layer["parameters"]
        yield f"output of layer {layer['path']}", layer["output_bytes"]
        yield f"weights of layer {layer['path']}", layer["weight_bytes"]
    yield f"weights of layer {ALL}", sum(layer["weight_bytes"] for layer in run["layers"]) or None
    for snapshot in run["snapshots"]:
        yield from _of_snapshot(snapshot)
    for oom in run["oom"][-1:]:
        yield from _of_failure(oom)
    for recorded in run["activations"]:
        yield (
            (f"recorded activations of layer {recorded['layer']} at step last"),
            recorded["last_bytes"],
        )
    for answers in run["answers"].values():
        yield from _of_answers(answers)


def _of_snapshot(snapshot: Mapping[str, Any]) -> Iterator[tuple[str, Value | None]]:
    step = snapshot["step"]
    peak = f"at the peak of step {step}"
    used, pool, largest = (
        snapshot[name] for name in ("in_use_bytes", "pool_bytes", "largest_free_bytes")
    )
    yield f"bytes in use {peak}", used
    yield "capacity", snapshot["capacity_bytes"]
    if snapshot["capacity_bytes"] is not None:
        yield f"headroom at step {step}", snapshot["capacity_bytes"] - used
    if pool is not None and largest is not None:
        yield f"pool {peak}", pool
        yield f"free bytes {peak}", pool - used
        yield f"largest free chunk {peak}", largest
        yield f"other free chunks {peak}", pool - used - largest
        yield f"unreserved {peak}", snapshot["capacity_bytes"] - pool
        yield f"utilisation {peak}", used / pool
        yield f"fragmentation {peak}", snapshot["fragmentation"]
    yield f"rounding {peak}", snapshot["rounding_bytes"]
    for group in snapshot["held_tensors"]:
        key = json.dumps([group["shape"], group["dtype"], group["held_by"]], separators=(",", ":"))
        yield f"held tensors {key} at step {step}", group["bytes"]
    sums: dict[str, int] = defaultdict(int)
    for row in snapshot["ledger"]:
        category, size, layer = row["category"], row["bytes"], row["layer"] or ""
        side = SIDES[row["trainable"]]
        split = side if category == "weights" and side != "other" else None
        sums[f"{words(category, split)} {peak}"] += size
        sums[f"{words(category, None)} of {side} {peak}"] += 0 if split else size
        sums[
            f"memory without a known layer {peak}" if side == "other" else f"{side} layers {peak}"
        ] += size
        for whose in (layer, ALL):
            sums[f"{words(category, None)} of layer {whose} {peak}"] += size
            sums[f"layer {whose} {peak}"] += size
            for name in ("persistent memory", "persistent + saved"):
                sums[f"{name} of layer {whose} at step {step}"] += (
                    size if category in PERSISTENT else 0
                )
            sums[f"saved memory of layer {whose} at step {step}"] += 0
        if category == "weights":
            sums[f"weights of layer {layer}"] += size
            sums[f"weights of layer {ALL}"] += size
    for row in snapshot["saved_for_backward"]:
        for whose in (row["layer"] or "", ALL):
            for name in ("saved memory", "persistent + saved"):
                sums[f"{name} of layer {whose} at step {step}"] += row["bytes"]
    yield from sums.items()


def _of_failure(oom: Mapping[str, Any]) -> Iterator[tuple[str, Value | None]]:
    yield "capacity", oom["capacity_bytes"]
    yield "request at the failure", oom["requested_bytes"]
    yield "bytes in use at the failure", oom["in_use_bytes"]
    yield "free bytes at the failure", oom["free_bytes"]
    yield "largest free chunk at the failure", oom["largest_free_bytes"]
    yield "pool at the failure", oom["pool_bytes"]
    sums: dict[str, int] = defaultdict(int)
    for row in oom["ledger"]:
        split = row["trainable"] is not None and row["category"] == "weights"
        sums[f"layer {row['layer'] or ''} at the failure"] += row["bytes"]
        sums[f"{words(row['category'], None)} at the failure"] += row["bytes"]
        if split:
            sums[f"{words('weights', SIDES[row['trainable']])} at the failure"] += row["bytes"]
    yield from sums.items()


def _of_answers(answers: list[Mapping[str, Any]]) -> Iterator[tuple[str, Value | None]]:
    fits, growing, _, changed = answers
    for answer in (growing, changed):
        for name, value in answer["figures"].items():
            yield f"{answer['name']}:{name}", value
    if fits["status"] != "failed" and "peak_bytes" in fits["figures"]:
        yield (
            (f"bytes in use at the peak of step {fits['evidence']['step']}"),
            fits["figures"]["peak_bytes"],
        )
        yield f"headroom at step {fits['evidence']['step']}", fits["figures"]["headroom_bytes"]


SIZE = r"[<>]?-?[\d.]+ [KMGTP]?i?B"
SHARES = "+([KMGTP]?i?B) +share"
TRACED = (
    rf"(?:traced|failed) step (\d+) \(train[^)]*\): ({SIZE}) "
    r"in "
    r"use "
    r"at "
    r"the "
    r"(?:peak|failed "
    r"allocation)"
)


def text_sightings(name: str, text: str) -> Iterator[Sighting]:
    """The rounded sizes of a run in the text of ``inspect``."""
    for quantity, value in _texts(text + "\n"):
        yield Sighting(f"{name}: {quantity}", value, "inspect")


def _texts(text: str) -> Iterator[tuple[str, Value]]:
    yield from _device_row(text)
    if traced := re.search(TRACED, text):
        peak = f"at the peak of step {traced[1]}"
        yield f"bytes in use {peak}", traced[2]
        if pool := re.search(
            rf"  pool ({SIZE}), .*? in "
            r"use, "
            rf"({SIZE}) "
            r"free: "
            r"largest "
            r"chunk "
            rf"({SIZE})",
            text,
        ):
            for place, what in enumerate(("pool", "free bytes", "largest free chunk")):
                yield f"{what} {peak}", pool[place + 1]
        for cells, size in _table(text, f"by category {SHARES}", 1):
            yield f"{cells[0]} {peak}", size
        for (layer, category, *_), size in _table(text, f"by layer and category {SHARES}", 2):
            whose = "" if layer == "not tied to a layer" else layer
            yield f"{category} of layer {whose} {peak}", size
    for cells, size in _table(text, r"layer .*weights (\S+) +optimizer \S+", -2):
        yield f"weights of layer {cells[0]}", size
    yield from _table_totals(text)
    figures = (
        rf"  in use ({SIZE}), free ({SIZE}), largest "
        r"free "
        r"chunk "
        rf"({SIZE}), "
        r"pool "
        rf"({SIZE}), "
        rf"capacity ({SIZE})"
    )
    if failure := re.search(figures, text):
        for place, what in enumerate(("bytes in use", "free bytes", "largest free chunk", "pool")):
            yield f"{what} at the failure", failure[place + 1]
        yield "capacity", failure[5]
    if requested := re.search(rf"ran out of memory at step \d+ \(\w+\): ({SIZE}) requested", text):
        yield "request at the failure", requested[1]


def _table_totals(text: str) -> Iterator[tuple[str, Value]]:
    title = rf"layers from step (\d+) on: (\d+) trainable with ({SIZE}), (\d+) frozen with ({SIZE})"
    if found := re.search(title, text):
        for side, layers, weights in (("trainable", 2, 3), ("frozen", 4, 5)):
            yield f"{side} layers from step {found[1]}", int(found[layers])
            yield f"{side} weights from step {found[1]}", found[weights]


def _device_row(text: str) -> Iterator[tuple[str, str]]:
    row = (
        r"^  device +peak (\S+) +capacity \S+ +headroom.*\n  "
        r"\S+ "
        r"+(\S+) "
        r"+(\S+) "
        r"+(\S+) "
        r"+.*? "
        r"(\d+) +\d+$"
    )
    if head := re.search(row, text, re.M):
        unit, peak, capacity, headroom, step = head.groups()
        yield f"bytes in use at the peak of step {step}", f"{peak} {unit}"
        yield "capacity", f"{capacity} {unit}"
        if headroom != "–":
            yield f"headroom at step {step}", f"{headroom} {unit}"


def _table(text: str, head: str, size: int) -> Iterator[tuple[list[str], str]]:
    """The cells of each row of the table under a head that names a unit, and the size in one of
    them."""
    found = re.search(rf"^  {head}\n((?:  .+\n)+)", text, re.M)
    for line in found[2].splitlines() if found else ():
        cells = re.split(r" {2,}", line.strip())
        if not re.match(r"\d+ more$", cells[0]):
            yield cells, f"{cells[size]} {found[1]}"  # type: ignore[index]
