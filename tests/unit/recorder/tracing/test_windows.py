"""Which steps get a profiler window, its maps and facts, and what it costs; the profiler and time
are fakes."""

import itertools
import json
import logging
import math
import pathlib
import tempfile
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from dump_cases import CHUNKS, make_dump

from tb_memplugin.importers import summarize_dump
from tb_memplugin.recorder.base import Due, Faults, checked_settings
from tb_memplugin.recorder.devices import Device, PassedSteps, Sample
from tb_memplugin.recorder.devices import memory_maps as framework
from tb_memplugin.recorder.helper import TRACING
from tb_memplugin.recorder.tracing import Windows, measurements, profiler
from tb_memplugin.recorder.tracing import windows as module
from tb_memplugin.recorder.tracing.measurements import READ_SECONDS, SHARE, Measurements
from tb_memplugin.recorder.tracing.profiler import ProfilerBusyError, QuietLog
from tb_memplugin.recorder.tracing.schedule import (
    EARLY_SECONDS,
    EARLY_SHARE,
    TraceSchedule,
)
from tb_memplugin.schema import MISSING, PHASES, TraceFacts

FACTS = TraceFacts(mode="xla")
MIB = 1 << 20


class Observer:
    def __init__(self, clock: Any) -> None:
        self.clock = clock
        self.traces = 0
        self.was_recorded = False
        self.batch_size: int | None = None
        self.calls: list[str] = []
        self.fails = False

    def begin_window(self, batches_since: float) -> None:
        self.calls.append("begin")
        if self.fails:
            raise KeyError("a layer")

    def end_window(self, device: str) -> TraceFacts:
        self.calls.append(f"end {device}")
        self.clock.now += self.clock.facts_seconds
        if self.fails:
            raise KeyError("a layer")
        return FACTS

    def close_window(self) -> None:
        self.calls.append("close")


class Maps:
    def __init__(self, clock: Any) -> None:
        self.clock = clock
        self.reads = 0
        self.given: list[bytes] = []

    def available(self, device: str) -> bool:
        return device != "CPU:1"

    def read(self, device: str) -> bytes | None:
        self.reads += 1
        self.clock.now += self.clock.map_seconds
        if device == "GPU:1":
            return None
        self.given.append(make_dump(listed=[(0x1000, 1536, 1000 + self.reads, True), *CHUNKS[3:]]))
        return self.given[-1]


PROFILE = b"profile"


class Window:
    """The profiler; `busy` and `fails` are of all windows."""

    busy = False
    fails: BaseException | None = None
    opened = 0
    clock: Any = SimpleNamespace(now=100.0)

    def __init__(self) -> None:
        if Window.busy:
            raise ProfilerBusyError
        Window.opened += 1
        Window.clock.now += Window.clock.profiler_seconds
        self.gave_way = False
        self.profile = tempfile.NamedTemporaryFile()  # noqa: SIM115

    def stop(self) -> str:
        Window.clock.now += Window.clock.profiler_seconds
        if Window.fails is not None:
            raise Window.fails
        self.profile.write(PROFILE)
        self.profile.flush()
        return self.profile.name

    def remove(self) -> None:
        self.profile.close()


class Tracer:
    """`Windows` with what it works on."""

    def __init__(
        self,
        directory: pathlib.Path,
        devices: tuple[str, ...] = ("GPU:0", "GPU:1"),
        overhead: float = 1.0,
        steps: list[int] | None = None,
    ) -> None:
        # Reading a map, opening a window and closing one take what they are told to.
        self.clock = Window.clock = SimpleNamespace(
            now=100.0, map_seconds=0.0, profiler_seconds=0.0, facts_seconds=0.0
        )
        self.observer, self.maps, self.faults = Observer(self.clock), Maps(self.clock), Faults()
        settings = checked_settings(directory, overhead, steps, None, False, None)
        listed = [Device(name, None, None) for name in devices]
        watch: Any = self.observer
        watch.replicas, watch.replicas_met = 1, lambda trains: True
        maps: Any = self.maps
        self.tracer = Windows(settings, listed, watch, self.faults, maps)

    def step(
        self, number: int, compiles: bool = False, seconds: float = 1.0, peak: int = MIB
    ) -> Any:
        """Run a step of so many seconds; the traced step, None if it was not traced."""
        self.tracer.begin(number, "train")
        self.observer.traces += compiles
        self.clock.now += seconds
        return self.tracer.end(number, "train", 5.0 + number, seconds, peak)

    @property
    def spent(self) -> float:
        return self.tracer.schedule._spent_seconds

    @property
    def room(self) -> int:
        """How many further profiles may wait."""
        return module.MAX_WAITING - len(self.tracer._waiting)


