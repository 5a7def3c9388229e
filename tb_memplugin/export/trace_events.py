"""A traced step as trace events (JSON), which Perfetto opens.

Each device is a process. Its tracks are the parts of the step, the allocated bytes, those of each
category, and the allocations of each layer: an allocation is a slice of its layer's track with a
slice of its op inside."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tb_memplugin.analysis import device_order
from tb_memplugin.errors import NotFoundError, RequestError
from tb_memplugin.schema import CATEGORIES, MISSING, PHASES, Integers, Timeline, live_sums, some
from tb_memplugin.storage import META, TIMELINES, Reader
from tb_memplugin.storage.files import FileSource
from tb_memplugin.storage.write import recordings

_STEP_TRACK = 1


def step_timelines(
    logdir: str, run: str | None, step: int, device: str | None = None, phase: str | None = None
) -> tuple[str, list[Timeline]]:
    """The name of a run (None if there is only one), and the timelines of a traced step, the
    accelerators first: one for each device, or of one device only, of one phase, by default the
    first of the step's.

    Raises:
        NotFoundError: There is no such run, or it has no such timeline.
        RequestError: There are several runs and none is named."""
    recordings.write_under(logdir)
    source, reader = FileSource(logdir), Reader()
    catalog = reader.catalog(source)
    if run is None and len(catalog) > 1:
        raise RequestError(f"several runs: choose one with --run. Available: {some(list(catalog))}")
    name = run or next(iter(catalog), "")
    every = reader.run(source, name, {META, TIMELINES}).run.timelines
    wanted = [one for one in every if device in (None, one.device) and phase in (None, one.phase)]
    of_step = [one for one in wanted if one.step == step]
    if not of_step:
        about = f" of phase {phase}" if phase else ""
        about += f" on {device}" if device else ""
        steps = sorted({one.step for one in wanted})
        raise NotFoundError(
            f"run {name} has no timeline of step {step}{about}; available steps: {some(steps)}"
        )
    first = min((one.phase for one in of_step), key=PHASES.index)
    of_phase = [one for one in of_step if one.phase == first]
    highest: dict[str, Timeline] = {}
    for timeline in of_phase:
        known = highest.setdefault(timeline.device, timeline)
        if timeline.in_use_bytes > known.in_use_bytes:
            highest[timeline.device] = timeline
    return name, [highest[device] for device in sorted(highest, key=device_order)]


def split_row_rounding(timeline: Timeline) -> tuple[Integers, Integers]:
    """Requested bytes and rounding of each row; all bytes count as requested where the rounding is
    unknown."""
    rounding = np.where(timeline.rounding_bytes == MISSING, 0, timeline.rounding_bytes)
    rounding = np.clip(rounding, 0, timeline.bytes)
    return timeline.bytes - rounding, rounding


def category_bytes(timeline: Timeline) -> dict[str, Integers]:
    """Bytes of each category at every moment, shape [moments] each, without categories that have
    none."""
    requested, rounding = split_row_rounding(timeline)
    moments = len(timeline.time_ns)
    of_owner = np.asarray([CATEGORIES.index(owner.category) for owner in timeline.owners], np.int64)
    category = of_owner[timeline.owner]
    totals = {
        name: live_sums(
            timeline.start, timeline.end, np.where(category == number, requested, 0), moments
        )
        for number, name in enumerate(CATEGORIES)
    }
    totals["rounding"] += live_sums(timeline.start, timeline.end, rounding, moments)
    return {name: total for name, total in totals.items() if total.any()}


def trace_events(run: str, timelines: Sequence[Timeline]) -> bytes:
    """The file's content: the timelines of a step, one for each device. Times are microseconds
    since its beginning."""
    events = [
        event for pid, timeline in enumerate(timelines, 1) for event in _of_device(pid, timeline)
    ]
    first = timelines[0]
    about = {"producer": "tb_memplugin", "run": run, "step": first.step, "phase": first.phase}
    trace = {"traceEvents": events, "displayTimeUnit": "ns", "otherData": about}
    return json.dumps(trace, separators=(",", ":"), allow_nan=False).encode()


def _of_device(pid: int, timeline: Timeline) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": timeline.device}}
    track = {"pid": pid, "tid": _STEP_TRACK}
    name = {"name": "parts of the step"}
    yield {"ph": "M", **track, "name": "thread_name", "args": name}
    moments = timeline.time_ns.tolist()
    # of each moment, and the end
    times = [time / 1000 for time in [*moments, max(timeline.duration_ns, moments[-1])]]
    for band in timeline.bands:
        start = times[band.start]
        yield {"ph": "X", **track, "name": band.name, "ts": start, "dur": times[band.end] - start}
    yield from _counters(pid, timeline, times)
    yield from _allocations(pid, timeline, times)


def _counters(pid: int, timeline: Timeline, times: Sequence[float]) -> Iterator[dict[str, Any]]:
    categories = {name: values.tolist() for name, values in category_bytes(timeline).items()}
    before: dict[str, int] = {}
    for moment in range(len(timeline.time_ns)):
        now = {name: values[moment] for name, values in categories.items()}
        changed = {name: value for name, value in now.items() if before.get(name) != value}
        if changed:
            about = {"ph": "C", "pid": pid, "ts": times[moment]}
            yield about | {"name": "allocated", "args": {"bytes": sum(now.values())}}
            yield about | {"name": "category", "args": changed}
        before = now


def _allocations(pid: int, timeline: Timeline, times: Sequence[float]) -> Iterator[dict[str, Any]]:
    requested, rounding = (values.tolist() for values in split_row_rounding(timeline))
    for row in range(len(timeline)):
        owner = timeline.owners[timeline.owner[row]]
        start, end = int(timeline.start[row]), int(timeline.end[row])
        arguments: dict[str, Any] = {
            "layer": owner.layer,
            "category": owner.category,
            "trainable": owner.trainable,
            "bytes": requested[row],
            "rounding_bytes": rounding[row],
            "allocations": int(timeline.count[row]),
            "line": _at(timeline.lines, int(timeline.line[row])),
            "allocated_before_the_step": start == 0,
            "outlives_the_step": end == len(timeline.time_ns),
        }
        shape = int(timeline.shape[row])
        if shape >= 0:
            arguments["shape"] = list(timeline.shapes[shape].shape)
            arguments["dtype"] = timeline.shapes[shape].dtype
        # Nested slices of one identifier lie on one track, which has the name of the outer one.
        about = {"pid": pid, "cat": owner.category, "id": f"{pid}.{row}"}
        layer, op = (
            owner.layer or "not tied to a layer",
            _at(timeline.ops, int(timeline.op[row])) or owner.category,
        )
        yield about | {"ph": "b", "name": layer, "ts": times[start]}
        known = {name: value for name, value in arguments.items() if value is not None}
        yield about | {"ph": "b", "name": op, "ts": times[start], "args": known}
        yield about | {"ph": "e", "name": op, "ts": times[end]}
        yield about | {"ph": "e", "name": layer, "ts": times[end]}


def _at(names: Sequence[str], index: int) -> str | None:
    return names[index] if index >= 0 else None
