"""`MemoryRecorder`: one process's recording into one run."""

import contextlib
import os
import sys
import threading
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from tb_memplugin.model import MISSING, PHASES, Phase
from tb_memplugin.model.notes import RECORDING, WRONG_NUMBERS, WRONG_PHASES
from tb_memplugin.recorder.base.background import wait
from tb_memplugin.recorder.base.faults import Faults
from tb_memplugin.recorder.base.forks import abandon_in_child
from tb_memplugin.recorder.base.settings import DEFAULT_LOG_DIR, Settings, check, is_step
from tb_memplugin.recorder.lifetime import close_at_exit, take_place, weakly
from tb_memplugin.recorder.observe.hooks import hooks
from tb_memplugin.recorder.observe.layer_watch import LayerWatch
from tb_memplugin.recorder.recording import Recording
from tb_memplugin.recorder.sampling import devices as allocator


class MemoryRecorder:
    """Records the device memory of a training run: a sample of every step, layer tables, and traced steps.

    ```python
    with tb_memplugin.MemoryRecorder("runs/exp1", model=model, optimizer=optimizer) as recorder:
        for step, batch in enumerate(dataset):
            with recorder.step(step):
                train_step(batch)
    ```

    Create it before the training functions are traced, so that it can observe which operations each layer makes.
    A fault while recording never ends training or changes its result: the part that fails is logged once and stops.

    A background thread writes the run. The same thread closes a recorder that is dropped without `close`; one that
    still exists when the process ends is closed then.

    Args:
        log_dir: Directory of the run (one run in TensorBoard), local or a URL that TensorFlow can write to.
        model: Keras model or `tf.Module` that is trained; without it there are no layers.
        optimizer: Its optimizer; by default the one that the model was compiled with.
        overhead: Share of run time that tracing may cost; 0 traces nothing.
        trace_steps: Trace exactly these training steps instead.
        devices: Names of the devices to record; by default all GPUs, or the CPU if there is none.
        keep_profile: Keep the raw profile of each traced step in the run, for TensorBoard's profiler tab.
        worker: Name of this process if several record into the same run; by default from ``TF_CONFIG``.
        source_lines: Store the line of your code that called each layer and op: name of the file and number.
        scalars: Also write peaks as scalars for TensorBoard's Scalars and HParams dashboards.

    Raises:
        RecordingError: An argument is invalid.
    """

    closed = False

    def __init__(
        self,
        log_dir: str | os.PathLike[str] = DEFAULT_LOG_DIR,
        model: Any = None,
        optimizer: Any = None,
        *,
        overhead: float = 0.005,
        trace_steps: Collection[int] | None = None,
        devices: Sequence[str] | None = None,
        keep_profile: bool = False,
        worker: str | None = None,
        source_lines: bool = True,
        scalars: bool = False,
    ) -> None:
        self._settings: Settings = check(
            log_dir, overhead, trace_steps, devices, keep_profile, worker, source_lines, scalars
        )
        self._devices, self._unavailable = allocator.choose_devices(self._settings.devices)
        self._faults = Faults(weakly(self._note))
        self._watch = LayerWatch(self._faults, self._settings.source_lines)
        self._recording: Recording | None = None
        self._epoch = MISSING
        self._paused = False
        self._pausing = threading.RLock()
        if model is not None:
            self.watch(model, optimizer)

    # --- life -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin the session, as entering a `with` block does. Calling it again does nothing."""
        if self._recording is None and not self.closed:
            with self._faults.part(RECORDING) as runs:
                if runs:
                    self._start()

    def _start(self) -> None:
        self._end_predecessor()
        self._recording = Recording(self._settings, self._devices, self._watch, self._faults)
        try:
            self._recording.begin()
        except BaseException:
            self._recording = None  # it can neither record nor end
            self._watch.remove()
            raise
        for sentence in self._unavailable:
            self._faults.warn(sentence)
        if self._settings.in_cluster and self._settings.overhead > 0 and self._settings.trace_steps is None:
            self._faults.warn(
                "no step is traced: TensorFlow's profiler can crash a process that trains together with others. "
                "trace_steps=[10, 100] traces these steps all the same"
            )
        close_at_exit(self)
        abandon_in_child(self)

    def _abandon(self) -> None:
        """End the recording in a forked child, which inherits it: nothing is written, removed or waited for."""
        recording, self._recording = self._recording, None
        self.closed, self._paused = True, False
        self._pausing = threading.RLock()
        self._watch.abandon()
        if recording is not None:
            recording.abandon()

    def _end_predecessor(self) -> None:
        predecessor = take_place(self, self._settings.log_dir, self._settings.worker)
        if predecessor is None:
            return
        if not predecessor._paused:
            predecessor._faults.warn("a newer recorder of this process took over the run")
        predecessor.close()

    def close(self) -> None:
        """End an open step, write everything and end the session; waits until everything is written.

        It waits for 5 s at most while the background thread does nothing, and for 60 s while it works.

        Calling it again does nothing.
        """
        if self.closed:
            return
        self._close_without_waiting()
        if self._recording is not None and not wait():
            self._warn_incomplete()

    def _warn_incomplete(self) -> None:
        self._faults.warn("the memory run may be incomplete: its last records could not be written in time")

    def _close_without_waiting(self) -> None:
        if self._recording is not None and self._recording.step_is_open:
            # No `with` block saw an exception, but the interpreter keeps the one that ended the program.
            self._on_error(getattr(sys, "last_value", None))
        self._end()

    def _end(self) -> None:
        """End an open step and the session, without waiting until everything is written."""
        self.end_step()
        self.closed = True
        self._watch.remove()
        if self._recording is not None:
            self._recording.end()

    def __del__(self) -> None:
        # Runs on any thread, between any two statements, so it only submits a job; the job keeps the recorder alive.
        recording = getattr(self, "_recording", None)
        if recording is not None and not self.closed:
            recording.submit(self._end)

    def flush(self) -> None:
        """Wait, as `close` does, until everything recorded so far is in the event file."""
        self._drain()

    def _drain(self) -> bool:
        """Do what `flush` does; False if it takes too long."""
        return self._active is None or self._active.drain()

    def __enter__(self) -> "MemoryRecorder":
        self.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._on_error(error)
        self.close()

    @property
    def _active(self) -> Recording | None:
        """The recording between start and close."""
        return None if self.closed else self._recording

    # --- for MemoryCallback -----------------------------------------------------------------------------------------

    def _pause(self) -> None:
        """Until `_resume` or the next step, observe nothing and keep no file open; write what was recorded soon."""
        with self._pausing:
            if self._active is not None and not self._paused:
                self._paused = True
                self._watch.remove()
                self._active.pause()

    def _resume(self) -> None:
        """Observe layers again after `_pause`, before functions of the model are traced."""
        if not self._paused:
            return
        with self._pausing:
            if not self._paused:
                return
            self._paused = False
            if self._active is None:
                self._faults.stop(RECORDING, "it was closed, or a newer recorder of this process took over the run")
                return
            self._active.resume()
            self._watch.install()

    def _pause_without_model(self) -> None:
        if self._recording is not None:
            self._recording.submit(weakly(self._pause_if_unused))

    def _pause_if_unused(self) -> None:
        if self._watch.model_is_gone and self._recording is not None and not self._recording.step_is_open:
            self._pause()

    def _observe(self) -> None:
        """Observe layers, also after `_pause` or `_stop_observing`."""
        self._resume()
        if self._active is not None:
            self._watch.install()

    def _find_unseen_functions(self, model: Any) -> None:
        """Find the model's step functions that were traced before layers were observed."""
        if self._settings.traces and not self.closed:
            self._watch.find_unseen_functions(model)

    def _see_function(self, model: Any, name: str) -> None:
        """Let Keras make a step function anew that is about to be called if it was traced before layers were observed.

        Keras then traces it once more, with the same result. Does nothing if no step may be traced.
        """
        if self._settings.traces and not self.closed:
            self._watch.see_function(model, name)

    def _stop_observing(self) -> None:
        """Remove the wrappers now; safe in a finalizer."""
        if not hooks.busy:
            self._watch.remove()

    def _before_data(self, phase: Phase) -> None:
        """A phase begins and no batch was requested yet: nothing in use now is a batch of the phase."""
        if self._active is not None:
            with self._faults.part(RECORDING) as runs:
                if runs:
                    self._active.before_data(phase)

    def _check_layers(self) -> None:
        """Check whether the layer table changed; without this it is checked every few seconds."""
        if self._active is not None:
            with self._faults.part(RECORDING) as runs:
                if runs:
                    self._active.check_layers()

    # --- what is trained --------------------------------------------------------------------------------------------

    def watch(self, model: Any, optimizer: Any = None) -> None:
        """Set the model that is trained from now on, and its optimizer (by default the one it was compiled with)."""
        self._watch.watch(model, optimizer, weakly(self._pause_without_model))
        self._check_layers()

    def set_epoch(self, epoch: int | None) -> None:
        """Set the epoch of the following steps; None for no epoch."""
        with self._faults.part(RECORDING) as runs:
            if runs:
                self._set_epoch(epoch)

    def _set_epoch(self, epoch: Any) -> None:
        self._epoch = int(epoch) if is_step(epoch) else MISSING
        if epoch is not None and self._epoch == MISSING:
            self._faults.stop(
                "epochs with a wrong number",
                f"epochs must be integers from 0 to 2**53 - 1; others are not recorded. Received: epoch={epoch!r}",
            )

    # --- steps ------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def step(self, step: int, phase: Phase = "train") -> Iterator[None]:
        """Record the block as one step; in other phases than `train`, as a batch after training step `step`.

        In a run without training steps, number the batches.
        """
        self.begin_step(step, phase)
        try:
            yield
        except BaseException as error:
            self.end_step(error)
            raise
        self.end_step()

    def begin_step(self, step: int, phase: Phase = "train") -> None:
        """Begin a step and end the open one. Pair it with `end_step` where a `with` block does not fit."""
        with self._faults.part(RECORDING) as runs:
            if runs:
                self._begin_step(step, phase)

    def _begin_step(self, step: int, phase: Phase) -> None:
        self.start()
        self._resume()
        if self._recording is None:
            return
        self._recording.end_step()
        if not self.closed and self._valid(step, phase):
            self._recording.begin_step(int(step), phase, self._epoch)

    def end_step(self, error: BaseException | None = None) -> None:
        """End the open step and keep its sample.

        Args:
            error: Exception that ended the step; if memory ran out, the run gets a post-mortem.
        """
        self._on_error(error)
        if self._recording is not None:
            with self._faults.part(RECORDING) as runs:
                if runs:
                    self._recording.end_step()

    def _on_error(self, error: BaseException | None) -> bool:
        """Write a post-mortem if the exception means that memory ran out, and return whether it does."""
        return error is not None and self._active is not None and self._active.on_error(error)

    def _valid(self, step: Any, phase: Any) -> bool:
        if not is_step(step):
            self._faults.stop(
                WRONG_NUMBERS,
                f"steps must be integers from 0 to 2**53 - 1; others are not recorded. Received: step={step!r}",
            )
            return False
        if phase not in PHASES:
            self._faults.stop(
                WRONG_PHASES,
                f"phases are {', '.join(PHASES)}; others are not recorded. Received: phase={phase!r}",
            )
            return False
        return True

    def _note(self, sentence: str) -> None:
        if self._active is not None:
            self._active.note(sentence)
