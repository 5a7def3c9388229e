"""The background thread: it outlives every fault of a job, and nobody waits long for it."""

import math
import threading
import time
import types

import pytest

from tb_memplugin.recorder.base import Background, background

HANGS_SECONDS = 120
"""A wait that takes this long has failed; how quickly it succeeds is not asserted."""


@pytest.mark.parametrize("fault", [SystemExit, KeyboardInterrupt, MemoryError, OverflowError])
def test_a_job_that_raises_anything_leaves_the_thread_to_the_others(
    fault: type[BaseException],
) -> None:
    def job() -> None:
        raise fault("on purpose")

    done = threading.Event()
    background._thread.submit(job)
    background._thread.submit(done.set)
    assert done.wait(HANGS_SECONDS)


def test_ticks_go_on_after_one_that_raised() -> None:
    class Ticking:
        ticks, again = 0, threading.Event()

        def tick(self) -> None:
            self.ticks += 1
            if self.ticks >= 2:
                self.again.set()
            raise SystemExit("a tick that exits")

    ticking = Ticking()
    ticks = Background(ticking.tick, 0.01)
    assert ticking.again.wait(HANGS_SECONDS)
    assert background.wait() and ticks


class Looks:
    """A clock that each look at an unfinished job advances, and a thread that works for the first
    `worked` seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, worked: float, done_at: float) -> None:
        self.now, self._worked, self._done_at = 0.0, worked, done_at
        monkeypatch.setattr(background, "time", types.SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(
            background._thread, "_used_seconds", lambda: min(self.now, self._worked)
        )

    def done(self, seconds: float) -> bool:
        self.now += seconds
        return self.now >= self._done_at


@pytest.mark.parametrize(
    ("worked", "done_at", "until"),
    [(0, math.inf, 5), (10, math.inf, 15), (math.inf, math.inf, 60), (20, 24, 24)],
)
def test_a_wait_ends_with_the_jobs_or_after_five_seconds_without_work_or_after_a_minute(
    monkeypatch: pytest.MonkeyPatch, worked: float, done_at: float, until: float
) -> None:
    looks = Looks(monkeypatch, worked, done_at)
    assert background.while_it_works(looks.done) is (until == done_at)
    assert looks.now == until


def test_a_wait_returns_before_a_job_that_does_nothing_and_the_next_one_after_it(
    monkeypatch,
) -> None:
    released, order = threading.Event(), list[str]()

    def job() -> None:
        released.wait()
        order.append("job")

    monkeypatch.setattr(background, "WAIT_SECONDS", 0.1)
    background._thread.submit(job)
    assert background.wait() is False
    order.append("waited")
    monkeypatch.undo()
    released.set()
    assert background.wait()
    assert order == ["waited", "job"]


def test_the_end_waits_for_a_foreign_call_and_refuses_the_next() -> None:
    thread = background._Thread()
    inside, leave, refused = threading.Event(), threading.Event(), threading.Event()
    ended: list[bool] = []

    def call() -> None:
        with thread.foreign_call():
            inside.set()
            assert leave.wait(60)

    def call_again() -> None:
        with pytest.raises(InterruptedError), thread.foreign_call():
            pass
        refused.set()

    thread.submit(call)
    thread.submit(call_again)
    assert inside.wait(60)
    # WHEN the process ends THEN it says that it waits, until the call has come back
    assert thread.end_foreign_calls(lambda: (ended.append(refused.is_set()), leave.set())[1])
    assert ended == [False] and refused.wait(60)
    # AND it does not wait again, nor for calls of other threads
    assert thread.end_foreign_calls(ended.clear) and ended == [False]
    with thread.foreign_call():
        assert thread.end_foreign_calls(ended.clear) and ended == [False]


def test_processor_time_of_a_job_is_work_and_a_foreign_call_that_never_returns_is_left_alone(
    monkeypatch,
) -> None:
    def work() -> None:
        until = time.thread_time() + 0.8
        while time.thread_time() < until:
            pass

    # GIVEN a job that works for longer than the thread may be idle, THEN a wait does not give it up
    monkeypatch.setattr(background, "WAIT_SECONDS", 0.4)
    background.submit(work)
    assert background.wait()
    thread, inside, leave = background._Thread(), threading.Event(), threading.Event()
    monkeypatch.setattr(background, "FOREIGN_SECONDS", 0.01)

    def call() -> None:
        with thread.foreign_call():
            inside.set()
            leave.wait(5)

    thread.submit(call)
    assert inside.wait(60) and not thread.end_foreign_calls(lambda: None)
    leave.set()
