"""Failed allocations as TensorFlow raises them: `RaisedErrors` sees them as their exceptions are
made, wherever the program is then. No other place sees all exceptions: a callback of Keras is not
told that another one raised, and what the program catches reaches no hook of Python."""

import atexit
import contextlib
import dataclasses
import functools
import itertools
import logging
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tb_memplugin.importers import Request, read_message, read_proto_message
from tb_memplugin.recorder.base import abandon_in_child, background
from tb_memplugin.recorder.failure.dumps import DumpFile, dump_files, given_up
from tb_memplugin.recorder.heap import running_functions

logger = logging.getLogger("tb_memplugin")

_NO_ALGORITHM, _NO_SCRATCH = "No algorithm worked!", "RESOURCE_EXHAUSTED"
"""TensorFlow's message, in a NotFoundError, if no algorithm of a convolution got its scratch
space."""
_AUTOTUNING = re.compile(
    r'Autotuning failed for HLO: (?:.*?op_name="(?P<op>[^"]+)")?.*'
    r"(?:No valid config found|RESOURCE_EXHAUSTED)",
    re.DOTALL,
)
"""XLA's message, in an InternalError, if no algorithm of an op could run while a module was
compiled for a GPU."""
_OF_LIBRARY = re.compile(
    r"\b(?:CUBLAS_STATUS_(?:NOT_INITIALIZED|ALLOC_FAILED)|CUDNN_STATUS_ALLOC_FAILED)\b"
)
"""Statuses of cuBLAS and cuDNN, in errors of several kinds, without memory of their own."""
_BYTES = re.compile(
    r"[Ff]ailed to allocate (?:request for \S+ \()?(?P<bytes>\d{1,18}) ?(?:bytes|B)\b"
)
"""XLA's message, in an InternalError, if a running module found no memory for a buffer or a
constant."""
_COPY_FAILED = "Dst tensor is not initialized"
"""TensorFlow's message, in an InternalError, if a copy from the host to a GPU found no memory."""
_PROTO_FAILED = "Cannot parse tensor from proto"
"""TensorFlow's message, in an InvalidArgumentError, if a kernel that holds a constant found no
memory for it."""
_ABOUT_MEMORY = (
    _NO_ALGORITHM,
    _COPY_FAILED,
    "Autotuning failed",
    "ailed to allocate",
    *("CUBLAS_STATUS_", "CUDNN_STATUS_"),
)
# longest time from TensorFlow's last dump of a failed allocation to the exception
_RAISED_SECONDS = 2.0


def memory_request(error: BaseException, dumps: Sequence[DumpFile] = ()) -> Request | None:
    """The request that failed according to an exception that was just made, None if it has another
    cause. Some kernels report a failed allocation as another error; `dumps`, those of the step or
    since the last one, show it."""
    import tensorflow as tf

    if not isinstance(error, tf.errors.OpError):
        return None
    message = str(error)
    exhausted = isinstance(error, tf.errors.ResourceExhaustedError)
    if not exhausted and not dumps and not any(text in message for text in _ABOUT_MEMORY):
        return None  # soon: TensorFlow makes an error for each op that it traces
    request = read_message(message)
    if exhausted and request is not None:
        return request
    op = None if request is None else request.op
    library, size = _OF_LIBRARY.search(message), _BYTES.search(message)
    if library is not None:
        return Request(op=op, library="cuDNN" if library[0].startswith("CUDNN") else "cuBLAS")
    if size is not None:
        return Request(int(size["bytes"]), op, compiled=True)
    if _NO_ALGORITHM in message and _NO_SCRATCH in message:
        return Request(op=op, trials=True)  # of a size for each algorithm
    if _COPY_FAILED in message:
        return Request()
    tuned = _AUTOTUNING.search(message)
    if tuned is not None and (dumps or _NO_SCRATCH in message):
        return Request(op=tuned["op"], trials=True)
    if not dumps:
        return None
    just_now = time.time() - dumps[-1].wall_time < _RAISED_SECONDS
    gave_up = any(one is dumps[-1] for one in given_up(dumps))
    # TensorFlow writes a large constant into the message, which may take longer than that
    is_constant = _PROTO_FAILED in message
    if (just_now and gave_up) or (is_constant and (just_now or gave_up)):
        return read_proto_message(message)
    return None


@dataclasses.dataclass(frozen=True)
class RaisedError:
    """A failed allocation that TensorFlow reports to Python, as its exception is made."""

    request: Request
    # weak: the exception's frames hold the tensors of the failed step
    error: Callable[[], BaseException | None]
    message: str
    layers: tuple[int, ...]  # ids of the layers whose calls were running, the innermost first
    layer_name: str | None  # of the innermost one, None without one
    line: str | None  # the user's line that was running, None if lines are not recorded
    builds: bool  # whether a layer was being built

    def is_among(self, errors: Sequence[BaseException]) -> bool:
        error = self.error()
        return any(error is other or _quotes(other, self.message) for other in errors)


