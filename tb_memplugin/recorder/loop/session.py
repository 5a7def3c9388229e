"""`MemoryRecorder`: a recording session for training loops of one's own; `Session`, which `MemoryCallback` shares."""

import atexit
import contextlib
import functools
import logging
import os
import threading
import weakref
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from tb_memplugin.importers import Request
from tb_memplugin.recorder.base import (
    DEFAULT_LOG_DIR,
    FOREIGN_SECONDS,
    Faults,
    Job,
    Settings,
    abandon_in_child,
    checked_settings,
    end_foreign_calls,
    is_batch_size,
    is_step,
    submit,
    uncounted,
    wait,
    weakly,
)
from tb_memplugin.recorder.devices import OrdinarySteps, choose_devices
from tb_memplugin.recorder.failure import RaisedError, raised_errors, raised_now
from tb_memplugin.recorder.loop.recording import Recording
from tb_memplugin.recorder.watch import LayerWatch
from tb_memplugin.schema import MISSING, PHASES, RECORDING, WRONG_NUMBERS, WRONG_PHASES, Phase
from tb_memplugin.storage.write import recordings

logger = logging.getLogger("tb_memplugin")

_STEPS = "must be integers from 0 to 2**53 - 1"
_INCOMPLETE = "the memory run may be incomplete: its last records could not be written in time"

_by_place: "weakref.WeakValueDictionary[tuple[str, str], Session]" = weakref.WeakValueDictionary()
"""By run directory, as in `Settings`, and worker name."""
_unclosed: "weakref.WeakSet[Session]" = weakref.WeakSet()
"""Those that were started, each of which is closed before the process ends."""


