"""Summary writing in the manner of `tf.summary`: bytes by layer and allocator snapshots, without the recorder.

```python
with tf.summary.create_file_writer("runs/exp1/memory").as_default():
    tb_memplugin.summary.layer_activations({"block1_conv1": 205_520_896}, step=step)
    tb_memplugin.summary.allocator_snapshot({"device": "GPU:0", "in_use_bytes": 1_648_925_696}, step=step)
```

Give the writer a directory of its own, ``<run>/memory``: TensorBoard's Python reader follows one live event file of a
directory only. Activations are collected and written in chunks: after five seconds, when the writer is flushed or
closed, at exit.
"""

import atexit
import dataclasses
import logging
import math
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tb_memplugin import codec, records
from tb_memplugin.codec import MISSING, Frame
from tb_memplugin.errors import RecordingError
from tb_memplugin.metadata import frame_summary
from tb_memplugin.model import CATEGORIES, PHASES, HeldRow, LayerActivations, LedgerRow, Snapshot
from tb_memplugin.record_fields import MAX_BYTES
from tb_memplugin.run_writer import MAX_ACTIVATION_VALUES
from tb_memplugin.streams import TagRotation, new_session_id
from tb_memplugin.version import __version__

FLUSH_SECONDS = 5.0

logger = logging.getLogger("tb_memplugin")

__all__ = ["allocator_snapshot", "layer_activations"]


def layer_activations(bytes_by_layer: Mapping[str, int], step: Any = None) -> bool:
    """Records bytes of activations by layer at a step.

    Args:
        bytes_by_layer: Layer path to bytes, e.g. ``{"vgg16/block1_conv1": 205_520_896}``.
        step: Training step; by default `tf.summary.experimental.get_step()`.

    Returns:
        Whether it was recorded: False without a default writer (with one warning), or while `tf.summary.record_if`
        says no.

    Raises:
        RecordingError: A value is no byte count, no step is known, or the call is inside a `tf.function`.
    """
    if not isinstance(bytes_by_layer, Mapping) or not bytes_by_layer:
        raise RecordingError(
            f"bytes_by_layer must map layer paths to bytes, such as {{'block1_conv1': 205520896}}. "
            f"Received: {bytes_by_layer!r:.200}"
        )
    sizes = {_layer(path): _bytes(size, f"bytes of layer {path!r}") for path, size in bytes_by_layer.items()}
    state = _recording_state("layer_activations")
    if state is None:
        return False
    state.add_activations(_step(step), sizes)
    return True


def allocator_snapshot(snapshot: Snapshot | Mapping[str, Any], step: Any = None) -> bool:
    """Records what an allocator holds at a step.

    Args:
        snapshot: A `Snapshot`, or a mapping with its fields as in ``tb-memplugin inspect --format json``: `device` and
            `in_use_bytes`; optional `phase` (train), `mode` (graph), `pool_bytes`, `largest_free_bytes`,
            `capacity_bytes`, `fragmentation`, `rounding_bytes`, `ledger` (rows of layer, category, trainable, bytes,
            rounding_bytes), `held_for_backward` (rows of layer, bytes) and `not_available`. What the ledger leaves of
            `in_use_bytes` is `unattributed`.
        step: Training step; by default `tf.summary.experimental.get_step()`.

    Returns:
        Whether it was recorded: False without a default writer (with one warning), or while `tf.summary.record_if`
        says no.

    Raises:
        RecordingError: A field is missing or wrong, no step is known, or the call is inside a `tf.function`.
    """
    made = snapshot if isinstance(snapshot, Snapshot) else snapshot_from_mapping(snapshot)
    state = _recording_state("allocator_snapshot")
    if state is None:
        return False
    state.write_snapshot(made, _step(step))
    return True


