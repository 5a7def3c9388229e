"""`MemoryCallback`: the recorder behind Keras's callback hooks."""

import functools
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import keras

from tb_memplugin.errors import RecordingError
from tb_memplugin.recorder.session import MemoryRecorder

_STEP_FUNCTIONS = ("train_function", "test_function", "predict_function")
"""Where Keras keeps what runs one step of each phase."""


class MemoryCallback(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """Records the memory of `model.fit`, `model.evaluate` and `model.predict` into a run.

    ```python
    model.fit(..., callbacks=[tb_memplugin.MemoryCallback("runs/exp1")])
    ```

    One callback may serve several calls of `fit`, for example before and after layers are unfrozen: steps go on
    counting. A step lasts from its batch's begin to the next one's, so that Keras may go on working through logs in
    the background.

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
            self._recorder.have_functions_traced_again(model)
        elif self._watched is not model:
            raise RecordingError(
                f"this MemoryCallback already records model {self._watched.name!r}: make a second one, "
                "with a log_dir of its own. "
                f"Received: model {model.name!r}"
            )

    def _guard(self, name: str) -> None:
        """Puts a call round the model's function of that name, through which an exception of a step passes.

        Keras calls no hook of a callback then. The call is taken off at the end of the phase, or as it fails.
        """
        original = getattr(self.model, name, None)
        if original is None or hasattr(original, "tb_memplugin_original"):
            return

        @functools.wraps(original)
        def guarded(*arguments: Any, **named: Any) -> Any:
            try:
                return original(*arguments, **named)
            except Exception as error:
                # Other exceptions are Keras's own, such as the end of the data.
                if self._recorder.died(error):
                    self._recorder.end_step()
                    for function in _STEP_FUNCTIONS:
                        self._unguard(function)
                raise

        guarded.tb_memplugin_original = original  # type: ignore[attr-defined]
        setattr(self.model, name, guarded)

    def _unguard(self, name: str) -> None:
        original = getattr(getattr(self.model, name, None), "tb_memplugin_original", None)
        if original is not None:
            setattr(self.model, name, original)

    def close(self) -> None:
        """Ends the session; otherwise the end of the process does."""
        self._recorder.close()

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        self._guard("train_function")
        self._recorder.check_layers()
        if self._first is None:
            # A training that was restored from a checkpoint goes on where it was.
            self._first = self._next = _iterations(self.model)
            self._recorder.before_data()

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
        self._unguard("train_function")
        self._recorder.end_step()
        self._recorder.set_epoch(None)
        self._recorder.flush()

    def on_test_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        self._guard("test_function")
        self._recorder.end_step()

    def on_test_batch_begin(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        self._recorder.begin_step(max(self._next - 1, 0), "validation")

    def on_test_end(self, logs: Mapping[str, Any] | None = None) -> None:
        self._unguard("test_function")
        self._recorder.end_step()

    def on_predict_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        self._guard("predict_function")
        self._recorder.end_step()

    def on_predict_batch_begin(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        self._recorder.begin_step(max(self._next - 1, 0), "predict")

    def on_predict_end(self, logs: Mapping[str, Any] | None = None) -> None:
        self._unguard("predict_function")
        self._recorder.end_step()


def _iterations(model: Any) -> int:
    optimizer = getattr(model, "optimizer", None)
    try:
        return int(optimizer.iterations) if optimizer is not None else 0
    except Exception:
        return 0