@pytest.fixture(autouse=True)
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("busy", False), ("fails", None), ("opened", 0)):
        monkeypatch.setattr(Window, name, value)
    monkeypatch.setattr(module, "ProfilerWindow", Window)
    monkeypatch.setattr(module, "note_running_fit", lambda: None)
    monkeypatch.setattr(module, "resource_handle_bytes", lambda maps, device: 40)
    monkeypatch.setattr(module.time, "perf_counter", lambda: Window.clock.now)


def test_of_a_function_that_was_recorded_before_only_the_second_step_is_traced(
    tmp_path: pathlib.Path,
) -> None:
    case = Tracer(tmp_path)
    case.observer.was_recorded = True
    assert case.step(0) is None
    assert not case.step(1).only_learn
    # AND what is compiled anew is followed by a trace, as ever
    assert case.step(2, compiles=True).compiled and not case.step(3).only_learn


def test_the_first_step_is_learned_from_and_the_second_one_traced(tmp_path: pathlib.Path) -> None:
    case = Tracer(tmp_path)
    first, second = case.step(0, compiles=True), case.step(1)
    assert (first.only_learn, first.compiled, second.only_learn, second.compiled) == (
        True,
        True,
        False,
        False,
    )
    assert (second.step, second.phase, second.wall_time) == (1, "train", 6.0)
    assert pathlib.Path(second.profile).read_bytes() == PROFILE
    assert second.facts == {"GPU:0": FACTS, "GPU:1": FACTS}
    # AND its maps are of the moments just before and after; one of them cannot be read
    assert second.start.keys() == second.end.keys() == {"GPU:0", "GPU:1"}
    assert second.start["GPU:1"] is None
    assert [second.start["GPU:0"], second.end["GPU:0"]] == case.maps.given[-2:]
    assert case.observer.calls == ["begin", "end GPU:0", "end GPU:1", "close"] * 2
    # AND a step is being traced from its beginning to its end
    assert not case.tracer.tracing
    case.tracer.release(second)
    assert not pathlib.Path(second.profile).exists()
    case.tracer.begin(2, "train")
    assert case.tracer.tracing and not case.tracer.compiled


def test_of_replicas_the_step_in_which_they_meet_is_not_traced(tmp_path, caplog) -> None:
    case = Tracer(tmp_path, steps=[0, 2, 3])
    asked: list[bool] = []
    case.observer.replicas = 2
    case.observer.replicas_met = lambda trains: not asked.append(trains) and len(asked) > 2
    assert [case.step(number) is not None for number in range(4)] == [False, False, False, True]
    assert asked == [True] * 3 and caplog.text.count("as replicas meet for the first time") == 1
    # AND by default the second step is the first one
    case = Tracer(tmp_path)
    case.observer.replicas = 2
    traced = [case.step(number, compiles=not number) for number in range(2)]
    assert traced[0] is None and not traced[1].only_learn


