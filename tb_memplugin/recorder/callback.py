"""`MemoryCallback`: the recorder behind Keras's callback hooks."""

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import keras

from tb_memplugin.errors import RecordingError
from tb_memplugin.recorder.session import MemoryRecorder


class MemoryCallback(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """Records the memory of `model.fit`, `model.evaluate` and `model.predict` into a run.

    ```python
    model.fit(..., callbacks=[tb_memplugin.MemoryCallback("runs/exp1")])
    ```

    One callback may serve several calls of `fit`, for example before and after layers are unfrozen: steps go on
    counting. A step lasts from its
    batch's begin to the next one's, so that Keras may go on working through logs in the background.

    Args:
        log_dir: The run's directory (what TensorBoard shows as one run).
        overhead: Share of run time that tracing may cost; 0 traces nothing.
        trace_steps: Trace exactly these training steps instead.
        devices: Names of the devices to record, by default all GPUs, or the CPU where there is none.
        keep_profile: Leave the raw profile of each traced step in the run, for TensorBoard's profiler tab.
        worker: Name of this process, if several record into the same run.

    Raises:
        RecordingError: An argument cannot work.
    """

    # The hooks on_*_batch_end are not overridden on purpose: a callback that has them makes Keras wait for every step's
    # logs, which would slow a GPU down. A step ends where the next hook of this callback is called.

    def __init__(
        self,
        log_dir: str | os.PathLike[str],
        *,
        overhead: float = 0.005,
        trace_steps: Collection[int] | None = None,
        devices: Sequence[str] | None = None,
        keep_profile: bool = False,
        worker: str = "",
    ) -> None:
        super().__init__()
        self._recorder = MemoryRecorder(
            log_dir,
            overhead=overhead,
            trace_steps=trace_steps,
            devices=devices,
            keep_profile=keep_profile,
            worker=worker,
        )
        self._watched: Any = None
        self._first: int | None = None
        self._next = 0

    def set_model(self, model: Any) -> None:
        """Called by Keras before training; from here on the model's functions are observed.

        Raises:
            RecordingError: The callback already records another model.
        """
        super().set_model(model)
        if self._watched is None:
            self._watched = model
            self._recorder.watch(model)
            self._recorder.start()
        elif self._watched is not model:
            raise RecordingError(
                f"this MemoryCallback already records model {self._watched.name!r}: make a second one, "
                "with a log_dir of its own. "
                f"Received: model {model.name!r}"
            )

    def close(self) -> None:
        """Ends the session; otherwise the end of the process does."""
        self._recorder.close()

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        if self._first is None:
            # A training that was restored from a checkpoint goes on where it was.
            self._first = self._next = _iterations(self.model)
        self._recorder.check_layers()

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        self._recorder.end_step()
        self._recorder.set_epoch(epoch)
        self._recorder.check_layers()

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        self._recorder.end_step()

    def on_train_batch_begin(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        self._recorder.begin_step(self._next)
        self._next += 1

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
        self._recorder.end_step()
        self._recorder.set_epoch(None)
        self._recorder.flush()

    def on_test_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        self._recorder.end_step()

    def on_test_batch_begin(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        self._recorder.begin_step(max(self._next - 1, 0), "validation")

    def on_test_end(self, logs: Mapping[str, Any] | None = None) -> None:
        self._recorder.end_step()

    def on_predict_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        self._recorder.end_step()

    def on_predict_batch_begin(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        self._recorder.begin_step(max(self._next - 1, 0), "predict")

    def on_predict_end(self, logs: Mapping[str, Any] | None = None) -> None:
        self._recorder.end_step()


def _iterations(model: Any) -> int:
    optimizer = getattr(model, "optimizer", None)
    try:
        return int(optimizer.iterations) if optimizer is not None else 0
    except Exception:
        return 0
