"""Trace events, read by a small reader of Chrome's format: nested slices, counters, and
metadata."""

import collections
import dataclasses
import json
import pathlib
from typing import Any

import pytest
from export_cases import FIXTURES, TIMELINE_STEPS, recorded_ledger
from reading_cases import make_timeline, write_small_run

from tb_memplugin.errors import NotFoundError, RequestError
from tb_memplugin.export import step_timelines, trace_events
from tb_memplugin.storage.write import RunWriter


class Trace:
    """What a viewer makes of trace events: slices by track, and counters over time.

    Attributes:
        slices: (pid, track, name, depth, start, end, args) of nested asynchronous slices; a track
            has the name of its outermost slice.
        counters: (pid, counter) to (time, value) in order.
        complete: (thread's name, name, start, duration).
    """

    def __init__(self, content: bytes) -> None:
        trace = json.loads(content)
        self.about = trace["otherData"]
        self.slices: list[tuple[int, str, str, int, float, float, dict[str, Any]]] = []
        self.counters: dict[tuple[int, str], list[tuple[float, int]]] = collections.defaultdict(
            list
        )
        self.complete: list[tuple[str, str, float, float]] = []
        self.processes: dict[int, str] = {}
        threads: dict[tuple[int, int], str] = {}
        open_slices: dict[tuple[str, str], list[dict[str, Any]]] = collections.defaultdict(list)
        events = trace["traceEvents"]
        # viewers sort by time, and keep the order of the file at equal times
        for event in sorted(events, key=lambda event: event.get("ts", 0)):
            kind, key = event["ph"], (event.get("cat", ""), event.get("id", ""))
            if kind == "M" and event["name"] == "process_name":
                self.processes[event["pid"]] = event["args"]["name"]
            elif kind == "M":
                threads[event["pid"], event["tid"]] = event["args"]["name"]
            elif kind == "C":
                for name, value in event["args"].items():
                    self.counters[event["pid"], f"{event['name']} {name}"].append(
                        (event["ts"], value)
                    )
            elif kind == "X":
                thread = threads[event["pid"], event["tid"]]
                self.complete.append((thread, event["name"], event["ts"], event["dur"]))
            elif kind == "b":
                open_slices[key].append(event)
            elif kind == "e":
                begun = open_slices[key].pop()
                assert begun["name"] == event["name"], "slices must nest"
                track = open_slices[key][0]["name"] if open_slices[key] else event["name"]
                depth = len(open_slices[key])
                self.slices.append(
                    (
                        event["pid"],
                        track,
                        event["name"],
                        depth,
                        begun["ts"],
                        event["ts"],
                        begun.get("args", {}),
                    )
                )
            else:
                raise AssertionError(f"unknown kind of event: {kind}")
        assert not any(open_slices.values()), "each slice must end"


def test_a_known_step_has_its_slices_and_counters() -> None:
    timeline = make_timeline(3)
    trace = Trace(trace_events("small", [timeline]))
    assert trace.about == {"producer": "tb_memplugin", "run": "small", "step": 3, "phase": "train"}
    assert trace.processes == {1: "CPU:0"}
    assert trace.complete == [
        ("parts of the step", "forward", 0, 700),
        ("parts of the step", "backward", 700, 500),
        ("parts of the step", "backward_and_update", 1200, 300),
        ("parts of the step", "update", 1500, 300),
    ]
    # an allocation is on its layer's track, with its op inside
    relu = next(one for one in trace.slices if one[2] == "model/backbone/Relu")
    assert relu[:6] == (1, "model/backbone", "model/backbone/Relu", 1, 700, 1500)
    assert relu[6]["category"] == "activations" and relu[6]["line"] == "train.py:42"
    assert relu[6]["bytes"] + relu[6]["rounding_bytes"] == 100 << 20
    assert (relu[6]["shape"], relu[6]["dtype"]) == ([128, 204_799], "float32")
    assert not relu[6]["allocated_before_the_step"] and not relu[6]["outlives_the_step"]
    weights = next(one for one in trace.slices if one[6].get("trainable") is False)
    assert weights[4:6] == (0, 1800) and weights[6]["outlives_the_step"]
    totals = trace.counters[1, "allocated bytes"]
    assert [time for time, _ in totals] == [0, 700, 1500] and totals[1][1] == timeline.in_use_bytes