@pytest.mark.parametrize(("index", "steps"), [(0, None), (1, None), (1, [1, 2])])
def test_of_several_workers_the_first_one_traces(
    index, steps, tmp_path, monkeypatch, caplog
) -> None:
    cluster = {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": index}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(cluster))
    case = Tracer(tmp_path, steps=steps)
    case.observer.replicas = 2
    traced = [number for number in range(3) if case.step(number) is not None]
    assert (traced[:2] or None) == (steps if index else [1, 2])
    assert caplog.text.count("no step of this worker is traced") == (index == 1 and not steps)


def test_a_traced_step_costs_what_its_window_and_its_slowness_take(tmp_path: pathlib.Path) -> None:
    case = Tracer(tmp_path, steps=[5])
    case.step(0)
    case.step(1, seconds=2.0)
    assert case.spent == 0
    clock = case.clock
    clock.map_seconds, clock.profiler_seconds, clock.facts_seconds = 0.5, 0.25, 0.125
    case.step(5, seconds=3.5)
    # THEN two maps are read at its begin, and two at its end
    opening, closing = 2 * 0.5 + 0.25, 2 * 0.5 + 0.25 + 2 * 0.125
    assert case.spent == pytest.approx(opening + closing + 1.5)


def test_ordinary_steps_are_averaged_with_the_latest_weighing_most(tmp_path: pathlib.Path) -> None:
    case = Tracer(tmp_path, steps=[9])
    case.step(0)
    case.step(1, seconds=1.0)
    case.step(2, seconds=2.0)  # 1 + 0.2 * 1
    case.step(3, seconds=9.0, compiles=True)  # which says nothing about later ones
    case.tracer.passed("train", PassedSteps(2, 4.0, MIB))  # 2 + 0.64 * (1.2 - 2)
    before = case.spent
    case.step(9, seconds=2.0)
    assert case.spent - before == pytest.approx(2.0 - 1.488)
    # AND a faster step costs nothing
    case.tracer.passed("train", PassedSteps(100, 300.0, MIB))
    assert case.tracer._untraced_seconds["train"] == pytest.approx(3.0)
    # AND passed steps count with their peak
    case = Tracer(tmp_path, overhead=0.5)
    case.step(0)
    case.step(1, peak=100)
    case.clock.now += 1000
    assert case.tracer.due(2, "train").peak_bytes == pytest.approx(101)
    case.tracer.passed("train", PassedSteps(3, 3.0, 102))
    assert case.tracer.due(5, "train").peak_bytes == float("inf")


def test_a_step_that_compiles_without_a_window_makes_the_next_one_traced(
    tmp_path: pathlib.Path,
) -> None:
    case = Tracer(tmp_path, overhead=1e-9)
    for number in range(2):
        case.step(number, seconds=0.01)
        case.tracer.schedule.add_cost(1e-4)
    assert case.step(2, seconds=0.01) is None
    assert case.step(3, seconds=0.01, compiles=True) is None
    assert case.step(4) is not None


@pytest.mark.parametrize("stopped", [False, True])
def test_without_devices_or_after_a_fault_nothing_is_traced(
    tmp_path: pathlib.Path, stopped: bool
) -> None:
    case = Tracer(tmp_path, ("GPU:0",) if stopped else ())
    if stopped:
        case.faults.stop(TRACING, "a fault")
    assert case.step(0) is None and Window.opened == 0
    assert case.tracer.due(0, "train") == Due()


def test_while_profiles_of_many_bytes_wait_no_further_step_is_traced(
    tmp_path, monkeypatch, caplog
) -> None:
    monkeypatch.setattr(module, "MAX_WAITING_BYTES", 2 * len(PROFILE))
    case = Tracer(tmp_path)
    waiting = [case.step(0), case.step(1, compiles=True)]
    assert None not in waiting
    # THEN it is left out at once and in silence
    monkeypatch.setattr(module.background, "while_it_works", None)
    assert case.step(2) is None and caplog.records == []
    case.tracer.release(waiting[0])
    assert case.step(3) is not None


@pytest.mark.parametrize("in_time", [True, False])
def test_a_step_that_was_asked_for_waits_for_earlier_profiles(
    tmp_path, monkeypatch, caplog, in_time
) -> None:
    monkeypatch.setattr(module, "MAX_WAITING_BYTES", 2 * len(PROFILE))
    case = Tracer(tmp_path, steps=[1, 2])
    waiting: list[Any] = []

    def while_it_works(done: Any) -> Any:
        if len(waiting) == 2 and in_time:  # meanwhile the first one is analyzed
            case.tracer.release(waiting[0])
        return done(0.0)

    monkeypatch.setattr(module.background, "while_it_works", while_it_works)
    for number in range(2):
        waiting.append(case.step(number))
    with caplog.at_level(logging.WARNING, "tb_memplugin"):
        traced = case.step(2)
    said = [record.message for record in caplog.records]
    assert (traced is not None) is in_time
    assert said == ([] if in_time else ["step 2 was not traced: earlier profiles took too long"])


def test_a_step_that_the_user_profiles_is_left_to_the_user(tmp_path, monkeypatch, caplog) -> None:
    case = Tracer(tmp_path)
    monkeypatch.setattr(Window, "busy", True)
    with caplog.at_level(logging.WARNING, "tb_memplugin"):
        assert case.step(0, compiles=True) is None and case.step(1, compiles=True) is None
    assert [record.message.partition(" stopped: ")[0] for record in caplog.records] == [
        "step tracing while another profiler runs"
    ]
    assert (
        case.observer.calls == ["begin", "end GPU:0", "close"] * 2
        and case.room == module.MAX_WAITING
    )
    # AND a later one is traced
    monkeypatch.setattr(Window, "busy", False)
    assert case.step(2) is not None


@pytest.mark.parametrize(
    ("gave_way", "fault"),
    [(True, None), (False, ProfilerBusyError()), (False, RuntimeError("no profile"))],
)
def test_a_window_that_gave_way_to_the_users_profiler_or_cannot_be_closed_has_no_profile(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, gave_way: bool, fault: Exception | None
) -> None:
    case = Tracer(tmp_path)
    monkeypatch.setattr(Window, "fails", fault)
    case.tracer.begin(0, "train")
    case.tracer._window.profiler.gave_way = gave_way  # type: ignore[union-attr]
    assert case.tracer.end(0, "train", 0.0, 1.0, MIB) is None
    assert (
        case.faults.stopped(TRACING) is isinstance(fault, RuntimeError)
        and case.room == module.MAX_WAITING
    )
    assert not gave_way or case.observer.calls == ["begin", "end GPU:0", "close"]


def test_maps_are_read_before_and_after_the_first_batches_of_a_phase(
    tmp_path: pathlib.Path,
) -> None:
    case = Tracer(tmp_path, overhead=0.5)
    case.clock.map_seconds = 0.5
    assert case.tracer.first_batches() is None
    case.tracer.before_data("train")
    found = case.tracer.first_batches()
    assert found is not None and [sorted(dumps) for dumps in found] == [["GPU:0", "GPU:1"]] * 2
    assert case.spent == pytest.approx(4 * 0.5)
    assert case.tracer.first_batches() is None
    # AND later only as far as the budget allows, while another phase has its own first time
    case.tracer.before_data("train")
    assert case.tracer.first_batches() is None
    case.tracer.before_data("validation")
    assert case.tracer.first_batches() is not None
    case.clock.now += 1e12
    case.tracer.before_data("train")
    assert case.tracer.first_batches() is not None


INFO, WARNING, ERROR = 0, 1, 2


class Log(QuietLog):
    """With a level of its own in place of TensorFlow's."""

    def __init__(self, level: int) -> None:
        super().__init__()
        self.level = level

    def _level(self) -> int:
        return self.level

    def _set(self, level: int) -> None:
        self.level = level


@pytest.mark.parametrize(
    ("before", "inside"), [(INFO, WARNING), (WARNING, WARNING), (ERROR, ERROR)]
)
def test_a_block_logs_warnings_and_nothing_that_the_user_turned_off(
    before: int, inside: int
) -> None:
    log = Log(before)
    with pytest.raises(ValueError), log.warnings_only():
        assert log.level == inside
        raise ValueError
    assert log.level == before


def test_blocks_of_two_threads_may_overlap() -> None:
    log = Log(INFO)
    first, second = log.warnings_only(), log.warnings_only()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert log.level == WARNING
    second.__exit__(None, None, None)
    assert log.level == INFO
    # AND a forked child logs as before
    with log.warnings_only():
        log._abandon()
        assert log.level == INFO
        log._blocks = 1  # the block ends in the parent only
    # AND a level that the program sets meanwhile stays
    with log.warnings_only():
        log.level = ERROR
    assert log.level == ERROR


def test_with_the_switch_no_function_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(framework.SWITCH, "0")
    profiler._functions.cache_clear()
    assert QuietLog()._level() == WARNING
    profiler._functions.cache_clear()


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
            schedule.step_done("train", highest)
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
    assert phase != "train" or [named.wants("train", step, 0.1 * step) for step in (1, 2)] == [
        None,
        None,
    ]


def test_overhead_stays_within_budget_over_a_long_run() -> None:
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


def test_early_traces_that_are_slow_wait_until_all_traces_cost_a_quarter_of_the_time() -> None:
    # GIVEN an early trace, after one second, that cost half a second
    schedule = TraceSchedule(0.005)
    learned(schedule, "train")
    assert schedule.wants("train", 1, 1.0) == "trace"
    schedule.traced("train", 100, 0.5)
    # THEN one of the same cost comes when both, and the step to learn, are a quarter of the time
    due = (2 * 0.5 + TRACE_SECONDS) / EARLY_SHARE
    assert schedule.wants("train", 2, due - 0.01) is None
    assert schedule.wants("train", 2, due) == "trace"


def test_a_change_and_a_new_highest_peak_are_traced_before_the_next_regular_trace() -> None:
    # GIVEN a budget that allows one more trace after the early ones at about step 280 and a regular
    # one at step 320
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


DUMP = make_dump(in_use=1536)


class ReadableMaps:
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


def make(buffer: Any, overhead: float = 0.005, spend: Any = lambda seconds: None) -> Measurements:
    return Measurements(ReadableMaps(), buffer, overhead, spend, Faults())  # type: ignore[arg-type]


def sampled(number: int, in_use: int = 1536) -> Sample:
    return Sample(number, {"GPU:0": in_use}, {"GPU:0": in_use})


def test_a_map_of_the_samples_moment_becomes_its_figures() -> None:
    buffer = Buffer()
    made = make(buffer)
    dumps = made.read().dumps
    assert dumps == {"GPU:0": DUMP}
    made.fill(sampled(7), dumps)
    # AND those of another moment and unread ones are ignored
    made.fill(sampled(8, 1537), dumps)
    made.fill(sampled(9), {"GPU:0": None})
    assert buffer.rows == [(7, "GPU:0")]


def test_measurements_cost_their_share_of_the_run_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now, spent = [100.0], list[float]()
    monkeypatch.setattr(measurements.time, "perf_counter", lambda: now[0])

    def buffered() -> int:
        now[0] += 0.01
        return 7

    monkeypatch.setattr(measurements.data_pipelines, "buffered_bytes", buffered)
    made = make(Buffer(), spend=spent.append)
    assert made.due_in() == 0
    assert made.read().host_buffers == (7, summarize_dump(DUMP).pool_bytes)
    assert spent == [pytest.approx(0.01)]
    assert made.due_in() == pytest.approx(0.01 / (SHARE * 0.005) - 0.01)
    # Fast ones are not made more often than this.
    fast = make(Buffer(), 100.0)
    fast.read()
    assert fast.due_in() == pytest.approx(READ_SECONDS - 0.01)
    assert make(Buffer(), 0.0).due_in() == math.inf


def test_a_fault_of_the_buffers_costs_only_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurements.data_pipelines, "buffered_bytes", lambda: 1 // 0)
    read = make(Buffer()).read()
    assert read.host_buffers[0] == MISSING and read.dumps == {"GPU:0": DUMP}
