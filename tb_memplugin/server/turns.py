"""One simulation at a time, of which a short one does not wait for the end of a long one."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from tb_memplugin.fit import between_steps

_WAIT_SECONDS = 0.002


class Turns:
    """Turns of threads that simulate. Thread-safe."""

    def __init__(self) -> None:
        self._others, self._simulating = threading.Lock(), threading.Lock()
        self._first: set[int] = set()  # threads that wait for, or have, a turn before others

    @contextmanager
    def turn(self, first: bool) -> Iterator[None]:
        """Wait for a turn, if it is to come `first` until the next simulated step."""
        if first:
            self._first.add(threading.get_ident())
        token = between_steps.set((lambda: None) if first else self._give_way)
        try:
            with nullcontext() if first else self._others, self._simulating:
                yield
        finally:
            between_steps.reset(token)
            self._first.discard(threading.get_ident())

    def _give_way(self) -> None:
        if self._first:
            self._simulating.release()
            while self._first:
                time.sleep(_WAIT_SECONDS)
            self._simulating.acquire()
