"""Which steps get a profiler window, its maps and facts, and what it costs; the profiler and time are fakes."""

import collections
import logging
import pathlib
from types import SimpleNamespace
from typing import Any

import pytest
from dump_cases import CHUNKS, make_dump

from tb_memplugin.recorder.base import Due, Faults, checked_settings
from tb_memplugin.recorder.devices import Device, PassedSteps
from tb_memplugin.recorder.tracing import StepTracer
from tb_memplugin.recorder.tracing import tracer as step_tracer
from tb_memplugin.recorder.tracing.profiler import ProfilerBusyError
from tb_memplugin.recorder.tracing.tracer import MAX_WAITING, TRACING
from tb_memplugin.schema import TraceFacts

FACTS = TraceFacts(mode="xla")
MIB = 1 << 20


def clock() -> Any:
    """Time in which reading a map, opening a window and closing one take what they are told to."""
    return SimpleNamespace(now=100.0, map_seconds=0.0, profiler_seconds=0.0, facts_seconds=0.0)


class Observer:
    def __init__(self, clock: Any) -> None:
        self.clock = clock
        self.traces = 0
        self.history: dict[str, Any] = collections.defaultdict(SimpleNamespace)
        self.calls: list[str] = []
        self.maps_at_start: Any = None
        self.fails = False

    @property
    def handles(self) -> dict[str, int | None]:
        return {device: known.handle_bytes for device, known in self.history.items()}

    def begin_window(self, maps: Any, batches_since: float) -> None:
        self.calls.append("begin")
        if self.fails:
            raise KeyError("a layer")
        self.maps_at_start = maps()

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


class Window:
    """The profiler; `busy` and `fails` are of all windows."""

    busy = False
    fails: BaseException | None = None
    opened = 0
    clock: Any

    def __init__(self) -> None:
        if Window.busy:
            raise ProfilerBusyError
        Window.opened += 1
        Window.clock.now += Window.clock.profiler_seconds
        self.gave_way = False

    def stop(self) -> bytes:
        Window.clock.now += Window.clock.profiler_seconds
        if Window.fails is not None:
            raise Window.fails
        return b"profile"


class Tracer:
    """A `StepTracer` with what it works on."""

    def __init__(
        self, directory: pathlib.Path, devices: tuple[str, ...] = ("GPU:0", "GPU:1"), **arguments: Any
    ) -> None:
        self.clock = Window.clock = clock()
        self.observer, self.maps, self.faults = Observer(self.clock), Maps(self.clock), Faults()
        settings = checked_settings(
            directory, arguments.get("overhead", 1.0), arguments.get("steps"), None, False, None
        )
        listed = [Device(name, None, None) for name in devices]
        watch: Any = self.observer
        watch.replicated = arguments.get("replicated", False)
        maps: Any = self.maps
        self.tracer = StepTracer(settings, listed, watch, self.faults, None, maps)  # type: ignore[arg-type]
        self.tracer._analyze = lambda traced, result: self.analyzed.append(traced)  # type: ignore[method-assign]
        self.analyzed: list[Any] = []

    def step(self, number: int, compiles: bool = False, seconds: float = 1.0, peak: int = MIB) -> Any:
        """Run a step of so many seconds; the traced step, None if it was not traced."""
        self.tracer.begin(number, "train")
        self.observer.traces += compiles
        self.clock.now += seconds
        return self.tracer.end(number, "train", 5.0 + number, seconds, peak)

    @property
    def spent(self) -> float:
        return self.tracer.schedule._spent_seconds


@pytest.fixture(autouse=True)
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Window, "busy", False)
    monkeypatch.setattr(Window, "fails", None)
    monkeypatch.setattr(Window, "opened", 0)
    monkeypatch.setattr(step_tracer, "ProfilerWindow", Window)
    monkeypatch.setattr(step_tracer, "note_running_fit", lambda: None)
    monkeypatch.setattr(step_tracer, "resource_handle_bytes", lambda maps, device: 40)
    monkeypatch.setattr(step_tracer.time, "perf_counter", lambda: Window.clock.now)


def test_the_first_step_is_learned_from_and_the_second_one_traced(tmp_path: pathlib.Path) -> None:
    case = Tracer(tmp_path)
    first, second = case.step(0, compiles=True), case.step(1)
    assert (first.only_learn, first.compiled, second.only_learn, second.compiled) == (True, True, False, False)
    assert (second.step, second.phase, second.wall_time, second.profile) == (1, "train", 6.0, b"profile")
    assert second.facts == {"GPU:0": FACTS, "GPU:1": FACTS}
    # AND its maps are of the moments just before and after; one of them cannot be read
    assert second.start.keys() == second.end.keys() == {"GPU:0", "GPU:1"}
    assert second.start["GPU:1"] is None
    assert [second.start["GPU:0"], second.end["GPU:0"]] == case.maps.given[-2:]
    assert case.observer.calls == ["begin", "end GPU:0", "end GPU:1", "close"] * 2
    # ... of which the observer gets those at the start as chunks
    assert case.observer.maps_at_start["GPU:1"] is None
    assert case.observer.maps_at_start["GPU:0"].in_use_bytes == 1536
    # AND a step is being traced from its beginning to its end
    assert not case.tracer.tracing
    case.tracer.work_through(second)
    case.tracer.begin(2, "train")
    assert case.tracer.tracing and not case.tracer.compiled


