"""The records of the summary API, written through the program's own `tf.summary` writer."""

import atexit
import dataclasses
import logging
import threading
import time
import weakref
from typing import Any

import numpy as np
from tensorboard.compat.proto import event_pb2

from tb_memplugin.errors import RecordingError
from tb_memplugin.recorder.base import abandon_in_child
from tb_memplugin.schema import MISSING, LayerActivations, Snapshot
from tb_memplugin.storage.write import MAX_ACTIVATION_VALUES, RunWriter

FLUSH_SECONDS = 5.0

logger = logging.getLogger("tb_memplugin")


class _Events:
    """Stands in for an event file: its summaries go to a `tf.summary` writer, whose file it is."""

    def __init__(self, writer: Any) -> None:
        self.writer = weakref.ref(writer)

    def write(self, record: bytes, /) -> None:
        import tensorflow as tf

        event, writer = event_pb2.Event.FromString(record), self.writer()
        if writer is None or not event.HasField("summary"):
            return
        summary = event.summary.SerializeToString()
        # The rows were accepted when they were added, so the writer and condition of that time
        # apply.
        with writer.as_default(), tf.summary.record_if(True), tf.init_scope():
            tf.summary.experimental.write_raw_pb(summary, step=event.step)

    def flush(self) -> None: ...

    close = abandon = flush


class SummaryWriter:
    """The session and the buffered activations of one `tf.summary` writer. Any thread may call
    it."""

    def __init__(self, writer: Any) -> None:
        self._events = events = _Events(writer)
        self._session = RunWriter(
            "summary://writer",  # a URL: nothing of it is looked for on the disk
            producer="summary",
            open_file=lambda path: events,
            make_directories=lambda path: None,
        )
        self._keep_alive: Any = None
        self._pending: list[tuple[int, float, dict[str, int]]] = []
        self._pending_values = 0
        self._drained = time.monotonic()
        self._lock = threading.RLock()
        for name in ("flush", "close"):  # which write the buffered activations first
            setattr(writer, name, self._drained_first(getattr(writer, name)))
        abandon_in_child(self)

    def _drained_first(self, original: Any) -> Any:
        def drained(*arguments: Any, **named: Any) -> Any:
            self.drain()
            return original(*arguments, **named)

        return drained

    def _abandon(self) -> None:
        """Forget the buffered activations in a forked child: the parent writes them."""
        self._lock = threading.RLock()
        self._pending, self._pending_values, self._keep_alive = [], 0, None
        writer = self._events.writer()
        if writer is not None:
            _states.pop(writer, None)  # so that nothing is flushed when the child exits

    def add_activations(self, step: int, sizes: dict[str, int]) -> None:
        with self._lock:
            self._pending.append((step, time.time(), sizes))
            self._pending_values += len(sizes)
            # so that a writer dropped without close() gets its last rows at exit
            self._keep_alive = self._events.writer()
            if (
                time.monotonic() - self._drained >= FLUSH_SECONDS
                or self._pending_values >= MAX_ACTIVATION_VALUES // 2
            ):
                self.drain()

    def write_snapshot(self, snapshot: Snapshot, step: int) -> None:
        with self._lock:
            self._session.traced(dataclasses.replace(snapshot, step=step))

    def drain(self) -> None:
        with self._lock:
            rows, self._pending, self._pending_values = self._pending, [], 0
            self._drained = time.monotonic()
            if rows:
                steps, times, sizes = zip(*rows, strict=True)
                layers = tuple(dict.fromkeys(path for one in sizes for path in one))
                values = [[one.get(path, MISSING) for path in layers] for one in sizes]
                table = LayerActivations(
                    np.array(steps, np.int64), np.array(times), layers, np.array(values, np.int64)
                )
                self._session.activations(table)
            self._keep_alive = None


_states: "weakref.WeakKeyDictionary[Any, SummaryWriter]" = weakref.WeakKeyDictionary()
_warned: set[str] = set()


def recording_writer(call: str) -> SummaryWriter | None:
    """The writer of a call of the summary API; None if it records nothing. Refuses calls inside a
    `tf.function`."""
    import tensorflow as tf

    if not tf.executing_eagerly():
        raise RecordingError(
            f"summary.{call} records plain numbers and was called inside a tf.function: call it "
            "after the step, outside of the function"
        )
    # there is no public name for the current writer
    from tensorflow.python.ops import summary_ops_v2

    writer = summary_ops_v2._summary_state.writer
    if writer is None and call not in _warned:
        _warned.add(call)
        logger.warning(
            "summary.%s recorded nothing: there is no default summary writer. Call it inside "
            "`with tf.summary.create_file_writer('runs/exp1/memory').as_default():`",
            call,
        )
    if writer is None or not bool(tf.summary.should_record_summaries()):
        return None
    if writer not in _states:
        _states[writer] = SummaryWriter(writer)
    return _states[writer]


@atexit.register
def _drain_all() -> None:
    for writer, state in list(_states.items()):
        try:
            state.drain()
            writer.flush()
        except Exception as error:
            logger.warning("the last layer activations could not be written: %s", error)
