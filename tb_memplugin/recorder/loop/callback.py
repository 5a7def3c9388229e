"""`MemoryCallback`: a recording session behind Keras's callback hooks."""

import functools
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from tb_memplugin.recorder.base import (
    DEFAULT_LOG_DIR,
    abandon_in_child,
    checked_settings,
    submit,
    weakly,
)
from tb_memplugin.recorder.devices import FastPath
from tb_memplugin.recorder.heap import RunningCall
from tb_memplugin.recorder.loop.recording import Recording
from tb_memplugin.recorder.watch import STEP_FUNCTIONS, hooks
from tb_memplugin.schema import RECORDING, Phase

OTHER_MODELS = "recording of other models"
# exceptions of a step function after which Keras goes on
_END_OF_DATA = (StopIteration, tf.errors.OutOfRangeError)


class MemoryCallback(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """Records the memory of `model.fit`, `model.evaluate` and `model.predict` into a run.

    ```python
    model.fit(..., callbacks=[tb_memplugin.MemoryCallback("runs/exp1")])
    ```

    One callback may serve several calls of `fit`, for example before and after layers are unfrozen;
    steps continue to count. A step lasts from the beginning of its batch to the beginning of the
    next one. Before the first `fit`, the batches of `evaluate` and `predict` count as steps; from
    then on they have the number of the last training step.

    Args:
        log_dir: Directory of the run (one run in TensorBoard), local or a URL that TensorFlow can
            write to.
        overhead: Share of run time that tracing may cost; 0 traces nothing.
        trace_steps: Trace exactly these training steps instead.
        devices: Names of the devices to record; by default all GPUs, or the CPU if there is none.
        keep_profile: Keep the raw profile of each traced step in the run, for TensorBoard's
            profiler tab.
        worker: Name of this process if several record into the same run; by default from
            ``TF_CONFIG``.
        source_lines: Store the line of your code that called each layer and op: name of the file
            and number.
        scalars: Also write peaks as scalars for TensorBoard's Scalars and HParams dashboards.
        batch_size: Examples in the batch of a training step, for one replica, where neither Keras
            nor the tensors of a step show it.
        at_failure: A function that is called when a failed allocation is about to end the program,
            or has ended a cell of IPython, and its traceback was printed:
            `tb_memplugin.print_what_fits`, or one with its parameters.

    Raises:
        RecordingError: An argument is invalid."""

    # on_*_batch_end is not overridden: with it, Keras would wait for the logs of every step, which
    # slows a GPU down. A step ends when Keras calls the next hook. Keras 2 asks each callback the
    # following.
    _supports_tf_logs = True  # so it does not wait for the logs either
    _chief_worker_only = False

    def _implements_train_batch_hooks(self) -> bool:
        return True

    _implements_test_batch_hooks = _implements_predict_batch_hooks = _implements_train_batch_hooks

    def __init__(
        self,
        log_dir: str | os.PathLike[str] = DEFAULT_LOG_DIR,
        *,
        overhead: float = 0.005,
        trace_steps: Collection[int] | None = None,
        devices: Sequence[str] | None = None,
        keep_profile: bool = False,
        worker: str | None = None,
        source_lines: bool = True,
        scalars: bool = False,
        batch_size: int | None = None,
        at_failure: Callable[[BaseException, str], object] | None = None,
    ) -> None:
        super().__init__()
        settings = checked_settings(
            log_dir,
            overhead,
            trace_steps,
            devices,
            keep_profile,
            worker,
            source_lines,
            scalars,
            batch_size,
            at_failure,
        )
        self._recording = Recording(settings)
        # Weak: a callback that is kept must not keep its model.
        self._model_reference: Callable[[], Any] = lambda: None
        self._model_name: str | None = None
        self._call: RunningCall | None = None
        self._changing = threading.RLock()
        self._other: RunningCall | None = None  # the call of another model
        self._other_phases = 0  # that began and did not end
        self._fitting = False
        self._trains = False
        self._next: int | None = None
        self._timing_list: Callable[[], Any] = lambda: None  # Keras 2's list of callbacks, weakly
        self._ordinary: FastPath | None = None
        self._made = frozenset((*vars(self), "_made"))

    def __getstate__(self) -> dict[str, Any]:
        """The configuration: a copy is a new callback with the same arguments, and with a
        subclass's own attributes."""
        own = {name: value for name, value in vars(self).items() if name not in self._made}
        return {"arguments": self._recording.settings.arguments(), "attributes": own}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        MemoryCallback.__init__(self, **state["arguments"])
        self.__dict__.update(state["attributes"])

    @property
    def model(self) -> Any:
        """The model that is recorded; None before the first call and when it does not exist any
        more."""
        return self._model_reference()

    def set_model(self, model: Any) -> None:
        """Called by Keras before training. Another model than the first one is not recorded, also
        inside a call of the first one."""
        self._recording.faults.run(RECORDING, self._set_model, model, sys._getframe())

    def _set_model(self, model: Any, frame: Any) -> None:
        if self._model_name is None:
            self._model_reference, self._model_name = weakref.ref(model), model.name
            self._recording.watch(model)
            self._ordinary = self._recording.start_ordinary(weakly(self._check_call))
            abandon_in_child(self)
        self._timing_list = _timing_list(frame)
        self._other = None
        if self.model is not model:
            self._other, self._other_phases = RunningCall(), 0
            self._recording.faults.stop(
                OTHER_MODELS,
                f"this MemoryCallback records model {self._model_name!r}. Received: model "
                f"{model.name!r}; create a second callback with its own log_dir",
            )
            return
        with self._changing:
            # otherwise it evaluates inside a recorded `fit`
            if self._call is None or not self._call.is_running():
                self._call = RunningCall(weakly(self._call_is_gone))
                self._fitting = False  # an interrupted training did not call on_train_end
            self._recording.observe()
        if self._recording.may_trace:
            self._recording.layers.find_unseen_functions(model)

    def _is_other(self, phases: int = 0) -> bool:
        """Whether Keras calls a hook for another model, which begins (1) or ends (-1) a phase.
        Inside a `fit` of the recorded model, Keras does not call `set_model` when the other model's
        call has ended."""
        other = self._other
        if other is None:
            return False
        if other.has_ended():  # by an exception that the program caught
            self._other = None
            return False
        self._other_phases += phases
        if (
            phases < 0
            and self._other_phases == 0
            and self._call is not None
            and self._call.is_running()
        ):
            self._other = None
        return True

    def _guard(self, name: str) -> None:
        """Wrap the named function of the model until the phase ends or fails, to observe
        exceptions: Keras calls no hook of a callback then."""
        self._unguard([name])
        if self._recording.closed:
            return
        if self._recording.may_trace:
            self._recording.layers.see_function(self.model, name)
        original = getattr(self.model, name, None)
        if original is not None:
            setattr(self.model, name, _Guard(original, self))

    def _failed(self) -> None:
        self._recording.end_step()
        self._unguard()
        self._recording.pause()

    def _call_is_gone(self, call: RunningCall) -> None:
        """Restore what was wrapped; on any thread, in a finalizer. An exception outside of the step
        function, such as Ctrl+C in another callback, is noticed when the frame of `fit` is gone. In
        a notebook the last traceback keeps the frame, so the background thread looks whether it
        still runs."""
        recording = self._recording
        if (
            call is not self._call
            or not recording.active
            or recording.paused
            or not call.has_ended()
        ):
            return
        self._unguard()
        if not hooks.busy:
            recording.layers.remove()
        submit(weakly(self._check_call))

    def _check_call(self) -> None:
        with self._changing:
            call = self._call
            if call is not None and not self._recording.paused and call.has_ended():
                self._call = None
                self._failed()

    def _abandon(self) -> None:
        self._changing = threading.RLock()
        if self.model is not None:
            self._unguard()

    def _unguard(self, names: Sequence[str] = STEP_FUNCTIONS) -> None:
        """Remove this callback's own wrappers; those of other callbacks stay."""
        for name in names:
            outer, function = None, getattr(self.model, name, None)
            while isinstance(function, _Guard) and function.callback() is not self:
                outer, function = function, function.tb_memplugin_original
            if isinstance(function, _Guard) and outer is not None:
                outer.tb_memplugin_original = function.tb_memplugin_original
            elif isinstance(function, _Guard):
                setattr(self.model, name, function.tb_memplugin_original)

    def close(self) -> None:
        """End the session; without this it ends with the process."""
        self._recording.close()

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        if self._is_other(1):
            return
        self._guard("train_function")
        self._fitting = True
        if not self._trains:  # a training restored from a checkpoint continues its count
            self._trains, self._next = True, _iterations(self.model)
        self._recording.before_data("train")

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        if self._is_other():
            return
        self._recording.end_step()
        if self._fitting:
            self._guard("train_function")  # an evaluation in a callback may have failed
        self._recording.set_epoch(epoch)
        self._recording.check_layers()

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        if not self._is_other():
            self._recording.end_step()

    def on_train_batch_begin(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        if self._is_other():
            return
        step, ordinary = self._next, self._ordinary
        if step is not None and ordinary is not None and ordinary.next(step):
            self._next = step + 1
            return
        self._begin_step(self._count(), "train", "on_train_batch_begin")

    def _begin_step(self, step: int, phase: Phase, hook: str) -> None:
        """Begin a step. Keras 2 times the hooks of the first batches and warns of slow callbacks:
        take the time out."""
        began = time.perf_counter()
        self._recording.begin_step(step, phase)
        timing = self._timing_list()
        if timing is not None and getattr(timing, "_check_timing", False):
            timing._hook_times.setdefault(hook, []).append(began - time.perf_counter())

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
        if self._phase_ended("train_function"):
            self._recording.set_epoch(None)

    def on_test_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        self._phase_begins("validation", "test_function")

    def on_test_batch_begin(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        self._begin_without_training("validation", "on_test_batch_begin")

    def on_test_end(self, logs: Mapping[str, Any] | None = None) -> None:
        self._phase_ended("test_function")

    def on_predict_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        self._phase_begins("predict", "predict_function")

    def on_predict_batch_begin(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        self._begin_without_training("predict", "on_predict_batch_begin")

    def on_predict_end(self, logs: Mapping[str, Any] | None = None) -> None:
        self._phase_ended("predict_function")

    def _count(self) -> int:
        step = _iterations(self.model) if self._next is None else self._next
        self._next = step + 1
        return step

    def _begin_without_training(self, phase: Phase, hook: str) -> None:
        """Begin a step that has the number of the last training step, or of the batch while nothing
        was trained."""
        if self._is_other():
            return
        step = max((self._next or 0) - 1, 0) if self._trains else self._count()
        if self._ordinary is None or not self._ordinary.next(step):
            self._begin_step(step, phase, hook)

    def _phase_begins(self, phase: Phase, function: str) -> None:
        if self._is_other(1):
            return
        self._guard(function)
        self._recording.end_step()
        self._recording.before_data(phase)

    def _phase_ended(self, function: str) -> bool:
        if self._is_other(-1):
            return False
        self._fitting = self._fitting and function != "train_function"
        self._unguard([function])
        self._recording.end_step()
        if not self._fitting:
            self._recording.pause()
        return True


class _Guard:
    """Stands in for a step function of a model, and tells a callback of its exceptions."""

    def __init__(self, original: Any, callback: MemoryCallback) -> None:
        functools.update_wrapper(self, original, updated=())
        self.tb_memplugin_original = original
        self.callback = weakref.ref(callback)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        callback, original = self.callback(), self.tb_memplugin_original
        if callback is None:
            return original(*arguments, **named)
        callback._recording.enter_step()
        try:
            result = original(*arguments, **named)
        except BaseException as error:
            callback._recording.leave_step()
            if not isinstance(error, _END_OF_DATA):
                callback._failed()
            raise
        callback._recording.leave_step()
        return result


def _timing_list(frame: Any) -> Callable[[], Any]:
    """A weak reference to the list of callbacks that calls `set_model`, if it times their hooks as
    Keras 2 does."""
    while frame is not None and frame.f_code.co_name == "set_model":
        owner = frame.f_locals.get("self")
        if hasattr(owner, "_call_batch_hook_helper"):
            return weakref.ref(owner)
        frame = frame.f_back
    return lambda: None


def _iterations(model: Any) -> int:
    optimizer = getattr(model, "optimizer", None)
    try:
        return int(optimizer.iterations) if optimizer is not None else 0
    except Exception:
        return 0