class Session:
    """One process's recording into one run. A session that is dropped without `close` pauses until the next one is
    made: memory may run out after the training. One that still exists when the process ends is closed then."""

    closed = False

    @uncounted
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._devices, self._unavailable = choose_devices(settings.devices)
        self.faults = Faults(weakly(self._note))
        self.layers = LayerWatch(self.faults, settings.source_lines)
        self.recording: Recording | None = None  # before `start`
        self._epoch = MISSING
        self.paused = False  # whether nothing is observed until `observe` or the next step
        self._pausing = threading.RLock()
        self._guards = 0  # blocks that are running, at whose end `leave_step` is called
        self._raised: RaisedError | None = None  # the last failed allocation in them
        raised_errors.add(self)

    def start(self) -> None:
        if self.recording is None and not self.closed:
            self.faults.run(RECORDING, self._start)

    def _start(self) -> None:
        """Start. An open session of the same run is closed: a notebook cell may run again."""
        place = self.settings.log_dir, self.settings.worker
        predecessor, _by_place[place] = _by_place.get(place), self
        recordings.register(place[0], functools.partial(_write, place))
        if predecessor is not None and not predecessor.closed:
            if not predecessor.paused:
                predecessor.faults.warn("a newer recorder of this process took over the run")
            predecessor.close()
        self.recording = Recording(self.settings, self._devices, self.layers, self.faults)
        try:
            self.recording.begin()
        except BaseException:
            self.recording = None  # it can neither record nor end
            self.layers.remove()
            raise
        for sentence in self._unavailable:
            self.faults.warn(sentence)
        _unclosed.add(self)
        atexit.unregister(_close_all)
        atexit.register(_close_all)  # so that it runs before what TensorFlow has registered so far
        abandon_in_child(self)

    def _abandon(self) -> None:
        """End the recording in a forked child: nothing is written, removed or waited for."""
        self.closed, self.paused = True, False
        self._pausing = threading.RLock()
        self.layers.abandon()
        self._guards, self._raised = 0, None
        recording, self.recording = self.recording, None
        if recording is not None:
            recording.abandon()

    def close(self) -> None:
        if not self.closed:
            self.close_without_waiting()
            if self.recording is not None and not wait():
                self.faults.warn(_INCOMPLETE)

    def close_without_waiting(self) -> None:
        self.end_step()
        self.closed = True
        self.layers.remove()
        if self.recording is not None:
            self.recording.end()
        raised_errors.update()

    def __del__(self) -> None:
        # Runs on any thread, between any two statements, so it only submits a job; the job keeps the session alive.
        if getattr(self, "recording", None) is not None and not self.closed:
            submit(self._dropped)

    def _dropped(self) -> None:
        """Pause after the last reference is gone; end if the garbage collector cleared weak references to it, too."""
        if self in _unclosed and not self.closed:
            self.end_step()
            self.pause()
            raised_errors.keep(self)
        elif not self.closed:
            self.close_without_waiting()

    def drain(self) -> bool:
        return self._active is None or self._active.drain()

    @property
    def _active(self) -> Recording | None:
        """The recording between start and close."""
        return None if self.closed else self.recording

    def start_ordinary(self, on_tick: Job) -> OrdinarySteps | None:
        """Start; what begins the steps at which nothing else is due, None if nothing is recorded."""
        self.start()
        if self.recording is None:
            return None
        self.recording.on_tick = on_tick
        self.recording.uses_ordinary = True
        return self.recording.ordinary

    def pause(self) -> None:
        """Until `observe` or the next step, observe nothing and keep no file open; write what was recorded soon."""
        with self._pausing:
            if self._active is not None and not self.paused:
                self.paused = True
                self.layers.remove()
                self._active.pause()

    def _resume(self) -> None:
        if not self.paused:
            return
        with self._pausing:
            if not self.paused:
                return
            self.paused = False
            if self._active is None:
                self.faults.stop(RECORDING, "it was closed, or a newer recorder of this process took over the run")
                return
            self._active.resume()
            self.layers.install()

    def _pause_without_model(self) -> None:
        if self.recording is not None:
            submit(weakly(self._pause_if_unused))

    def _pause_if_unused(self) -> None:
        if self.layers.model_is_gone and self.recording is not None and not self.recording.step_is_open:
            self.pause()

    def observe(self) -> None:
        self._resume()
        if self._active is not None:
            self.layers.install()

    @property
    def may_trace(self) -> bool:
        return self.settings.traces and not self.closed

    def before_data(self, phase: Phase) -> None:
        """A phase begins and no batch was requested yet: nothing in use now is a batch of the phase."""
        if self._active is not None:
            self.faults.run(RECORDING, self._active.tracer.before_data, phase)

    def check_layers(self) -> None:
        """Check whether the layer table changed, as is done every few seconds."""
        if self._active is not None:
            self.faults.run(RECORDING, self._active.check_layers)

    def watch(self, model: Any, optimizer: Any = None) -> None:
        self.layers.watch(model, optimizer, weakly(self._pause_without_model))
        self.check_layers()

    def set_epoch(self, epoch: Any) -> None:
        self.faults.run(RECORDING, self._set_epoch, epoch)

    def _set_epoch(self, epoch: Any) -> None:
        self._epoch = int(epoch) if is_step(epoch) else MISSING
        if epoch is not None and self._epoch == MISSING:
            self._refuse("epochs with a wrong number", f"epochs {_STEPS}", epoch=epoch)

    def _refuse(self, part: str, rule: str, **received: Any) -> None:
        ((name, value),) = received.items()
        self.faults.stop(part, f"{rule}; others are not recorded. Received: {name}={value!r}")

    def begin_step(self, step: int, phase: Phase = "train", batch_size: int | None = None) -> None:
        self.faults.run(RECORDING, self._begin_step, step, phase, batch_size)

    def _begin_step(self, step: int, phase: Phase, batch_size: int | None) -> None:
        self.start()
        self._resume()
        if self.recording is None:
            return
        self.recording.end_step()
        if self.closed:
            return
        if not is_step(step):
            self._refuse(WRONG_NUMBERS, f"steps {_STEPS}", step=step)
        elif phase not in PHASES:
            self._refuse(WRONG_PHASES, f"phases are {', '.join(PHASES)}", phase=phase)
        else:
            if batch_size is None and phase == "train":
                batch_size = self.settings.batch_size
            if batch_size is not None and not is_batch_size(batch_size):
                part, rule = "batch sizes with a wrong number", "batch sizes are integers from 1 on"
                self._refuse(part, rule, batch_size=batch_size)
                batch_size = None
            self.layers.step_batch_size = None if batch_size is None else int(batch_size)
            self.recording.begin_step(int(step), phase, self._epoch)

    def end_step(self) -> None:
        if self.recording is not None:
            self.faults.run(RECORDING, self.recording.end_step)

    @property
    def active_since(self) -> tuple[bool, float]:
        """Whether a step is open, and when the last one began."""
        recording = self.recording
        return (False, 0.0) if recording is None else (recording.step_is_open, recording.ordinary.began)

    def enter_step(self) -> None:
        """Begin a block of the open step; pair it with `leave_step`."""
        self._guards += 1

    def leave_step(self) -> None:
        """End the block. An allocation that failed in it gets its post-mortem now: what the step was given is known."""
        self._guards -= 1
        raised, self._raised = self._raised, None
        if raised is not None and self._active is not None:
            self._active.on_failure(raised)

    def on_raised(self, error: BaseException, request: Request, since: float) -> None:
        """Take a failure whose exception is being made on this thread."""
        raised = raised_now(error, request, self.layers.calling_line)
        if self._guards:
            self._raised = raised
            return
        if self.recording is None:
            self.start()
            if self.recording is not None:
                self.recording.oom.look_back(since)
        if self._active is not None:
            self._active.on_failure(raised, in_step=not self._active.uses_ordinary)  # a callback guards its own steps

    def _note(self, sentence: str) -> None:
        if self._active is not None:
            self._active.note(sentence)