def causes(*errors: BaseException | None) -> Iterator[BaseException]:
    """Exceptions with those that they were raised from, or while handling."""
    pending, seen = [one for one in errors if one is not None], set[int]()
    while pending:
        error = pending.pop()
        if id(error) not in seen:
            seen.add(id(error))
            yield error
            pending += [one for one in (error.__cause__, error.__context__) if one is not None]


def _quotes(error: BaseException, message: str) -> bool:
    """Whether an error of TensorFlow contains another one's message, as an input pipeline's does
    its generator's."""
    text = str(error) if type(error).__module__.startswith("tensorflow.") else ""
    return bool(message) and message in text and text != message


_LAYER_CALLS = ("__call__", "call", "build")


def raised_now(
    error: BaseException, request: Request, line_of: Callable[[Any], str | None]
) -> RaisedError:
    """The failure of an exception that this thread makes now. `line_of` gives the innermost layer's
    line."""
    layers, builds = [], False
    for frame, variables in running_functions():
        layer = variables.get("self")
        # A model whose `fit` runs is no layer that runs: the op may belong to the loss or the input
        # pipeline.
        if frame.f_code.co_name in _LAYER_CALLS and hasattr(type(layer), "trainable_variables"):
            layers.append(layer)
            builds = builds or frame.f_code.co_name == "build"
    innermost = layers[0] if layers else None
    name, line = getattr(innermost, "name", None), line_of(innermost)
    return RaisedError(
        request, weakref.ref(error), str(error), tuple(map(id, layers)), name, line, builds
    )


class RaisedErrors:
    """Wraps the constructor of TensorFlow's exceptions while a session exists, or is to be opened.
    Any thread may call the methods; none raises, except for `KeyboardInterrupt`."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._numbers = itertools.count()
        self._receivers: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._kept: Any = None
        self._opener: Callable[[], None] | None = None
        self._original: Any = None  # the constructor, and what stands in for it
        self._wrapper: Any = None
        self._active = False
        self._since = 0.0
        # the last failure's message, when it was seen, whether TensorFlow dumped it
        self._last = ("", 0.0, False)
        self._local = threading.local()
        abandon_in_child(self)

    def add(self, receiver: Any) -> None:
        """See failures for a session until it is closed or dropped; end the one that was kept."""
        self._receivers[next(self._numbers)] = receiver
        self.keep(None)
        self.update()

    def keep(self, session: Any) -> None:
        """Keep a session that the program has dropped until the next one is added or dropped."""
        with self._lock:
            kept, self._kept = self._kept, session
        try:
            if kept is not None and not kept.closed:
                kept.close_without_waiting()
        except Exception:
            logger.debug("a dropped session could not be ended", exc_info=True)

    def open_with(self, opener: Callable[[], None] | None) -> None:
        """Call a function that opens a session for a failure while there is none; None for no such
        function."""
        self._opener = opener
        self.update()

    def update(self) -> None:
        try:
            with self._lock:
                wanted = self._opener is not None or bool(self._open_receivers())
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
        atexit.register(self._remove)

    def _remove(self) -> None:
        import tensorflow as tf

        self._active = False
        atexit.unregister(self._remove)
        if tf.errors.OpError.__init__ is self._wrapper:  # nobody else wrapped it since
            tf.errors.OpError.__init__, self._original = self._original, None
        dump_files.release()

    def _abandon(self) -> None:
        """Forget the parent's sessions in a forked child; the wrapper does nothing until there is
        one."""
        self._lock = threading.RLock()
        self._receivers.clear()
        self._opener, self._kept, self._active = None, None, False

    def _see(self, error: BaseException) -> None:
        import tensorflow as tf

        ends_data = isinstance(error, tf.errors.OutOfRangeError)
        if ends_data or getattr(self._local, "busy", False) or background.is_this_thread():
            return
        self._local.busy = True
        try:
            since = max(self._since, self._last[1])
            dumps = dump_files.since(since)
            request = memory_request(error, dumps)
            last, wall_time, dumped = self._last
            # Keras and input pipelines wrap errors: without a new dump, such a message is of the
            # same failure.
            repeats = (
                bool(last) and last in str(error) and (dumped or time.time() - wall_time < 1.0)
            )
            if request is None or (not dumps and repeats):
                return
            receivers = self._open_receivers()
            if not receivers and self._opener is not None:
                self._opener()
                receivers = self._open_receivers()
            # The sessions whose step runs here; else that with the running or the latest step, else
            # the latest without a step, else a new one.
            here = [one for one in receivers if one.guards_this_thread]
            for receiver in here or sorted(receivers, key=lambda one: one.active_since)[-1:]:
                receiver.on_raised(error, request, since)
            self._last = (str(error), time.time(), bool(dumps))
        except Exception:
            logger.debug("a failed allocation could not be recorded", exc_info=True)
        finally:
            self._local.busy = False

    @contextlib.contextmanager
    def ignored(self) -> Iterator[None]:
        """Let no session see what fails on this thread in the block."""
        before, self._local.busy = getattr(self._local, "busy", False), True
        try:
            yield
        finally:
            self._local.busy = before

    def _open_receivers(self) -> list[Any]:
        return [one for one in list(self._receivers.values()) if not one.closed]


raised_errors = RaisedErrors()
