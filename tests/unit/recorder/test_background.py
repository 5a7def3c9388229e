"""The background thread: it outlives every fault of a job, and nobody waits long for it."""

import threading
import time

import pytest

from tb_memplugin.recorder.base import background
from tb_memplugin.recorder.base.background import Background


class Ticking:
    """Ticks that fail until `cured`."""

    def __init__(self) -> None:
        self.cured = False
        self.ticks = 0
        self.background = Background(self.tick, self.write, 0.01)

    def tick(self) -> None:
        self.ticks += 1
        if not self.cured:
            raise SystemExit("a tick that exits")

    def write(self) -> None:
        return


@pytest.mark.parametrize("fault", [SystemExit, KeyboardInterrupt, MemoryError, OverflowError])
def test_a_job_that_raises_anything_leaves_the_thread_to_the_others(fault: type[BaseException]) -> None:
    def job() -> None:
        raise fault("on purpose")

    done = threading.Event()
    background._thread.submit(job)
    background._thread.submit(done.set)
    assert done.wait(5)


def test_ticks_go_on_after_one_that_raised() -> None:
    ticking = Ticking()
    deadline = time.monotonic() + 5
    while ticking.ticks < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert ticking.ticks >= 2 and ticking.background.drain()


def test_a_wait_for_a_thread_that_does_nothing_takes_five_seconds() -> None:
    released = threading.Event()
    background._thread.submit(lambda: released.wait(30) and None)
    began = time.monotonic()
    try:
        assert background.wait() is False
    finally:
        released.set()
    assert 4.5 < time.monotonic() - began < 6
    assert background.wait()


def work(seconds: float) -> None:
    """Uses so much processor time."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def test_a_wait_goes_on_while_the_thread_works_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "WAIT_SECONDS", 0.6)
    background._thread.submit(lambda: work(1.5))
    assert background.wait()
    monkeypatch.setattr(background, "WORK_SECONDS", 0.9)
    background._thread.submit(lambda: work(3))
    began = time.monotonic()
    assert background.wait() is False
    assert 0.8 < time.monotonic() - began < 3
    monkeypatch.undo()
    assert background.wait()