def snapshot_from_mapping(fields: Mapping[str, Any]) -> Snapshot:
    """The snapshot that `fields` describe, as `allocator_snapshot` takes them; its step is 0.

    Raises:
        RecordingError: A field is missing or wrong.
    """
    if not isinstance(fields, Mapping) or "device" not in fields or "in_use_bytes" not in fields:
        raise RecordingError(f"an allocator snapshot needs device and in_use_bytes. Received: {fields!r:.200}")
    known = set(Snapshot.__dataclass_fields__) - {"step", "wall_time"}
    unknown = sorted(set(map(str, fields)) - known)
    if unknown:
        raise RecordingError(
            f"an allocator snapshot has the fields {', '.join(sorted(known))}. Received: {', '.join(unknown)}"
        )
    in_use = _bytes(fields["in_use_bytes"], "in_use_bytes")
    fragmentation = fields.get("fragmentation")
    if fragmentation is not None and not (isinstance(fragmentation, (int, float)) and 0 <= fragmentation <= 1):
        raise RecordingError(f"fragmentation must be from 0 to 1. Received: fragmentation={fragmentation!r}")
    sizes = {
        name: None if fields.get(name) is None else _bytes(fields[name], name)
        for name in ("pool_bytes", "largest_free_bytes", "capacity_bytes", "rounding_bytes")
    }
    return Snapshot(
        step=0,
        phase=_one_of(fields.get("phase", "train"), PHASES, "phase"),
        device=str(fields["device"]),
        wall_time=time.time(),
        mode=_one_of(fields.get("mode", "graph"), ("graph", "eager", "xla"), "mode"),
        in_use_bytes=in_use,
        fragmentation=None if fragmentation is None else float(fragmentation),
        ledger=_ledger(fields.get("ledger", ()), in_use),
        held_for_backward=tuple(
            HeldRow(_maybe_layer(row.get("layer")), _bytes(row.get("bytes"), "bytes of held_for_backward"))
            for row in _rows(fields.get("held_for_backward", ()), "held_for_backward")
        ),
        not_available=tuple(str(sentence) for sentence in fields.get("not_available", ())),
        **sizes,
    )


def _ledger(rows: Any, in_use: int) -> tuple[LedgerRow, ...]:
    ledger = []
    for row in _rows(rows, "ledger"):
        rounding = row.get("rounding_bytes")
        ledger.append(
            LedgerRow(
                layer=_maybe_layer(row.get("layer")),
                category=_one_of(row.get("category"), CATEGORIES, "category of a ledger row"),
                trainable=None if row.get("trainable") is None else bool(row["trainable"]),
                bytes=_bytes(row.get("bytes"), "bytes of a ledger row"),
                rounding_bytes=None if rounding is None else _bytes(rounding, "rounding_bytes of a ledger row"),
            )
        )
    rest = in_use - sum(row.bytes for row in ledger)
    if rest < 0:
        raise RecordingError(f"the ledger's rows add up to {in_use - rest} bytes, more than in_use_bytes={in_use}")
    if rest:
        ledger.append(LedgerRow(None, "unattributed", None, rest, None))
    return tuple(sorted(ledger, key=lambda row: -row.bytes))


class _WriterState:
    """What this module keeps for one `tf.summary` writer: its session, its tags and the activations not yet written."""

    def __init__(self, writer: Any) -> None:
        self._writer = weakref.ref(writer)
        self._keep_alive: Any = None
        self._session = new_session_id()
        self._rotations: dict[str, TagRotation] = {}
        self._pending: list[tuple[int, float, dict[str, int]]] = []
        self._pending_values = 0
        self._drained = time.monotonic()
        self._lock = threading.RLock()
        self._described = False
        _drain_before(writer, self)

    def add_activations(self, step: int, sizes: dict[str, int]) -> None:
        with self._lock:
            self._pending.append((step, time.time(), sizes))
            self._pending_values += len(sizes)
            self._keep_alive = self._writer()  # a writer dropped without close() still gets its last rows at exit
            if time.monotonic() - self._drained >= FLUSH_SECONDS or self._pending_values >= MAX_ACTIVATION_VALUES // 2:
                self.drain()

    def write_snapshot(self, snapshot: Snapshot, step: int) -> None:
        placed = dataclasses.replace(snapshot, step=step)
        with self._lock:
            self._write("snapshots", step, records.snapshot_frame, placed)

    def drain(self) -> None:
        """Writes the pending activations through the writer."""
        with self._lock:
            rows, self._pending, self._pending_values = self._pending, [], 0
            self._drained = time.monotonic()
            if rows:
                table = _activations(rows)
                self._write("activations", int(table.step.max()), records.activations_frame, table)
            self._keep_alive = None

    def _write(self, stream: str, step: int, make_frame: Callable[[Any, int], Frame], record: Any) -> None:
        if not self._described:
            self._described = True
            info = records.new_session_info(self._session, "summary", {"tb_memplugin": __version__})
            self._write("meta", step, records.session_frame, info)
        rotation = self._rotations.setdefault(stream, TagRotation(self._session, stream))
        frame = make_frame(record, rotation.sequence)
        summary = frame_summary(rotation.next(step), codec.encode(frame)).SerializeToString()
        _write_raw(self._writer(), summary, step)


