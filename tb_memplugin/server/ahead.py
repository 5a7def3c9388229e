"""Asks slow questions before the page does.

The answers lie in the handlers' cache then. One background thread of low priority asks, only while
no request is being answered, so that the page paints first."""

import logging
import os
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeAlias

QUIET_SECONDS = 0.5
"""Time without a request before the next question."""
LOW_PRIORITY = 10
_WAIT_SECONDS = 0.05

Question: TypeAlias = tuple[Hashable, Callable[[], object]]
"""What it is about, equal for the same answer, and a call that asks it."""


class Ahead:
    """Asks questions one at a time, each once. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[Question] = []
        self._asked: set[Hashable] = set()
        self._thread: threading.Thread | None = None
        self._requests, self._last = 0, 0.0

    @contextmanager
    def request(self) -> Iterator[None]:
        """A request is being answered inside."""
        with self._lock:
            self._requests += 1
        try:
            yield
        finally:
            with self._lock:
                self._requests -= 1
                self._last = time.monotonic()

    def ask(self, wanted: Sequence[Question]) -> None:
        """Ask these questions next, and no others that still wait."""
        with self._lock:
            self._waiting = [question for question in wanted if question[0] not in self._asked]
            if self._waiting and self._thread is None:
                self._thread = threading.Thread(
                    target=self._work, name="tb_memplugin ahead", daemon=True
                )
                self._thread.start()

    def _work(self) -> None:
        with suppress(AttributeError, OSError):  # of this thread, which Linux alone can
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOW_PRIORITY)
        while True:
            with self._lock:
                quiet = not self._requests and time.monotonic() - self._last > QUIET_SECONDS
                if not self._waiting:
                    self._thread = None
                    return
                next_one = self._waiting.pop(0) if quiet else None
                if next_one is not None:
                    self._asked.add(next_one[0])
            if next_one is None:
                time.sleep(_WAIT_SECONDS)
                continue
            about, ask = next_one
            try:
                ask()
            except Exception as error:  # whoever asks again is told
                logging.getLogger(__name__).debug(
                    "tb_memplugin: %s was not answered ahead: %r", about, error
                )
