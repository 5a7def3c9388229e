"""A traced step as trace events (JSON), which Perfetto opens.

Each device is a process. Its tracks are the parts of the step, the allocated bytes, those of each category, and the
allocations of each layer: an allocation is a slice of its layer's track with a slice of its op inside.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from tb_memplugin.export.steps import category_bytes, split_row_rounding
from tb_memplugin.model import Timeline

_STEP_TRACK = 1


def trace_events(run: str, timelines: Sequence[Timeline]) -> bytes:
    """The file's content: the timelines of a step, one for each device. Times are microseconds since its beginning."""
    events = [event for pid, timeline in enumerate(timelines, 1) for event in _of_device(pid, timeline)]
    first = timelines[0]
    about = {"producer": "tb_memplugin", "run": run, "step": first.step, "phase": first.phase}
    trace = {"traceEvents": events, "displayTimeUnit": "ns", "otherData": about}
    return json.dumps(trace, separators=(",", ":"), allow_nan=False).encode()


def _of_device(pid: int, timeline: Timeline) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": timeline.device}}
    yield {"ph": "M", "pid": pid, "tid": _STEP_TRACK, "name": "thread_name", "args": {"name": "parts of the step"}}
    times = _times(timeline)
    for band in timeline.bands:
        about = {"ph": "X", "pid": pid, "tid": _STEP_TRACK, "name": band.name}
        yield about | {"ts": times[band.start], "dur": times[band.end] - times[band.start]}
    yield from _counters(pid, timeline, times)
    yield from _allocations(pid, timeline, times)


def _times(timeline: Timeline) -> list[float]:
    """Time of each moment, and of the step's end."""
    moments = timeline.time_ns.tolist()
    return [time / 1000 for time in [*moments, max(timeline.duration_ns, moments[-1])]]


def _counters(pid: int, timeline: Timeline, times: Sequence[float]) -> Iterator[dict[str, Any]]:
    """The allocated bytes at each moment, and each category's where they change."""
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
        layer, op = owner.layer or "not tied to a layer", _at(timeline.ops, int(timeline.op[row])) or owner.category
        yield about | {"ph": "b", "name": layer, "ts": times[start]}
        yield about | {
            "ph": "b",
            "name": op,
            "ts": times[start],
            "args": {name: value for name, value in arguments.items() if value is not None},
        }
        yield about | {"ph": "e", "name": op, "ts": times[end]}
        yield about | {"ph": "e", "name": layer, "ts": times[end]}


def _at(names: Sequence[str], index: int) -> str | None:
    return names[index] if index >= 0 else None
