"""What stands in for the recorder with ``TB_MEMPLUGIN=0``: the same names, which take anything and do nothing."""

import contextlib
from collections.abc import Iterator
from typing import Any, NoReturn

import keras

from tb_memplugin.device_contents import MemorySummary
from tb_memplugin.environment import SENTENCE
from tb_memplugin.errors import RecordingError


class MemoryCallback(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    _supports_tf_logs = True  # Keras 2 does not wait for the logs of steps then
    _chief_worker_only = False

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()

    def _implements_train_batch_hooks(self) -> bool:
        return False

    _implements_test_batch_hooks = _implements_predict_batch_hooks = _implements_train_batch_hooks

    def close(self) -> None: ...


class MemoryRecorder:
    closed = False

    def __init__(self, *_: Any, **__: Any) -> None: ...

    start = begin_step = end_step = flush = set_epoch = watch = __init__

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
    return MemorySummary((), None, (), (f"{SENTENCE}.",))


def probe(*_: Any, **__: Any) -> NoReturn:
    raise RecordingError(f"{SENTENCE}. Unset it to measure.")


largest_batch_size = print_what_fits = probe
