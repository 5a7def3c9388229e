"""All devices and workers side by side, from written runs whose figures are stated here; and a
worker's summary from those of its sessions, against that from its history."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from reading_cases import MIB, START, equal, make_samples, make_snapshot
from reading_cases import make_run as any_run
from rollup_cases import rollups_of

import tb_memplugin
from tb_memplugin.analysis import (
    describe_devices,
    device_order,
    most_loaded,
    of_sessions,
    summarize_session,
)
from tb_memplugin.schema import NO_SAMPLES, Run, Samples, Snapshot, WorkerSummary
from tb_memplugin.storage.write import RunWriter

GIB = 1024 * MIB


def make_run(
    samples: Samples | None = None, snapshots: Sequence[Snapshot] = (), ended: bool | None = True
) -> Run:
    samples = NO_SAMPLES if samples is None else samples
    return any_run(samples, snapshots=tuple(snapshots), session_starts=(START,), ended=ended)


def two_gpus(
    peaks: dict[str, list[int]], steps: Sequence[int] | None = None, **changes: Any
) -> Samples:
    count = len(next(iter(peaks.values())))
    parts = {
        name: make_samples(steps or range(count), values, device=name)
        for name, values in peaks.items()
    }
    samples = next(iter(parts.values()))
    devices = {
        name: dataclasses.replace(part.devices[name], **changes) for name, part in parts.items()
    }
    return dataclasses.replace(samples, devices=devices)


def test_devices_of_one_process_stand_side_by_side() -> None:
    samples = two_gpus(
        {"GPU:0": [100 * MIB, 900 * MIB, 400 * MIB], "GPU:1": [300 * MIB, 600 * MIB, 500 * MIB]}
    )
    told = describe_devices({"": make_run(samples)}, "train")
    # The capacity of `make_samples` is 2,048 MiB.
    assert [
        (
            one["device"],
            one["peak_bytes"] // MIB,
            one["peak_step"],
            one["headroom_bytes"] // MIB,
            one["rows"],
        )
        for one in told["devices"]
    ] == [("GPU:0", 900, 1, 1148, 3), ("GPU:1", 600, 1, 1448, 3)]
    assert [one["last_in_use_bytes"] // MIB for one in told["devices"]] == [399, 499]
    assert told["imbalance"]["bytes"] == 300 * MIB
    assert (told["imbalance"]["largest"], told["imbalance"]["smallest"]) == ("GPU:0", "GPU:1")
    assert told["imbalance"]["sentence"] == (
        "GPU:0 peaks at 900 MiB, 300 MiB more than GPU:1 at 600 MiB"
    )
    assert told["sum_peak_bytes"] == 1500 * MIB
    assert told["most_loaded"] == "GPU:0"
    steps = told["steps"]
    assert steps["step"] == [0, 1, 2]
    assert [size // MIB for size in steps["max_peak_bytes"]] == [300, 900, 500]
    assert [size // MIB for size in steps["min_peak_bytes"]] == [100, 600, 400]
    assert [size // MIB for size in steps["sum_in_use_bytes"]] == [398, 1498, 898]


def test_a_cpu_beside_accelerators_is_listed_and_not_compared() -> None:
    samples = two_gpus({"CPU:0": [5000 * MIB], "GPU:0": [100 * MIB], "GPU:1": [200 * MIB]})
    told = describe_devices({"": make_run(samples)}, "train")
    assert [one["device"] for one in told["devices"]] == ["GPU:0", "GPU:1", "CPU:0"]
    assert told["most_loaded"] == "GPU:1" and told["sum_peak_bytes"] == 300 * MIB
    assert told["imbalance"]["bytes"] == 100 * MIB and told["steps"]["max_peak_bytes"] == [
        200 * MIB
    ]


def test_workers_and_devices_are_in_natural_order() -> None:
    by_worker = {
        f"worker_{at}": make_run(two_gpus({"GPU:10": [MIB], "GPU:2": [MIB]})) for at in (10, 2)
    }
    told = describe_devices(by_worker, "train")
    assert [one["worker"] for one in told["workers"]] == ["worker_2", "worker_10"]
    assert [one["device"] for one in told["devices"]] == [
        "worker_2/GPU:2",
        "worker_2/GPU:10",
        "worker_10/GPU:2",
        "worker_10/GPU:10",
    ]
    assert sorted(["w/CPU:0", "w/GPU:0"], key=device_order) == ["w/GPU:0", "w/CPU:0"]


def traced(step: int, device: str, peak: int) -> Snapshot:
    """A snapshot with this peak: weights and unattributed bytes of `make_snapshot` are 4,006,096
    bytes."""
    return make_snapshot(step, device=device, activations=peak - 4_006_096)


def test_breakdowns_are_of_the_step_that_all_devices_traced() -> None:
    # GIVEN two devices that traced steps 3 and 5 both; the first traced a higher peak at step 7
    # alone
    first = [
        traced(step, "GPU:0", size)
        for step, size in ((3, 100 * MIB), (5, 120 * MIB), (7, 200 * MIB))
    ]
    second = [traced(step, "GPU:1", 110 * MIB) for step in (3, 5)]
    told = describe_devices({"": make_run(snapshots=[*first, *second])}, "train")
    # THEN both show step 5, where the higher of the common peaks is, and the parts sum to that peak
    assert [one["breakdown"]["step"] for one in told["devices"]] == [5, 5]
    assert [one["breakdown"]["peak_bytes"] // MIB for one in told["devices"]] == [120, 110]
    for one in told["devices"]:
        assert (
            sum(part["bytes"] for part in one["breakdown"]["parts"])
            == one["breakdown"]["peak_bytes"]
        )
    # AND the sentence on their peaks says in which category they differ
    assert told["imbalance"]["sentence"].endswith(
        "; in step 5 they differ most in activations, 10.0 MiB more"
    )
    # AND without a common step each shows its own, a device without snapshots none
    samples = two_gpus({"GPU:2": [MIB]})
    alone = describe_devices(
        {"": make_run(samples, [*first, second[0], make_snapshot(9, device="GPU:3")][2:])}, "train"
    )
    shown = {
        one["device"]: one["breakdown"] and one["breakdown"]["step"] for one in alone["devices"]
    }
    assert shown == {"GPU:0": 7, "GPU:1": 3, "GPU:2": None, "GPU:3": 9}


def late(steps: Sequence[int], seconds: float = 0.0) -> Samples:
    return make_samples(steps, [100 * MIB] * len(steps), device="GPU:0", start=START + seconds)


@pytest.mark.parametrize(
    ("others", "stops"),
    [
        ([(118, 0.0, True)], True),  # the other has ended
        ([(118, 0.0, False)], False),  # 19 s behind: it writes every few seconds
        ([(400, 0.0, False)], True),  # 160 s behind
        ([(81, 0.0, True)], False),  # nobody went on
        # the other's clock is an hour ahead, and its last flush came earlier
        ([(121, 3600.0, False)], False),
        ([(500, 0.0, True), (5, 0.0, None)], True),
    ],
)
@pytest.mark.parametrize("ended", [False, True, None])
def test_a_worker_has_stopped_if_others_went_on_without_it_and_it_did_not_say_that_it_ended(
    others: list[tuple[int, float, bool | None]], stops: bool, ended: bool | None
) -> None:
    workers = {"worker_0": make_run(late(range(81)), ended=ended)}
    for at, (steps, seconds, other_ended) in enumerate(others):
        workers[f"worker_{at + 1}"] = make_run(late(range(steps), seconds), ended=other_ended)
    first, *rest = describe_devices(workers, "train")["workers"]
    assert first["ended"] == (ended is True) and first["last_step"] == 80
    assert [one["stopped_early"] for one in rest if one["ended"]] == [None] * sum(
        one[2] is True for one in others
    )
    went_on = "the other went on" if len(others) == 1 else "the others went on"
    sentence = f"worker_0 recorded nothing after step 80; {went_on} to step {others[0][0] - 1}"
    assert first["stopped_early"] == (sentence if stops and ended is False else None)


def test_the_clock_of_a_worker_is_compared_at_the_steps_that_both_recorded() -> None:
    # GIVEN a clock 7.25 s ahead; one of the first 20 steps ended half a step later there
    ahead = late(range(5, 30), 7.25)
    ahead.wall_time[3] += 0.25
    workers = {
        "a": make_run(late(range(20))),
        "b": make_run(ahead),
        "c": make_run(late([100, 101, 102])),
    }
    offsets = [one["clock_offset_seconds"] for one in describe_devices(workers, "train")["workers"]]
    assert offsets == [0.0, 7.25, None]
    # AND a worker that trains at another pace does not train in step: nothing is known of its clock
    own_pace = dataclasses.replace(late(range(20)), wall_time=START + 2.0 * np.arange(20))
    workers = {"a": make_run(late(range(20))), "b": make_run(own_pace)}
    assert describe_devices(workers, "train")["workers"][1]["clock_offset_seconds"] is None


def test_the_sum_is_unknown_at_steps_that_a_device_lacks() -> None:
    workers = {"a": make_run(late(range(3))), "b": make_run(late(range(1, 5)))}
    steps = describe_devices(workers, "train")["steps"]
    assert steps["step"] == [0, 1, 2, 3, 4]
    assert steps["sum_in_use_bytes"] == [None, 198 * MIB, 198 * MIB, None, None]
    assert steps["max_peak_bytes"] == [100 * MIB] * 5


def test_a_device_in_another_phase_only_is_left_out() -> None:
    validating = make_samples(range(3), [7 * MIB] * 3, device="GPU:0", phase="validation")
    told = describe_devices(
        {"a": make_run(validating), "b": make_run(late(range(3)))}, "validation"
    )
    assert [one["device"] for one in told["devices"]] == ["a/GPU:0"] and len(told["workers"]) == 2


def test_most_loaded_is_relative_to_the_capacity() -> None:
    assert most_loaded({"GPU:0": (10 * GIB, 80 * GIB), "GPU:1": (9 * GIB, 16 * GIB)}) == "GPU:1"
    assert most_loaded({"GPU:0": (10 * GIB, 80 * GIB), "GPU:1": (9 * GIB, None)}) == "GPU:0"
    assert most_loaded({"GPU:0": (None, GIB), "CPU:0": (5, 10)}) == "CPU:0"
    assert most_loaded({"worker_0/CPU:0": (9, 10), "worker_1/GPU:0": (1, 10)}) == "worker_1/GPU:0"
    assert most_loaded({}) is None


def test_a_run_without_records_has_an_answer() -> None:
    told = describe_devices({"": make_run(ended=None)}, "train")
    assert told["devices"] == [] and told["imbalance"] is None and told["sum_peak_bytes"] == 0
    columns = {name: values for name, values in told["steps"].items() if values is not None}
    assert columns == {"step": [], "max_peak_bytes": [], "min_peak_bytes": []}


def test_many_steps_are_reduced_and_keep_the_extremes() -> None:
    peaks = {"GPU:0": [10 * MIB] * 30_000, "GPU:1": [9 * MIB] * 30_000}
    peaks["GPU:0"][12_345], peaks["GPU:1"][23_456] = 77 * MIB, 2 * MIB
    steps = describe_devices({"": make_run(two_gpus(peaks))}, "train")["steps"]
    assert len(steps["step"]) <= 1000
    assert dict(zip(steps["step"], steps["max_peak_bytes"], strict=True))[12_345] == 77 * MIB
    assert dict(zip(steps["step"], steps["min_peak_bytes"], strict=True))[23_456] == 2 * MIB


def write_session(
    run: pathlib.Path, first: int, peaks: Sequence[int], delay: float = 0.0, ends: bool = True
) -> None:
    """A session with these peaks in MiB from step `first` on."""
    writer = RunWriter(run, summarize=summarize_session)
    steps = range(first, first + len(peaks))
    writer.samples(make_samples(steps, [peak * MIB for peak in peaks], start=START + delay))
    writer.end() if ends else writer.roll_up()
    writer.close()


def summaries(directory: pathlib.Path) -> tuple[WorkerSummary, WorkerSummary]:
    last = {session: rollup for session, _, rollup in rollups_of(directory)}
    sessions = sorted(last.values(), key=lambda one: one.started or 0.0)
    return of_sessions("", sessions), summarize_session(tb_memplugin.load(directory)["run"])


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("peaks", [(10, 90, 10), (10, 30, 20, 40)])
def test_sessions_are_put_together(
    tmp_path: pathlib.Path, peaks: Sequence[int], ends: bool
) -> None:
    write_session(tmp_path / "run", 0, peaks, ends=False)
    write_session(tmp_path / "run", len(peaks), [20, 40], delay=1000, ends=ends)
    rolled_up, whole = summaries(tmp_path)
    devices = tuple(dataclasses.replace(one, rows=None) for one in whole.devices)
    assert equal(
        rolled_up, dataclasses.replace(whole, rows=None, devices=devices, started=rolled_up.started)
    )


def test_peaks_of_steps_that_were_trained_again_count(tmp_path: pathlib.Path) -> None:
    write_session(tmp_path / "run", 0, [100, 300, 900], ends=False)
    write_session(tmp_path / "run", 2, [200, 200], delay=1000)
    rolled_up, whole = summaries(tmp_path)
    assert (rolled_up.devices[0].peak_bytes, whole.devices[0].peak_bytes) == (900 * MIB, 300 * MIB)
    assert (rolled_up.first_step, rolled_up.last_step, rolled_up.sessions) == (0, 3, 2)
