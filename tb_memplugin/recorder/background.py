"""The recorder's second thread: writes files, asks the driver and works through traces, so that the training does not
wait."""

import queue
import threading
import time
from collections.abc import Callable


class Background:
    """Runs `tick` every `interval` seconds and jobs as they come, one after another, on one daemon thread.

    Args:
        tick: Called regularly and once more at the end; must not raise.
        write: The part of `tick` that writes out what is there, which `drain` waits for; must not raise.
        interval: Seconds between calls.
    """

    def __init__(self, tick: Callable[[], None], write: Callable[[], None], interval: float) -> None:
        self._tick = tick
        self._write = write
        self._interval = interval
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="tb_memplugin", daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], None]) -> None:
        """Queues a job; it must not raise."""
        self._jobs.put(job)

    def drain(self, timeout: float = 60.0) -> bool:
        """Waits until everything queued so far is done and written out; whether that took at most `timeout` seconds."""
        done = threading.Event()

        def last() -> None:
            self._write()
            done.set()

        self.submit(last)
        return done.wait(timeout)

    def close(self, timeout: float = 60.0) -> bool:
        """Finishes what is queued, ticks a last time and ends; whether that was done within `timeout` seconds."""
        self._jobs.put(None)
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        due = time.monotonic() + self._interval
        while True:
            try:
                job = self._jobs.get(timeout=max(0.0, due - time.monotonic()))
            except queue.Empty:
                self._tick()
                due = time.monotonic() + self._interval
                continue
            if job is None:
                self._tick()
                return
            job()
