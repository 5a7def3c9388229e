"""`MemoryCallback`: a recording session behind Keras's callback hooks."""

import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

import keras

from tb_memplugin.environment import keras_backend
from tb_memplugin.recorder.base import (
    DEFAULT_LOG_DIR,
    Settings,
    abandon_in_child,
    checked_settings,
    submit,
    weakly,
)
from tb_memplugin.recorder.devices import FastPath
from tb_memplugin.recorder.heap import RunningCall
from tb_memplugin.recorder.loop.guards import Calls, guard, unguard
from tb_memplugin.recorder.loop.session import Session
from tb_memplugin.recorder.watch import STEP_FUNCTIONS, hooks
from tb_memplugin.schema import PHASES, RECORDING, Phase

Logs: TypeAlias = Mapping[str, Any] | None

OTHER_MODELS = "recording of other models"
_FUNCTIONS = dict(zip(PHASES, STEP_FUNCTIONS, strict=True))


def _session(settings: Settings, look: Callable[..., None]) -> Any:
    """A session of the backend that Keras runs on."""
    if keras_backend() != "jax":
        return Session(settings, look)
    from tb_memplugin.recorder.loop.jax_session import JaxSession

    return JaxSession(settings)


def _yes(callback: keras.callbacks.Callback) -> bool:
    return True


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
    _implements_train_batch_hooks = _implements_test_batch_hooks = _yes
    _implements_predict_batch_hooks = _yes

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
        self._recording: Any = _session(settings, weakly(self._check_call))
        # Weak: a callback that is kept must not keep its model.
        self._model_reference: Callable[[], Any] = lambda: None
        self._model_name: str | None = None
        self._calls = Calls()
        self._changing = threading.RLock()
        self._fitting = False
        self._trains = False
        self._next: int | None = None  # step
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
        session = self._recording
        if self._model_name is None:
            self._model_reference, self._model_name = weakref.ref(model), model.name
            session.watch(model)
            session.start()
            self._ordinary = None if session.sender is None else session.sender.steps.ordinary
            abandon_in_child(self)
        self._timing_list = _timing_list(frame)
        self._calls.other = None
        if self.model is not model:
            self._calls.other_begins()
            session.faults.stop(
                OTHER_MODELS,
                f"this MemoryCallback records model {self._model_name!r}. Received: model "
                f"{model.name!r}; create a second callback with its own log_dir",
            )
            return
        with self._changing:
            # otherwise it evaluates inside a recorded `fit`
            if self._calls.own is None or not self._calls.own.is_running():
                self._calls.own = RunningCall(weakly(self._call_is_gone))
                self._fitting = False  # an interrupted training did not call on_train_end
            session.observe()
        if session.settings.traces and not session.closed:
            session.layers.find_unseen_functions(model)

    def _failed(self) -> None:
        self._recording.end_step()
        unguard(self)
        self._recording.pause()

    def _call_is_gone(self, call: RunningCall) -> None:
        """Restore what was wrapped; on any thread, in a finalizer. An exception outside of the step
        function, such as Ctrl+C in another callback, is noticed when the frame of `fit` is gone. In
        a notebook the last traceback keeps the frame, so the background thread looks whether it
        still runs."""
        session = self._recording
        is_current = call is self._calls.own and session.sender is not None and not session.paused
        if not is_current or not call.has_ended():
            return
        unguard(self)
        if not hooks.busy:
            session.layers.remove()
        submit(weakly(self._check_call))

    def _check_call(self) -> None:
        with self._changing:
            call = self._calls.own
            if call is not None and not self._recording.paused and call.has_ended():
                self._calls.own = None
                self._failed()

    def _abandon(self) -> None:
        self._changing = threading.RLock()
        if self.model is not None:
            unguard(self)

    def close(self) -> None:
        """End the session; without this it ends with the process."""
        self._recording.close()

    def _phase_begins(self, phase: Phase) -> None:
        if self._calls.is_other(1):
            return
        guard(self, _FUNCTIONS[phase])
        self._recording.end_step()
        begins_training = phase == "train" and not self._trains
        if self._next is None or begins_training:
            # a training restored from a checkpoint continues its count
            self._next = _iterations(self.model)
        self._trains = self._trains or begins_training
        self._fitting = self._fitting or phase == "train"
        self._recording.before_data(phase)

    def _phase_ends(self, phase: Phase) -> None:
        if self._calls.is_other(-1):
            return
        unguard(self, [_FUNCTIONS[phase]])
        self._recording.end_step()
        if phase == "train":
            self._fitting = False
            self._recording.set_epoch(None)
        if not self._fitting:
            self._recording.pause()

    def _begin(self, phase: Phase) -> None:
        """Begin a step. Without training it has the number of the last training step, or of the
        batch while nothing was trained."""
        # one comparison, and no call, at nearly every step
        if self._calls.other is not None and self._calls.is_other():
            return
        step = self._next or 0
        if phase == "train" or not self._trains:
            self._next = step + 1
        else:
            step = max(step - 1, 0)
        if self._ordinary is not None and self._ordinary.next(step):
            return
        began = time.perf_counter()
        self._recording.begin_step(step, phase)
        # Keras 2 times the hooks of the first batches and warns of slow callbacks: take the time
        # out.
        timing = self._timing_list()
        if timing is not None and getattr(timing, "_check_timing", False):
            hook = _FUNCTIONS[phase].replace("_function", "_batch_begin")
            timing._hook_times.setdefault(f"on_{hook}", []).append(began - time.perf_counter())

    def on_train_begin(self, logs: Logs = None) -> None:
        self._phase_begins("train")

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        if self._calls.is_other():
            return
        self._recording.end_step()
        if self._fitting:
            guard(self, "train_function")  # an evaluation in a callback may have failed
        self._recording.set_epoch(epoch)
        self._recording.check_layers()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        if not self._calls.is_other():
            self._recording.end_step()

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        self._begin("train")

    def on_train_end(self, logs: Logs = None) -> None:
        self._phase_ends("train")

    def on_test_begin(self, logs: Logs = None) -> None:
        self._phase_begins("validation")

    def on_test_batch_begin(self, batch: int, logs: Logs = None) -> None:
        self._begin("validation")

    def on_test_end(self, logs: Logs = None) -> None:
        self._phase_ends("validation")

    def on_predict_begin(self, logs: Logs = None) -> None:
        self._phase_begins("predict")

    def on_predict_batch_begin(self, batch: int, logs: Logs = None) -> None:
        self._begin("predict")

    def on_predict_end(self, logs: Logs = None) -> None:
        self._phase_ends("predict")


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
