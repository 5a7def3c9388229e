"""`RaisedErrors`: sees failed allocations as TensorFlow makes their exceptions, wherever the program is then. No other
place sees them all: a callback of Keras is not told that another one raised, and what the program catches reaches no
hook of Python."""

import atexit
import functools
import logging
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from tb_memplugin.recorder.base import abandon_in_child, background
from tb_memplugin.recorder.failure.failure_maps import dump_files
from tb_memplugin.recorder.failure.failures import memory_request

logger = logging.getLogger("tb_memplugin")


class _Last(NamedTuple):
    """The last failure: its message, when it was seen, and whether TensorFlow had written a dump."""

    message: str
    wall_time: float
    dumped: bool


class RaisedErrors:
    """Wraps the constructor of TensorFlow's exceptions while a session exists, or while one is to be opened. Any thread
    may call the methods; none raises, except for `KeyboardInterrupt`."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._receivers: list[weakref.ref[Any]] = []
        self._kept: Any = None
        self._opener: Callable[[], None] | None = None
        self._original: Any = None  # the constructor, and what stands in for it
        self._wrapper: Any = None
        self._active = self._dumps = False
        self._since = 0.0
        self._last = _Last("", 0.0, False)
        self._local = threading.local()
        abandon_in_child(self)

    def add(self, receiver: Any) -> None:
        """See failures for a session until it is closed or dropped; end the one that was kept."""
        with self._lock:
            self._receivers.append(weakref.ref(receiver))
        self.keep(None)
        self.update()

    def keep(self, receiver: Any) -> None:
        """Keep a session that the program has dropped until the next one is added or dropped."""
        with self._lock:
            kept, self._kept = self._kept, receiver
        try:
            if kept is not None and not kept.closed:
                kept.close_without_waiting()
        except Exception:
            logger.debug("a dropped session could not be ended", exc_info=True)

    def open_with(self, opener: Callable[[], None] | None) -> None:
        """Call a function that opens a session for a failure while there is none; None for no such function."""
        self._opener = opener
        self.update()

    def update(self) -> None:
        try:
            with self._lock:
                self._receivers = [one for one in self._receivers if _is_open(one())]
                wanted = bool(self._receivers) or self._opener is not None
                if wanted and not self._active:
                    self._install()
                elif not wanted and self._active:
                    self._remove()
        except Exception:
            logger.debug("failed allocations cannot be seen outside of steps", exc_info=True)

    def _install(self) -> None:
        import tensorflow as tf

        self._active, self._since = True, time.time()
        kind = tf.errors.OpError
        if self._original is None:
            self._original = original = kind.__init__

            @functools.wraps(original)
            def init(error: Any, *arguments: Any, **named: Any) -> None:
                original(error, *arguments, **named)
                if self._active:
                    self._see(error)

            kind.__init__ = self._wrapper = init
        dump_files.acquire()
        self._dumps = True
        atexit.register(self._remove)

    def _remove(self) -> None:
        import tensorflow as tf

        self._active = False
        atexit.unregister(self._remove)
        if tf.errors.OpError.__init__ is self._wrapper:  # nobody else wrapped it since
            tf.errors.OpError.__init__, self._original = self._original, None
        if self._dumps:
            self._dumps = False
            dump_files.release()

    def _abandon(self) -> None:
        """Forget the parent's sessions in a forked child; the wrapper does nothing until there is one."""
        self._lock = threading.RLock()
        self._receivers, self._opener, self._kept, self._active, self._dumps = [], None, None, False, False

    def _see(self, error: BaseException) -> None:
        import tensorflow as tf

        if isinstance(error, tf.errors.OutOfRangeError):  # the end of a data set
            return
        if getattr(self._local, "busy", False) or background.is_this_thread():
            return
        self._local.busy = True
        try:
            since = max(self._since, self._last.wall_time)
            dumps = dump_files.since(since)
            request = memory_request(error, dumps)
            if request is None or (not dumps and self._repeats(str(error))):
                return
            receiver = self._receiver()
            if receiver is not None:
                receiver.on_raised(error, request, since)
            self._last = _Last(str(error), time.time(), bool(dumps))
        except Exception:
            logger.debug("a failed allocation could not be recorded", exc_info=True)
        finally:
            self._local.busy = False

    def _repeats(self, message: str) -> bool:
        """Whether a message without a new dump repeats the last one, as Keras and input pipelines wrap errors."""
        last = self._last
        return bool(last.message) and last.message in message and (last.dumped or time.time() - last.wall_time < 1.0)

    def _receiver(self) -> Any:
        """The session with the running or the latest step, else the latest without a step, else a new one."""
        receivers = self._open_receivers()
        if not receivers and self._opener is not None:
            self._opener()
            receivers = self._open_receivers()
        latest = max(enumerate(receivers), key=lambda one: (one[1].active_since, one[0]), default=None)
        return None if latest is None else latest[1]

    def _open_receivers(self) -> list[Any]:
        with self._lock:
            return [found for one in self._receivers if _is_open(found := one())]


def _is_open(receiver: Any) -> bool:
    return receiver is not None and not receiver.closed


raised_errors = RaisedErrors()
