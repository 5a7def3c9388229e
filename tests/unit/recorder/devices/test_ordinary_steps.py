"""The path of an ordinary step: what it keeps, and what ends a row of such steps."""

from collections.abc import Callable
from typing import Any

import pytest

from tb_memplugin.recorder.base import Due, changes
from tb_memplugin.recorder.devices import samples as ordinary_steps
from tb_memplugin.recorder.devices.samples import RESIDENT_SECONDS, OrdinarySteps

NEVER = Due()


class System:
    """A clock, an allocator for each device and host RSS."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *devices: str) -> None:
        self.now = 1000.0
        self.peaks = dict.fromkeys(devices, 100)
        self.resets: list[str] = []
        self.reads = 0
        self.rows: list[tuple[float, ...]] = []
        monkeypatch.setattr(ordinary_steps, "time", self)
        self.steps = OrdinarySteps(devices, self)  # type: ignore[arg-type]

    def time(self) -> float:
        return self.now

    def resident_bytes(self) -> int:
        self.reads += 1
        return 7000 + self.reads

    def get(self, context: str, device: str) -> dict[str, int]:
        assert context == "context"
        return {"current": 50, "peak": self.peaks[device]}

    def reset(self, context: str, device: str) -> None:
        self.resets.append(device)

    def allow(self, step: int, due: Due = NEVER, behind: float = 0.0, **functions: Any) -> None:
        get, reset = functions.get("get", self.get), functions.get("reset", self.reset)
        keep: Callable[..., None] = functions.get("keep", self.rows.append)
        self.steps.begin(step, self.now + behind)
        self.steps.allow(changes.last, due, behind, (self.now + behind, 7000), ("context", get, reset), keep)

    def next(self, step: int, seconds: float = 0.01) -> bool:
        self.now += seconds
        return self.steps.next(step)


def test_a_step_ends_with_its_figures_and_the_next_one_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    system = System(monkeypatch, "GPU:0", "GPU:1")
    system.allow(5)
    system.peaks["GPU:1"] = 300
    assert system.next(6, 0.25) and system.next(7, 0.5)
    assert system.rows == [(1000.25, 5, 7001, 50, 100, 50, 300), (1000.75, 6, 7002, 50, 100, 50, 300)]
    assert system.resets == ["GPU:0", "GPU:1"] * 2
    assert (system.steps.step, system.steps.began, system.steps.passed) == (7, 1000.75, 2)
    assert system.steps.take() == (2, 0.75, 300)
    # AND from then on none begins here, until the next `allow`
    assert not system.next(8) and system.steps.take() == (0, 0.0, 0) and len(system.rows) == 2


def test_host_rss_is_read_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    system = System(monkeypatch, "CPU:0")
    system.allow(0)
    seconds = RESIDENT_SECONDS / 2 + 0.001
    assert all(system.next(step, seconds) for step in range(1, 6))
    assert [row[2] for row in system.rows] == [7000, 7001, 7001, 7002, 7002]


@pytest.mark.parametrize(
    ("due", "passed"), [(Due(seconds=0.025), 2), (Due(step=4), 3), (Due(peak_bytes=99), 0), (Due(seconds=-1.0), 0)]
)
def test_what_is_due_ends_the_row_of_ordinary_steps(monkeypatch: pytest.MonkeyPatch, due: Due, passed: int) -> None:
    system = System(monkeypatch, "CPU:0")
    system.allow(0, due)
    assert [system.next(step) for step in range(1, 6)] == [True] * passed + [False] * (5 - passed)
    # A step that ends on the other path is measured there: its peak was not reset.
    assert len(system.rows) == len(system.resets) == passed


def test_a_change_a_pause_and_a_clock_that_is_set_back_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    system = System(monkeypatch, "CPU:0")
    system.allow(0)
    assert system.next(1)
    changes.note()
    assert not system.next(2)
    system.allow(0)
    system.steps.forbid()
    assert not system.next(1)
    system.steps.take()
    system.rows.clear()
    system.now = 1000.0
    system.allow(0, behind=60.0)
    assert system.next(1, 1.0) and system.rows[0][0] == 1061.0
    assert not system.next(2, -3600.0)


@pytest.mark.parametrize("part", ["get", "reset", "keep"])
def test_a_fault_is_left_to_the_other_path(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    def broken(*arguments: Any) -> Any:
        raise RuntimeError("broken on purpose")

    system = System(monkeypatch, "CPU:0")
    system.allow(0, **{part: broken})
    assert not system.next(1)
    assert system.rows == [] and (system.steps.step, system.steps.passed) == (0, 0)


def test_a_clock_that_is_set_back_does_not_run_backwards(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a system clock that is set back by an hour, forward by a day, and back again
    system = iter([100.0, 101.0, -3499.0, -3498.0, 82902.0, 82903.0, -1.0, 0.0])
    monkeypatch.setattr(ordinary_steps.time, "time", lambda: next(system))
    session = ordinary_steps.Clock()
    # THEN steps keep their distances, except at the moment that it is set back
    assert [session.now() for _ in range(8)] == [100, 101, 101, 102, 86502, 86503, 86503, 86504]