_states: "weakref.WeakKeyDictionary[Any, _WriterState]" = weakref.WeakKeyDictionary()
_warned: set[str] = set()


def _recording_state(call: str) -> _WriterState | None:
    import tensorflow as tf

    if not tf.executing_eagerly():
        raise RecordingError(
            f"summary.{call} takes plain numbers and must be called outside of tf.function, "
            "after the step it belongs to"
        )
    writer = _default_writer()
    if writer is None:
        if call not in _warned:
            _warned.add(call)
            logger.warning(
                "summary.%s recorded nothing, because there is no default summary writer: call it inside "
                "`with tf.summary.create_file_writer('runs/exp1/memory').as_default():`",
                call,
            )
        return None
    if not bool(tf.summary.should_record_summaries()):
        return None
    state = _states.get(writer)
    if state is None:
        state = _states[writer] = _WriterState(writer)
    return state


def _default_writer() -> Any:
    from tensorflow.python.ops import summary_ops_v2  # TensorFlow has no public name for the current writer

    return summary_ops_v2._summary_state.writer


def _drain_before(writer: Any, state: _WriterState) -> None:
    """Makes the writer's own `flush` and `close` write what is pending first."""
    for name in ("flush", "close"):
        original = getattr(writer, name)

        def drained(*arguments: Any, _original: Any = original, **named: Any) -> Any:
            state.drain()
            return _original(*arguments, **named)

        setattr(writer, name, drained)


def _write_raw(writer: Any, summary: bytes, step: int) -> None:
    import tensorflow as tf

    if writer is None:
        return
    # The rows were accepted when they were added: the writer and condition of then count, not those of now.
    with writer.as_default(), tf.summary.record_if(True), tf.init_scope():
        tf.summary.experimental.write_raw_pb(summary, step=step)


@atexit.register
def _drain_all() -> None:
    for writer, state in list(_states.items()):
        try:
            state.drain()
            writer.flush()
        except Exception as error:
            logger.warning("the last layer activations could not be written: %s", error)


def _activations(rows: Sequence[tuple[int, float, dict[str, int]]]) -> LayerActivations:
    layers = list(dict.fromkeys(path for _, _, sizes in rows for path in sizes))
    column = {path: at for at, path in enumerate(layers)}
    values = np.full((len(rows), len(layers)), MISSING, np.int64)
    for at, (_, _, sizes) in enumerate(rows):
        for path, size in sizes.items():
            values[at, column[path]] = size
    return LayerActivations(
        step=np.asarray([row[0] for row in rows], np.int64),
        wall_time=np.asarray([row[1] for row in rows], np.float64),
        layers=tuple(layers),
        bytes=values,
    )


def _step(step: Any) -> int:
    import tensorflow as tf

    if step is None:
        step = tf.summary.experimental.get_step()
    if step is None:
        raise RecordingError(
            "no step is known: give one by the `step` argument or with tf.summary.experimental.set_step()"
        )
    try:
        value = int(step)
    except (TypeError, ValueError):
        value = -1
    if isinstance(step, bool) or value < 0:
        raise RecordingError(f"step must be a whole number from 0. Received: step={step!r}")
    return value


def _layer(path: Any) -> str:
    if not isinstance(path, str) or not path or len(path) > codec.MAX_STRING_CHARACTERS:
        raise RecordingError(
            f"a layer path must be a text of 1 to {codec.MAX_STRING_CHARACTERS} characters. Received: {path!r:.100}"
        )
    return path


def _maybe_layer(path: Any) -> str | None:
    return None if path is None else _layer(path)


def _bytes(size: Any, what: str) -> int:
    number = not isinstance(size, (bool, str, bytes)) and (hasattr(size, "__index__") or hasattr(size, "__float__"))
    value = float(size) if number else math.nan
    if not math.isfinite(value) or value < 0 or value != math.floor(value) or value > MAX_BYTES:
        raise RecordingError(f"{what} must be a whole number of bytes from 0. Received: {size!r:.100}")
    return int(size)


def _one_of(value: Any, choices: tuple[Any, ...], what: str) -> Any:
    if value not in choices:
        raise RecordingError(f"{what} must be one of {', '.join(choices)}. Received: {value!r:.100}")
    return value


def _rows(rows: Any, what: str) -> Sequence[Mapping[str, Any]]:
    if not isinstance(rows, Sequence) or not all(isinstance(row, Mapping) for row in rows):
        raise RecordingError(f"{what} must be a list of mappings. Received: {rows!r:.200}")
    return rows