@pytest.mark.parametrize("step", [TIMELINE_STEPS[0], TIMELINE_STEPS[-1]])
def test_counters_and_slices_of_a_recorded_step_agree_with_its_ledger(step: int) -> None:
    name, timelines = step_timelines(str(FIXTURES), "out_of_memory", step)
    (timeline,) = timelines
    trace = Trace(trace_events(name, timelines))
    ledger = recorded_ledger(timeline)
    assert max(value for _, value in trace.counters[1, "allocated bytes"]) == timeline.in_use_bytes
    # the ledger by layer and category, from the slices that are open at the peak's moment
    peak = timeline.time_ns[timeline.peak] / 1000
    if (
        timeline.peak + 1 == len(timeline.time_ns)
        or timeline.time_ns[timeline.peak + 1] / 1000 > peak
    ):
        found: collections.Counter[tuple[Any, str]] = collections.Counter()
        for _, _, _, depth, start, end, about in trace.slices:
            if depth == 1 and start <= peak < end:
                found[about.get("layer"), about["category"]] += about["bytes"]
                found[about.get("layer"), "rounding"] += about["rounding_bytes"]
        assert +found == ledger
    by_category: collections.Counter[str] = collections.Counter()
    for (_, category), size in ledger.items():
        by_category[category] += size
    at_peak = {
        counter.removeprefix("category "): [value for time, value in values if time <= peak][-1]
        for (_, counter), values in trace.counters.items()
        if counter.startswith("category ")
    }
    assert {name: value for name, value in at_peak.items() if value} == by_category
    assert sum(depth == 1 for _, _, _, depth, *_ in trace.slices) == len(timeline)


def test_the_run_step_device_and_phase_select(tmp_path: pathlib.Path) -> None:
    writer = RunWriter(tmp_path / "run")
    for device, phase in (("CPU:0", "train"), ("GPU:0", "train"), ("GPU:0", "validation")):
        writer.traced(make_timeline(3, device=device, phase=phase))  # type: ignore[arg-type]
    lower = make_timeline(3, device="GPU:0")
    writer.traced(dataclasses.replace(lower, in_use_bytes=lower.in_use_bytes - 1))
    writer.close()
    name, timelines = step_timelines(str(tmp_path), None, 3)
    # THEN accelerators come first, of two timelines that of the higher peak
    assert name == "run"
    assert [(one.device, one.phase) for one in timelines] == [
        ("GPU:0", "train"),
        ("CPU:0", "train"),
    ]
    assert timelines[0].in_use_bytes == lower.in_use_bytes
    _, (validation,) = step_timelines(str(tmp_path), "run", 3, phase="validation")
    assert (validation.device, validation.phase) == ("GPU:0", "validation")
    _, (cpu,) = step_timelines(str(tmp_path), "run", 3, device="CPU:0")
    assert cpu.device == "CPU:0"


def test_what_does_not_exist_names_what_does(tmp_path: pathlib.Path) -> None:
    write_small_run(tmp_path / "one", allocator=True)
    with pytest.raises(NotFoundError, match="no timeline of step 4; available steps: 3"):
        step_timelines(str(tmp_path), "one", 4)
    with pytest.raises(NotFoundError, match="of phase validation on CPU:0; available steps: none"):
        step_timelines(str(tmp_path), "one", 3, "CPU:0", "validation")
    with pytest.raises(NotFoundError, match="onee"):
        step_timelines(str(tmp_path), "onee", 3)
    write_small_run(tmp_path / "two")
    with pytest.raises(RequestError, match="one, two"):
        step_timelines(str(tmp_path), None, 3)
