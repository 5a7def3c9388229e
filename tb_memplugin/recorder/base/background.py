"""The background thread: it writes files, queries the driver and analyzes traces, so that training
does not wait. All recorders of a process share it. It refers to a recorder only while one of the
recorder's jobs is queued or runs."""

import collections
import contextlib
import functools
import logging
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

logger = logging.getLogger("tb_memplugin")

# longest time that a thread of the program waits for the background thread while that does nothing
WAIT_SECONDS = 5.0
WORK_SECONDS = 60.0
"""Longest time that it waits while the background thread works, for example on the profiles of
traced steps."""
FOREIGN_SECONDS = 240.0
"""Longest time that the end of the process waits for a call into TensorFlow's file systems.
TensorFlow repeats a request ten times, by default for about 100 s (tsl/platform/retrying_utils.h);
some of its file systems wait longer."""
_LOOK_SECONDS = 0.25
_CLOCKS = hasattr(time, "pthread_getcpuclockid")
_WORKED_SECONDS = 0.01  # processor time by which the background thread has worked

Job = Callable[[], object]


def weakly(method: Callable[..., object]) -> Callable[..., None]:
    """A function that calls the method while its object exists, so that a dropped recorder goes at
    once."""
    reference = weakref.WeakMethod(method)

    def call(*arguments: Any) -> None:
        method = reference()
        if method is not None:
            method(*arguments)

    return call


class Background:
    """Calls `tick`, a method kept weakly, every `interval` seconds. Any thread may call the
    methods."""

    def __init__(self, tick: Job, interval: float) -> None:
        self.tick = weakly(tick)
        self.interval = interval
        self._reference = weakref.ref(self)
        hash(self._reference)  # now: Python refuses to hash a reference to an object that is gone
        self.set_ticking(True)

    def set_ticking(self, wanted: bool) -> None:
        # not `self`, which a queued job would keep alive
        reference, interval = self._reference, self.interval

        def change() -> None:
            _thread.due.pop(reference, None)
            if wanted:
                _thread.due[reference] = time.monotonic() + interval

        submit(change)


class _Thread:
    """A daemon thread that starts with the first job. A job that a job submits runs right after it,
    before the jobs of other threads. Only the thread uses `due`, the time of each recorder's next
    tick."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Start over, also in a forked child: it has no such thread, and queued jobs are the
        parent's."""
        self.due: dict[weakref.ref[Background], float] = {}
        self._jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()  # safe to put to in a finalizer
        self._next: collections.deque[Job] = collections.deque()  # submitted by the running job
        self._first = threading.Lock()
        self._thread: threading.Thread | None = None
        self._foreign = threading.Lock()  # held during a foreign call
        self._clocks: dict[int, Callable[[], float]] = {}
        self._ending = False

    def submit(self, job: Callable[..., object], *arguments: Any) -> None:
        """Queue a call; also in a finalizer."""
        call = functools.partial(job, *arguments)
        if self.is_current():
            self._next.append(call)
            return
        self._jobs.put(call)
        # only one thread starts it
        if self._thread is None and self._first.acquire(blocking=False):
            self._thread = threading.Thread(target=self._run, name="tb_memplugin", daemon=True)
            self._thread.start()

    def wait(self) -> bool:
        """Wait until all jobs of all recorders are done; False if the thread did nothing, or
        worked, for too long."""
        if self.is_current():  # a finalizer on this thread
            self._run_next()
            return True
        done = threading.Event()
        self.submit(done.set)
        return self.while_it_works(done.wait)

    def while_it_works(self, done: Callable[[float], bool]) -> bool:
        """Wait like `wait` until `done`, called with a number of seconds to wait for, returns
        True."""
        began = idle_since = time.monotonic()
        used = self._used_seconds()
        while not done(_LOOK_SECONDS):
            now, uses = time.monotonic(), self._used_seconds()
            if uses - used >= _WORKED_SECONDS:
                used, idle_since = uses, now
            if now - idle_since >= WAIT_SECONDS or now - began >= WORK_SECONDS:
                return False
        return True

    @contextlib.contextmanager
    def foreign_call(self) -> Iterator[None]:
        """A block of the background thread that calls TensorFlow's file systems, which wait without
        Python's lock. Raises `InterruptedError` after `end_foreign_calls`."""
        if not self.is_current():
            yield
            return
        with self._foreign:
            if self._ending:
                raise InterruptedError("the process ends before this is written")
            yield

    def end_foreign_calls(self, told: Job) -> bool:
        """Wait until the thread is in no foreign call, and refuse more of them. For the end of the
        process. When the interpreter ends, it ends each thread that comes back from such a call, in
        the middle of TensorFlow's code: that aborts the process. Calls `told` if this takes some
        time; False if the call does not come back."""
        self._ending = True
        if not self._foreign.acquire(timeout=_LOOK_SECONDS):
            told()
            if not self._foreign.acquire(timeout=FOREIGN_SECONDS):
                return False
        self._foreign.release()
        return True

    def add_clock(self, worker: object, clock: Callable[[], float]) -> None:
        """Count the processor time of a worker that the thread waits for as its own, until
        `remove_clock`."""
        self._clocks[id(worker)] = clock

    def remove_clock(self, worker: object) -> None:
        self._clocks.pop(id(worker), None)

    def _used_seconds(self) -> float:
        """Processor time of the thread and of its workers; 0 if the system does not say."""
        thread, used = self._thread, 0.0
        for clock in list(self._clocks.values()):
            with contextlib.suppress(OSError, ValueError):  # a worker that ended
                used += clock()
        if thread is None or thread.ident is None or not thread.is_alive() or not _CLOCKS:
            return used
        return used + time.clock_gettime(time.pthread_getcpuclockid(thread.ident))

    def is_current(self) -> bool:
        return threading.current_thread() is self._thread

    def _run(self) -> None:
        while True:
            # Whatever happens, the thread goes on: other recorders need it, and programs wait for
            # it.
            _run_job(self._tick_those_due)
            timeout = max(0.0, min(self.due.values()) - time.monotonic()) if self.due else None
            try:
                self._next.append(self._jobs.get(timeout=timeout))
            except queue.Empty:
                continue
            self._run_next()

    def _run_next(self) -> None:
        while self._next:
            _run_job(self._next.popleft())

    def _tick_those_due(self) -> None:
        for reference, due in list(self.due.items()):
            background = reference()
            if background is None:
                del self.due[reference]
            elif due <= time.monotonic():
                _run_job(background.tick)
                self._run_next()
                self.due[reference] = time.monotonic() + background.interval


def _run_job(job: Job) -> None:
    try:
        job()
    # a job handles the errors that it expects; other recorders need the thread
    except BaseException:
        logger.warning("a background job of the memory recorder failed", exc_info=True)


_thread = _Thread()
submit, wait, while_it_works = _thread.submit, _thread.wait, _thread.while_it_works
is_this_thread = _thread.is_current
add_clock, remove_clock = _thread.add_clock, _thread.remove_clock
foreign_call, end_foreign_calls = _thread.foreign_call, _thread.end_foreign_calls
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_thread.renew)
