"""What stands in for the recorder with ``TB_MEMPLUGIN=0``, or if Keras runs on another backend than
TensorFlow: the same names, which take anything and do nothing. With another backend, the first one
that is made says so."""

import contextlib
from collections.abc import Iterator
from typing import Any, NoReturn

import keras

from tb_memplugin.device_contents import MemorySummary
from tb_memplugin.environment import is_off, is_unrecorded, why_unrecorded
from tb_memplugin.errors import RecordingError


class MemoryCallback(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    _supports_tf_logs = True  # Keras 2 does not wait for the logs of steps then
    _chief_worker_only = False

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()
        is_unrecorded(on_jax=True)

    def _implements_train_batch_hooks(self) -> bool:
        return False

    _implements_test_batch_hooks = _implements_predict_batch_hooks = _implements_train_batch_hooks

    def close(self) -> None: ...


class MemoryRecorder:
    closed = False

    def __init__(self, *_: Any, **__: Any) -> None:
        is_unrecorded()

    def start(self, *_: Any, **__: Any) -> None: ...

    begin_step = end_step = flush = set_epoch = watch = start

    def close(self) -> None:
        self.closed = True

    @contextlib.contextmanager
    def step(self, *_: Any, **__: Any) -> Iterator[None]:
        yield

    def __enter__(self) -> "MemoryRecorder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def memory_summary(*_: Any, **__: Any) -> MemorySummary:
    return MemorySummary((), None, (), (f"{why_unrecorded()}.",))


def probe(*_: Any, **__: Any) -> NoReturn:
    raise RecordingError(f"{why_unrecorded()}.{' Unset it to measure.' if is_off() else ''}")


largest_batch_size = print_what_fits = remat = probe
