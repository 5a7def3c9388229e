"""Summaries in the style of `tf.summary`: bytes by layer and allocator snapshots, without the
recorder.

```python
with tf.summary.create_file_writer("runs/exp1/memory").as_default():
    tb_memplugin.summary.layer_activations({"block1_conv1": 205_520_896}, step=step)
    statistics = {"device": "GPU:0", "in_use_bytes": 1_648_925_696}
    tb_memplugin.summary.allocator_snapshot(statistics, step=step)
```

Give the writer its own directory, ``<run>/memory``: TensorBoard's Python reader follows only one
live event file per directory. Activations are buffered and written after five seconds, when the
writer is flushed or closed, and at exit.
"""

from collections.abc import Mapping
from typing import Any

from tb_memplugin.environment import is_off
from tb_memplugin.errors import RecordingError
from tb_memplugin.schema import MAX_STEP, Snapshot
from tb_memplugin.storage.write import (
    check_bytes,
    check_layer,
    is_statistics,
    snapshot_from_mapping,
    snapshot_from_statistics,
    with_rounding_apart,
)

__all__ = ["allocator_snapshot", "layer_activations"]


def layer_activations(bytes_by_layer: Mapping[str, int], step: Any = None) -> bool:
    """Record the bytes of activations by layer at a step.

    Args:
        bytes_by_layer: Layer path to bytes, e.g. ``{"vgg16/block1_conv1": 205_520_896}``.
        step: Training step; by default `tf.summary.experimental.get_step()`.

    Returns:
        Whether it was recorded: False without a default writer (logged once), if
            `tf.summary.record_if` is off, or
        with ``TB_MEMPLUGIN=0``.

    Raises:
        RecordingError: A value is not a byte count, the step is unknown, or the call is inside a
            `tf.function`."""
    if is_off():
        return False
    if not isinstance(bytes_by_layer, Mapping) or not bytes_by_layer:
        wanted = "bytes_by_layer must map layer paths to bytes, such as {'block1_conv1': 205520896}"
        raise RecordingError(f"{wanted}. Received: {bytes_by_layer!r:.200}")
    sizes = {
        check_layer(path): check_bytes(size, f"bytes of layer {path!r}")
        for path, size in bytes_by_layer.items()
    }
    from tb_memplugin.recorder.loop import recording_writer  # not while recording is turned off

    writer = recording_writer("layer_activations")
    if writer is not None:
        writer.add_activations(_step(step), sizes)
    return writer is not None


def allocator_snapshot(
    snapshot: Snapshot | Mapping[str, Any], step: Any = None, device: str | None = None
) -> bool:
    """Record an allocator's memory at a step.

    Args:
        snapshot: What `tf.config.experimental.get_memory_info` returns: its ``peak`` is recorded,
            the highest bytes in use since `tf.config.experimental.reset_memory_stats`. Or a
            `Snapshot`, or a mapping with its fields as in ``tb-memplugin inspect --format json``:
            `device` and `in_use_bytes`; optional `phase` (train), `mode` (graph), `pool_bytes`,
            `largest_free_bytes`, `capacity_bytes`, `fragmentation`, `rounding_bytes`, `ledger`
            (rows of layer, category, trainable, bytes, rounding_bytes), `saved_for_backward` (rows
            of layer, bytes) and `not_available`. The remainder of `in_use_bytes` is `unattributed`.
            The `rounding_bytes` of a row are the part of its `bytes` that was not requested; they
            become a row of category `rounding`.
        step: Training step; by default `tf.summary.experimental.get_step()`.
        device: The device of such statistics, which do not name it; by default the only GPU, or the
            CPU without one.

    Returns:
        Whether it was recorded: False without a default writer (logged once), if
            `tf.summary.record_if` is off, or
        with ``TB_MEMPLUGIN=0``.

    Raises:
        RecordingError: A field is missing or invalid, the step is unknown, or the call is inside a
            `tf.function`."""
    if is_off():
        return False
    made = _snapshot(snapshot, device)
    from tb_memplugin.recorder.loop import recording_writer

    writer = recording_writer("allocator_snapshot")
    if writer is not None:
        writer.write_snapshot(made, _step(step))
    return writer is not None


def _snapshot(snapshot: Snapshot | Mapping[str, Any], device: str | None) -> Snapshot:
    if not isinstance(snapshot, Snapshot) and is_statistics(snapshot):
        return snapshot_from_statistics(snapshot, device or _only_device())
    made = (
        with_rounding_apart(snapshot)
        if isinstance(snapshot, Snapshot)
        else snapshot_from_mapping(snapshot)
    )
    if device not in (None, made.device):
        raise RecordingError(
            f"the snapshot is of {made.device}. Received: device={device!r:.100}; leave it out"
        )
    return made


def _only_device() -> str:
    import tensorflow as tf

    gpus = len(tf.config.list_logical_devices("GPU"))
    if gpus > 1:
        raise RecordingError(
            f"this process has {gpus} GPUs: pass the one of the statistics, such as device='GPU:0'"
        )
    return "GPU:0" if gpus else "CPU:0"


def _step(step: Any) -> int:
    import tensorflow as tf

    if step is None:
        step = tf.summary.experimental.get_step()
    if step is None:
        raise RecordingError(
            "the step is unknown: pass the `step` argument or call "
            "tf.summary.experimental.set_step()"
        )
    try:
        value = int(step)
    except (TypeError, ValueError, OverflowError):
        value = -1
    if isinstance(step, bool) or not 0 <= value <= MAX_STEP:
        raise RecordingError(
            f"step must be an integer from 0 to 2**53 - 1. Received: step={step!r}"
        )
    return value
