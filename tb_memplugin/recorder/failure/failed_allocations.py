"""Failed allocations, as TensorFlow writes them to files and raises them: `RaisedErrors` sees them
as their exceptions are made, wherever the program is then; `FailureMaps` finds the memory map, from
TensorFlow's dump or reads during the wait. No other place sees all exceptions: a callback of Keras
is not told that another one raised, and what the program catches reaches no hook of Python.

TensorFlow reads ``TF_BFC_MEMORY_DUMP`` at each failure, so it can be set late. It writes a file
when an allocation fails, retries for up to ten seconds, and writes another one when it gives up;
also for failures that an op tolerates.
"""

import atexit
import collections
import contextlib
import dataclasses
import functools
import itertools
import logging
import os
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tb_memplugin.allocator import would_fit
from tb_memplugin.importers import Request, device_name, read_dump, read_message, read_proto_message
from tb_memplugin.recorder.base import (
    PrivateDirectory,
    abandon_in_child,
    background,
    changes,
    is_private,
    remove_abandoned,
)
from tb_memplugin.recorder.devices import Device, MemoryMaps
from tb_memplugin.recorder.devices import statistics as allocator
from tb_memplugin.recorder.heap import running_functions
from tb_memplugin.schema import MemoryMap

VARIABLE = "TF_BFC_MEMORY_DUMP"
_NAME = re.compile(r"_(?P<allocator>.+)\.(?P<microseconds>\d{10,20})")


@dataclasses.dataclass(frozen=True, order=True)
class DumpFile:
    """A memory dump: when it was written (seconds since the epoch), the allocator's name, and the
    file's path."""

    wall_time: float
    allocator: str
    path: str


class DumpFiles:
    """This process's memory dumps, in a private directory or at the user's own prefix.
    `raised_errors` acquires and releases them, any thread may call the other methods."""

    def __init__(self) -> None:
        self._directory: PrivateDirectory | None = None
        # when it was last changed without a dump in it, in nanoseconds since the epoch
        self._made = 0

    def acquire(self) -> None:
        """Make TensorFlow write dumps, unless the user already does."""
        before = os.environ.get(VARIABLE)
        # A child process inherits the variable of its parent's recorder, but must not write to that
        # directory.
        if self._directory is None and (not before or is_private(before)):
            remove_abandoned()
            directory = PrivateDirectory("oom")
            self._made = os.stat(directory.path).st_mtime_ns
            os.environ[VARIABLE] = os.path.join(directory.path, "dump")
            self._directory = directory

    def release(self) -> None:
        directory, self._directory = self._directory, None
        if directory is not None:
            if os.environ.get(VARIABLE, "").startswith(directory.path):
                del os.environ[VARIABLE]
            directory.remove()

    _abandon = release

    def since(self, wall_time: float) -> list[DumpFile]:
        """Dumps written since a wall time, in order of time. Takes about a microsecond while there
        never was one."""
        prefix = os.environ.get(VARIABLE)
        directory = self._directory
        if not prefix or (
            directory is not None and os.stat(directory.path).st_mtime_ns == self._made
        ):
            return []
        place, name = os.path.split(prefix)
        entries = [entry for entry in os.listdir(place or ".") if entry.startswith(name)]
        return sorted(
            DumpFile(
                int(match["microseconds"]) / 1e6, match["allocator"], os.path.join(place, entry)
            )
            for entry in entries
            if (match := _NAME.fullmatch(entry[len(name) :]))
            and int(match["microseconds"]) / 1e6 >= wall_time
        )

    def remove_before(self, wall_time: float) -> None:
        """Delete dumps from before a wall time in the private directory, not those at the user's
        prefix."""
        for dump in self.since(0.0) if self._directory is not None else ():
            if dump.wall_time < wall_time:
                with contextlib.suppress(OSError):
                    os.remove(dump.path)


WAIT_SECONDS = 9.9  # time after which TensorFlow gives up waiting for memory, and a little less
_PAIR_SECONDS = 0.005


def _given_up(dumps: Sequence[DumpFile]) -> Iterator[DumpFile]:
    """The dumps of attempts after which TensorFlow gave up: the second one of two in a row, after a
    wait."""
    for one, next_one in itertools.pairwise(dumps):
        waited = one.wall_time - dumps[0].wall_time >= WAIT_SECONDS
        if waited and next_one.wall_time - one.wall_time < _PAIR_SECONDS:
            yield next_one


def final_dump(dumps: Sequence[DumpFile]) -> DumpFile:
    """The dump of the attempt after which TensorFlow gave up. Of several threads that fail at once,
    the first one to give up ends the step; of failures that TensorFlow tolerated before, the last
    one counts."""
    begin = dumps[-1].wall_time - WAIT_SECONDS
    return next((one for one in _given_up(dumps) if one.wall_time > begin), dumps[-1])


dump_files = DumpFiles()
abandon_in_child(dump_files)


POLL_SECONDS = 0.5
MAX_MAPS = 8  # most maps that are kept of one step, the newest ones


