"""The selection of steps to trace, and of those after which more is measured than a sample."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
from dump_cases import make_dump

from tb_memplugin.importers import summarize_dump
from tb_memplugin.recorder.base import Due
from tb_memplugin.recorder.tracing import HostBuffers, StepEnds
from tb_memplugin.recorder.tracing import schedule as step_ends
from tb_memplugin.recorder.tracing.schedule import (
    EARLY_SECONDS,
    LOOK_SECONDS,
    MAX_WAITING,
    SHARE,
    KeptRequests,
    KeptTimelines,
    TraceSchedule,
)
from tb_memplugin.schema import PHASES

STEP_SECONDS = 0.1
TRACE_SECONDS = 0.02
EARLY = 1 + len(EARLY_SECONDS)


def learned(schedule: TraceSchedule, phase: str) -> None:
    schedule.compiled(phase)
    schedule.add_cost(TRACE_SECONDS)


def simulate(
    schedule: TraceSchedule,
    steps: int,
    peak: Callable[[int], int] = lambda step: 100,
    change_at: int | None = None,
    step_seconds: float = STEP_SECONDS,
    when_due: bool = False,
) -> list[int]:
    """Steps that were traced in a training of `steps` steps, the first of which compiles.

    With `when_due`, the schedule is only asked when something is due.
    """
    traced, elapsed = [], 0.0
    due, highest, passed = Due(seconds=-1.0), 0, 0
    for step in range(steps):
        if elapsed < due.seconds and step < due.step and highest <= due.peak_bytes:
            elapsed += step_seconds
            highest, passed = max(highest, peak(step)), passed + 1
            continue
        if passed:
            schedule.step_done("train", highest, passed)
            highest = passed = 0
        if step == change_at:
            schedule.changed()
        wanted = schedule.wants("train", step, elapsed)
        now = schedule.due("train", step, elapsed) if when_due and not wanted else Due(seconds=-1.0)
        due = Due(now.seconds + elapsed, now.step, now.peak_bytes)
        elapsed += step_seconds + (TRACE_SECONDS if wanted else 0)
        if wanted == "learn":
            learned(schedule, "train")
        elif wanted == "trace":
            traced.append(step)
            schedule.traced("train", peak(step), TRACE_SECONDS)
        elif step in (0, change_at):
            schedule.compiled("train")
        else:
            highest, passed = peak(step), 1
    return traced


@pytest.mark.parametrize(
    ("overhead", "trace_steps", "peak"),
    [
        (0.005, None, lambda step: 100),
        (0.005, None, lambda step: 200 if step >= 290 else 100),
        (0.005, None, lambda step: 100 + step),
        (0.01, None, lambda step: 100 + step % 7),
        (0.0, None, lambda step: 100),
        (0.005, [3, 7, 8, 900], lambda step: 100),
        (0.005, [], lambda step: 100),
    ],
)
def test_the_same_steps_are_traced_if_only_asked_when_due(overhead, trace_steps, peak) -> None:
    asked = simulate(TraceSchedule(overhead, trace_steps), 2000, peak)
    assert simulate(TraceSchedule(overhead, trace_steps), 2000, peak, when_due=True) == asked


def test_only_the_requested_steps_are_traced_once_that_is_asked_for() -> None:
    schedule = TraceSchedule(0.005, [3, 7])
    schedule.only_requested()
    wishes = [schedule.wants("train", step, 1.0) for step in range(10)]
    assert {step: wish for step, wish in enumerate(wishes) if wish} == {3: "trace", 7: "trace"}
    # AND none if none was requested
    schedule = TraceSchedule(0.005)
    schedule.only_requested()
    assert simulate(schedule, 2000) == []
    assert schedule.due("train", 5, 1.0) == Due()


@pytest.mark.parametrize("phase", PHASES)
def test_the_first_step_of_every_phase_is_traced_to_learn(phase: str) -> None:
    schedule = TraceSchedule(0.005)
    schedule.traced("train" if phase != "train" else "predict", 100, TRACE_SECONDS)
    assert schedule.wants(phase, 0, 0.1) == "learn"
    learned(schedule, phase)
    assert schedule.wants(phase, 1, 0.2) == "trace"
    # AND with named steps that of training only
    named = TraceSchedule(0.0, [3])
    assert named.wants(phase, 0, 0.0) == ("learn" if phase == "train" else None)
    learned(named, phase)
    assert [named.wants("train", step, 0.1 * step) for step in (1, 2, 3)][-1] == "trace"
    assert phase != "train" or [named.wants("train", step, 0.1 * step) for step in (1, 2)] == [None, None]


def test_overhead_stays_within_budget_over_a_long_run() -> None:
    # GIVEN a budget of half a percent WHEN 20,000 steps run
    traced = simulate(TraceSchedule(0.005), 20_000)
    # THEN traces use at least half of the budget and no more than all of it
    spent = len(traced) * TRACE_SECONDS
    share = spent / (20_000 * STEP_SECONDS + spent)
    assert 0.0025 < share <= 0.005
    # AND after the early ones they are spread over the run
    gaps = [later - earlier for earlier, later in itertools.pairwise(traced[EARLY:])]
    assert max(gaps) <= 3 * min(gaps)


def test_short_trainings_have_five_breakdowns_whatever_the_budget() -> None:
    # GIVEN 300 steps of 20 ms, 6 s in all, and a budget that allows one trace in 4 s
    traced = simulate(TraceSchedule(0.005), 300, step_seconds=0.02)
    # THEN five are traced, from a quarter of a second to two seconds after the first one
    times = [0.02 * (step - traced[0]) for step in traced]
    assert len(traced) == EARLY == 5
    assert times == pytest.approx([0, 0.25, 0.5, 1.0, 2.0], abs=0.1)
    # AND slow steps are traced one after the other, however small the budget
    assert simulate(TraceSchedule(1e-9), 12, step_seconds=10.0) == [1, 2, 3, 4, 5]
    # AND only in the first phase
    schedule = TraceSchedule(1e-9)
    for phase in ("train", "validation"):
        assert schedule.wants(phase, 0, 0.0) == "learn"
        learned(schedule, phase)
        assert schedule.wants(phase, 1, 1.0) == "trace"
        schedule.traced(phase, 100, TRACE_SECONDS)
    assert [schedule.wants(phase, 2, 5.0) for phase in ("train", "validation")] == ["trace", None]


def test_a_change_and_a_new_highest_peak_are_traced_before_the_next_regular_trace() -> None:
    # GIVEN a budget that allows one more trace after the early ones at about step 280 and a regular one at step 320
    plain = simulate(TraceSchedule(0.005), 400)
    grown = simulate(TraceSchedule(0.005), 400, peak=lambda step: 200 if step >= 290 else 100)
    # THEN the run whose peak grew is traced earlier
    assert plain[EARLY] > 310
    assert grown[: EARLY + 1] == [*plain[:EARLY], 291]
    # AND so is one whose layer table changed
    assert simulate(TraceSchedule(0.005), 60, change_at=40)[EARLY:] == [41]


@pytest.mark.parametrize(
    ("overhead", "trace_steps", "traced"),
    [
        (0.0, None, []),
        (0.005, [], []),
        (0.005, [3, 500], [3, 500]),
        (0.0, [0], [0]),  # for its ledger, not to learn
    ],
)
def test_named_steps_are_traced_and_no_others(overhead, trace_steps, traced) -> None:
    assert simulate(TraceSchedule(overhead, trace_steps), 1000) == traced
    if not traced:
        assert TraceSchedule(overhead, trace_steps).wants("train", 0, 0.0) is None


def test_timelines_thin_out_by_powers_of_two() -> None:
    kept = KeptTimelines()
    steps = [number for number in range(300) if kept.wants("GPU:0", "train", 100)]
    # All of the first 64, every second one up to 128, every fourth one up to 256, then every eighth one.
    assert steps == [*range(64), *range(64, 128, 2), *range(128, 256, 4), *range(256, 300, 8)]


def test_a_new_highest_peak_of_a_device_and_phase_is_kept_and_an_equal_one_is_not() -> None:
    kept = KeptTimelines()
    for _ in range(65):
        kept.wants("GPU:0", "train", 100)
    found = [kept.wants("GPU:0", "train", peak) for peak in (100, 101, 101, 101, 102)]
    # The second and the fourth one have an odd number.
    assert found == [False, True, False, True, True]
    assert kept.wants("GPU:0", "validation", 1) and kept.wants("GPU:1", "train", 1)


def kept(*steps: tuple[int | None, bool]) -> list[bool]:
    requests = KeptRequests()
    return [requests.wants("GPU:0", "train", batch, first) for batch, first in steps]


def test_three_steps_of_a_batch_size_are_kept_beside_the_first_one() -> None:
    assert kept((4, True), *[(4, False)] * 5) == [True] * 4 + [False] * 2
    assert kept(*[(4, False)] * 4, (8, False)) == [True] * 3 + [False, True]
    assert kept(*[(None, False)] * 4) == [True] * 3 + [False]
    # AND those that are not kept leave room for other batch sizes
    assert kept(*[(4, False)] * 60, (8, False)) == [True] * 3 + [False] * 57 + [True]


def test_nine_steps_are_kept_after_a_change() -> None:
    assert kept((1, True), *[(size, False) for size in range(1, 12)]) == [True] * 9 + [False] * 3
    # AND again after the next one, with the same batch sizes
    sizes = [(size, False) for size in range(1, 12)]
    assert kept((1, True), *sizes, (1, True), *sizes) == ([True] * 9 + [False] * 3) * 2


DUMP = make_dump(in_use=1536)


class Maps:
    def available(self, device: str) -> bool:
        return device != "CPU:0"

    def read(self, device: str) -> bytes:
        return DUMP


class Buffer:
    devices = ("GPU:0", "CPU:0")

    def __init__(self) -> None:
        self.rows: list[tuple[int, str]] = []

    def measure(self, row: int, device: str, pool_bytes: int, largest_free_bytes: int) -> None:
        assert 0 < largest_free_bytes <= pool_bytes - 1536
        self.rows.append((row, device))


def make(buffer: Buffer, overhead: float = 0.005, spend: Any = lambda seconds: None) -> StepEnds:
    return StepEnds(Maps(), buffer, overhead, spend)  # type: ignore[arg-type]


def test_a_map_of_the_samples_moment_becomes_its_figures() -> None:
    buffer = Buffer()
    ends = make(buffer)
    dumps = ends.read()
    assert dumps == {"GPU:0": DUMP}
    ends.measure(7, {"GPU:0": 1536}, dumps, True)
    # AND those of another moment and unread ones are ignored
    ends.measure(8, {"GPU:0": 1537}, {"GPU:0": DUMP})
    ends.measure(9, {"GPU:0": 1536}, {"GPU:0": None})
    assert buffer.rows == [(7, "GPU:0")]


def test_maps_cost_their_share_of_the_run_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(step_ends.time, "perf_counter", lambda: now[0])
    spent: list[float] = []
    ends = make(Buffer(), spend=spent.append)
    assert ends.due_in() == 0
    ends.count(0.002)
    assert spent == [0.002]
    assert ends.due_in() == pytest.approx(0.002 / (SHARE * 0.005))
    now[0] += 3
    assert ends.due_in() < 0


def test_without_maps_or_budget_or_while_many_maps_wait_none_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    for clock in ("perf_counter", "thread_time"):
        monkeypatch.setattr(step_ends.time, clock, lambda: 100.0)
    ends = make(Buffer())
    read = [ends.read() for _ in range(MAX_WAITING - 1)]
    assert ends.due_in() == 0
    read.append(ends.read())
    assert ends.due_in() == LOOK_SECONDS
    ends.measure(0, {"GPU:0": 1536}, read[0], True)
    assert ends.due_in() == 0
    assert make(Buffer(), overhead=0).due_in() == math.inf
    buffer = Buffer()
    buffer.devices = ("CPU:0",)  # type: ignore[assignment]
    assert make(buffer).due_in() == math.inf


def test_buffers_in_host_memory_are_read_as_the_budget_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    spent: list[float] = []
    monkeypatch.setattr(step_ends.time, "perf_counter", lambda: now[0])

    def buffered() -> int:
        now[0] += 0.01
        return 7

    monkeypatch.setattr(step_ends.data_pipelines, "buffered_bytes", buffered)
    buffers = HostBuffers(Maps(), 0.005, spent.append)  # type: ignore[arg-type]
    assert buffers.due_in() == 0
    assert buffers.read() == (7, summarize_dump(DUMP).pool_bytes) and spent == [pytest.approx(0.01)]
    assert buffers.due_in() == pytest.approx(0.01 / (SHARE * 0.005) - 0.01)
    # Fast ones are not read more often than this.
    fast = HostBuffers(Maps(), 100.0, spent.append)  # type: ignore[arg-type]
    fast.read()
    assert fast.due_in() == pytest.approx(step_ends.HOST_SECONDS - 0.01)
    assert HostBuffers(Maps(), 0, spent.append).due_in() == math.inf  # type: ignore[arg-type]