def test_a_traced_step_costs_what_its_window_and_its_slowness_take(tmp_path: pathlib.Path) -> None:
    case = Tracer(tmp_path, steps=[5])
    case.step(0)
    case.step(1, seconds=2.0)
    assert case.spent == 0
    clock = case.clock
    clock.map_seconds, clock.profiler_seconds, clock.facts_seconds = 0.5, 0.25, 0.125
    case.step(5, seconds=3.5)
    # THEN two maps are read at its begin for the recorder and two before the observer, and two at its end
    opening, closing = 4 * 0.5 + 0.25, 2 * 0.5 + 0.25 + 2 * 0.125
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


def test_a_step_that_compiles_without_a_window_makes_the_next_one_traced(tmp_path: pathlib.Path) -> None:
    case = Tracer(tmp_path, overhead=1e-9)
    for number in range(2):
        case.tracer.work_through(case.step(number, seconds=0.01))
    assert case.step(2, seconds=0.01) is None
    assert case.step(3, seconds=0.01, compiles=True) is None
    assert case.step(4) is not None


@pytest.mark.parametrize("stopped", [False, True])
def test_without_devices_or_after_a_fault_nothing_is_traced(tmp_path: pathlib.Path, stopped: bool) -> None:
    case = Tracer(tmp_path, ("GPU:0",) if stopped else ())
    if stopped:
        case.faults.stop(TRACING, "a fault")
    assert case.step(0) is None and Window.opened == 0
    assert case.tracer.due(0, "train") == Due()


def test_while_two_profiles_wait_no_further_step_is_traced(tmp_path, monkeypatch, caplog) -> None:
    case = Tracer(tmp_path)
    waiting = [case.step(0), case.step(1, compiles=True)]
    assert None not in waiting and len(waiting) == MAX_WAITING
    # THEN it is left out at once and in silence
    monkeypatch.setattr(step_tracer.background, "while_it_works", None)
    assert case.step(2) is None and caplog.records == []
    case.tracer.work_through(waiting[0])
    assert case.step(3) is not None
    assert case.analyzed == waiting[:1]


@pytest.mark.parametrize("in_time", [True, False])
def test_a_step_that_was_asked_for_waits_for_earlier_profiles(tmp_path, monkeypatch, caplog, in_time) -> None:
    case = Tracer(tmp_path, steps=[1, 2])
    waiting: list[Any] = []

    def while_it_works(done: Any) -> Any:
        if len(waiting) == 2 and in_time:  # meanwhile the first one is analyzed
            case.tracer.work_through(waiting[0])
        return done(0.0)

    monkeypatch.setattr(step_tracer.background, "while_it_works", while_it_works)
    for number in range(2):
        waiting.append(case.step(number))
    with caplog.at_level(logging.WARNING, "tb_memplugin"):
        traced = case.step(2)
    said = [record.message for record in caplog.records]
    assert (traced is not None) is in_time
    assert said == ([] if in_time else ["step 2 was not traced: earlier profiles took too long"])


def room(case: Tracer) -> int:
    """How many further profiles may wait."""
    return case.tracer._room._value


def test_a_step_that_the_user_profiles_is_left_to_the_user(tmp_path, monkeypatch, caplog) -> None:
    case = Tracer(tmp_path)
    monkeypatch.setattr(Window, "busy", True)
    with caplog.at_level(logging.WARNING, "tb_memplugin"):
        assert case.step(0, compiles=True) is None and case.step(1, compiles=True) is None
    assert [record.message.partition(" stopped: ")[0] for record in caplog.records] == [
        "step tracing while another profiler runs"
    ]
    assert case.observer.calls == ["begin", "end GPU:0", "close"] * 2 and room(case) == MAX_WAITING
    # AND a later one is traced
    monkeypatch.setattr(Window, "busy", False)
    assert case.step(2) is not None


@pytest.mark.parametrize(
    ("gave_way", "fault"), [(True, None), (False, ProfilerBusyError()), (False, RuntimeError("no profile"))]
)
def test_a_window_that_gave_way_to_the_users_profiler_or_cannot_be_closed_has_no_profile(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, gave_way: bool, fault: Exception | None
) -> None:
    case = Tracer(tmp_path)
    monkeypatch.setattr(Window, "fails", fault)
    case.tracer.begin(0, "train")
    case.tracer._window.gave_way = gave_way  # type: ignore[union-attr]
    assert case.tracer.end(0, "train", 0.0, 1.0, MIB) is None
    assert case.faults.stopped(TRACING) is isinstance(fault, RuntimeError) and room(case) == MAX_WAITING
    assert not gave_way or case.observer.calls == ["begin", "end GPU:0", "close"]


def test_maps_are_read_before_and_after_the_first_batches_of_a_phase(tmp_path: pathlib.Path) -> None:
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