def is_recording(except_into: Collection[str]) -> bool:
    """Whether a session is between its start and end, or in a recorded call of Keras, except into some directories."""
    return any(
        not session.closed and not session.paused and session.settings.log_dir not in except_into
        for session in list(_unclosed)
    )


def _write(place: tuple[str, str]) -> bool:
    """Write what the run's session has recorded; False if that takes too long."""
    session = _by_place.get(place)
    return wait() if session is None or session.closed else session.drain()


def _close_all() -> None:
    unclosed = [session for session in list(_unclosed) if not session.closed]
    for session in unclosed:
        session.close_without_waiting()
    if not wait():  # once for all, also for sessions that were dropped
        for session in unclosed:
            session.faults.warn(_INCOMPLETE)
    reason = (
        "the memory recorder waits for up to %d s until TensorFlow gives up a request to the file system of a run: "
        "the process would be aborted otherwise"
    )
    end_foreign_calls(functools.partial(logger.warning, reason, FOREIGN_SECONDS))


def _forget_all() -> None:
    """Forget the sessions in a forked child: they belong to the parent."""
    atexit.unregister(_close_all)
    _unclosed.clear()
    _by_place.clear()
    recordings.forget_all()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


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
        batch_size: Examples in the batch of a training step, for one replica, where the tensors of a step do not show
            it: if they begin with different numbers, for example with that of time steps.

    Raises:
        RecordingError: An argument is invalid.
    """

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
        batch_size: int | None = None,
    ) -> None:
        settings = checked_settings(
            log_dir, overhead, trace_steps, devices, keep_profile, worker, source_lines, scalars, batch_size
        )
        self._session = Session(settings)
        if model is not None:
            self.watch(model, optimizer)

    @property
    def closed(self) -> bool:
        """Whether the session has ended."""
        return self._session.closed

    def start(self) -> None:
        """Begin the session, as entering a `with` block does. Calling it again does nothing."""
        self._session.start()

    def close(self) -> None:
        """End an open step, write everything and end the session; waits until everything is written.

        It waits for 5 s at most while the background thread does nothing, and for 60 s while it works.

        Calling it again does nothing.
        """
        self._session.close()

    def flush(self) -> None:
        """Wait, as `close` does, until everything recorded so far is in the event file."""
        self._session.drain()

    def __enter__(self) -> "MemoryRecorder":
        self.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close()

    def watch(self, model: Any, optimizer: Any = None) -> None:
        """Set the model that is trained from now on, and its optimizer (by default the one it was compiled with)."""
        self._session.watch(model, optimizer)

    def set_epoch(self, epoch: int | None) -> None:
        """Set the epoch of the following steps; None for no epoch."""
        self._session.set_epoch(epoch)

    @contextlib.contextmanager
    def step(self, step: int, phase: Phase = "train", batch_size: int | None = None) -> Iterator[None]:
        """Record the block as one step; in other phases than `train`, as a batch after training step `step`.

        In a run without training steps, number the batches. `batch_size` names the step's own.
        """
        self.begin_step(step, phase, batch_size)
        self._session.enter_step()
        try:
            yield
        finally:
            self._session.leave_step()
            self.end_step()

    def begin_step(self, step: int, phase: Phase = "train", batch_size: int | None = None) -> None:
        """Begin a step and end the open one. Pair it with `end_step` where a `with` block does not fit."""
        self._session.begin_step(step, phase, batch_size)

    def end_step(self, error: BaseException | None = None) -> None:
        """End the open step and keep its sample.

        Args:
            error: Exception that ended the step. It need not be passed: a failed allocation is seen as it is raised.
        """
        self._session.end_step()