class FailureMaps:
    """Dumps of the recorded devices, and memory maps of one step, read while its bytes in use do
    not change. The background thread polls, the training's thread clears; any thread may call the
    other methods."""

    def __init__(self, devices: Sequence[Device], maps: MemoryMaps) -> None:
        self._capacities = {device.name: device.capacity_bytes for device in devices}
        self.devices = tuple(self._capacities)
        self._readable = [name for name in self._capacities if maps.available(name)]
        self._maps = maps
        self.clear()

    def clear(self) -> None:
        """Forget the maps as a step begins or ends."""
        self._levels: dict[str, int] = {}
        self._kept: dict[str, collections.deque[tuple[float, bytes]]] = {
            device: collections.deque(maxlen=MAX_MAPS) for device in self._readable
        }

    def poll(self) -> None:
        """Read the maps of a step that is open for a while, if its bytes in use are those of the
        last poll."""
        changes.note()  # now: what is read must be cleared as the step ends
        levels, kept = self._levels, self._kept  # of this step: `clear` replaces them
        for device in self._readable:
            level = allocator.memory_info(device)[0]
            if levels.get(device) == -level:  # its map was read
                continue
            is_still = levels.get(device) == level
            dump = self._maps.read(device) if is_still else None
            if dump is not None:
                kept[device].append((time.time(), dump))
            levels[device] = level if dump is None else -level

    def dumps(self, since: float, allocator: str | None = None) -> list[DumpFile]:
        """Dumps of recorded devices since a wall time, in order of time; optionally of one
        allocator."""
        found = dump_files.since(since)
        return [
            one
            for one in found
            if allocator in (None, one.allocator) and self.device_of(one) is not None
        ]

    def device_of(self, dump: DumpFile) -> str | None:
        """The recorded device of the allocator that wrote the dump, None for any other."""
        name = device_name(dump.allocator)
        return name if name in self._capacities else None

    def at_failure(
        self, device: str, requested: int | None, dumps: list[DumpFile]
    ) -> MemoryMap | None:
        """The map that TensorFlow wrote as it gave up, or else one that was read while it waited.

        Other ops may still free a chunk during the wait, so TensorFlow's dump is the more exact
        one. Without it, the step may have several maps: some from before the request and some from
        after it, when the step's chunks are free already. The newest one in which the request does
        not fit is taken, or the fullest for an unknown size."""
        written = self.read(final_dump(dumps), device) if dumps else None
        if written is not None and (requested is None or would_fit(written, requested) is False):
            return written
        capacity, kept = self._capacities.get(device), reversed(self._kept.get(device, ()))
        maps = [read_dump(data, wall_time, capacity) for wall_time, data in kept]
        if requested is None:
            return max(maps, key=lambda one: one.in_use_bytes or 0, default=None)
        return next((one for one in maps if would_fit(one, requested) is False), written)

    def read(self, dump: DumpFile, device: str) -> MemoryMap | None:
        """Read a dump of a device, waiting until TensorFlow has written it; None if it stays empty
        or was deleted."""
        for _ in range(20):
            try:
                with open(dump.path, "rb") as file:
                    data = file.read()
            except FileNotFoundError:
                return None
            if data:  # TensorFlow writes the file in one go after opening it
                return read_dump(data, dump.wall_time, self._capacities.get(device))
            time.sleep(0.01)
        return None


logger = logging.getLogger("tb_memplugin")

_NO_ALGORITHM, _NO_SCRATCH = "No algorithm worked!", "RESOURCE_EXHAUSTED"
"""TensorFlow's message, in a NotFoundError, if no algorithm of a convolution got its scratch
space."""
_AUTOTUNING = re.compile(
    r'Autotuning failed for HLO: (?:.*?op_name="(?P<op>[^"]+)")?.*No valid config found', re.DOTALL
)
"""XLA's message, in an InternalError, if no algorithm of an op could run while a module was
compiled for a GPU."""
_COPY_FAILED = "Dst tensor is not initialized"
"""TensorFlow's message, in an InternalError, if a copy from the host to a GPU found no memory."""
_PROTO_FAILED = "Cannot parse tensor from proto"
"""TensorFlow's message, in an InvalidArgumentError, if a kernel that holds a constant found no
memory for it."""
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
    if not exhausted and not dumps and _NO_ALGORITHM not in message and _COPY_FAILED not in message:
        return None  # soon: TensorFlow makes an error for each op that it traces
    request = read_message(message)
    if exhausted and request is not None:
        return request
    op = None if request is None else request.op
    if _NO_ALGORITHM in message and _NO_SCRATCH in message:
        return Request(op=op, trials=True)  # of a size for each algorithm
    if _COPY_FAILED in message:
        return Request()
    if not dumps:
        return None
    tuned = _AUTOTUNING.search(message)
    if tuned is not None:
        return Request(op=tuned["op"], trials=True)
    just_now = time.time() - dumps[-1].wall_time < _RAISED_SECONDS
    if just_now and (_PROTO_FAILED in message or any(one is dumps[-1] for one in _given_up(dumps))):
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
        self._receivers: list[weakref.ref[Any]] = []
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
        with self._lock:
            self._receivers.append(weakref.ref(receiver))
        self.keep(None)
        self.update()

    def keep(self, receiver: Any) -> None:
        """Keep a session that the program has dropped until the next one is added or dropped."""
        with self._lock:
            kept, self._kept = self._kept, receiver
        try:
            if _is_open(kept):
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
        self._receivers, self._opener, self._kept, self._active = [], None, None, False

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
        with self._lock:
            return [found for one in self._receivers if _is_open(found := one())]


def _is_open(receiver: Any) -> bool:
    return receiver is not None and not receiver.closed


raised_errors = RaisedErrors()
