"""`RecordingSession`: one process's recording into one run."""

import threading
from typing import Any

from tb_memplugin.importers import Request
from tb_memplugin.recorder.base import (
    Faults,
    Job,
    Settings,
    abandon_in_child,
    is_batch_size,
    is_step,
    uncounted,
    wait,
    weakly,
)
from tb_memplugin.recorder.devices import OrdinarySteps
from tb_memplugin.recorder.devices import statistics as allocator
from tb_memplugin.recorder.failure import RaisedError, raised_errors, raised_now
from tb_memplugin.recorder.loop.lifetime import close_at_exit, is_unclosed, take_place
from tb_memplugin.recorder.loop.recording import Recording
from tb_memplugin.recorder.watch import LayerWatch, hooks
from tb_memplugin.schema import MISSING, PHASES, RECORDING, WRONG_NUMBERS, WRONG_PHASES, Phase

_STEPS = "must be integers from 0 to 2**53 - 1"


class RecordingSession:
    """What `MemoryRecorder` and `MemoryCallback` share: one process's recording into one run, from start to end.

    A session that is dropped without `close` pauses until the next one is made: memory may run out after the training.
    One that still exists when the process ends is closed then.
    """

    closed = False

    @uncounted
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._devices, self._unavailable = allocator.choose_devices(settings.devices)
        self.faults = Faults(weakly(self._note))
        self._watch = LayerWatch(self.faults, settings.source_lines)
        self.recording: Recording | None = None  # before `start`
        self._epoch = MISSING
        self.paused = False  # whether nothing is observed until `observe` or the next step
        self._pausing = threading.RLock()
        self._guards = 0  # blocks that are running, at whose end `leave_step` is called
        self._raised: RaisedError | None = None  # the last failed allocation in them
        raised_errors.add(self)

    # --- life -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        if self.recording is None and not self.closed:
            self.faults.run(RECORDING, self._start)

    def _start(self) -> None:
        predecessor = take_place(self, self.settings.log_dir, self.settings.worker)
        if predecessor is not None:
            if not predecessor.paused:
                predecessor.faults.warn("a newer recorder of this process took over the run")
            predecessor.close()
        self.recording = Recording(self.settings, self._devices, self._watch, self.faults)
        try:
            self.recording.begin()
        except BaseException:
            self.recording = None  # it can neither record nor end
            self._watch.remove()
            raise
        for sentence in self._unavailable:
            self.faults.warn(sentence)
        close_at_exit(self)
        abandon_in_child(self)

    def _abandon(self) -> None:
        """End the recording in a forked child, which inherits it: nothing is written, removed or waited for."""
        recording, self.recording = self.recording, None
        self.closed, self.paused = True, False
        self._pausing = threading.RLock()
        self._watch.abandon()
        self._guards, self._raised = 0, None
        if recording is not None:
            recording.abandon()

    def close(self) -> None:
        if self.closed:
            return
        self.close_without_waiting()
        if self.recording is not None and not wait():
            self.warn_incomplete()

    def warn_incomplete(self) -> None:
        self.faults.warn("the memory run may be incomplete: its last records could not be written in time")

    def close_without_waiting(self) -> None:
        self.end_step()
        self.closed = True
        self._watch.remove()
        if self.recording is not None:
            self.recording.end()
        raised_errors.update()

    def __del__(self) -> None:
        # Runs on any thread, between any two statements, so it only submits a job; the job keeps the recorder alive.
        recording = getattr(self, "recording", None)
        if recording is not None and not self.closed:
            recording.submit(self._dropped)

    def _dropped(self) -> None:
        """Pause after the last reference is gone; end if the garbage collector cleared weak references to it, too."""
        if is_unclosed(self):
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

    # --- observing --------------------------------------------------------------------------------------------------

    def start_ordinary(self, on_tick: Job) -> OrdinarySteps | None:
        """Start; what begins the steps at which nothing else is due, None if nothing is recorded."""
        self.start()
        if self.recording is None:
            return None
        self.recording.on_tick = on_tick
        self.recording.uses_ordinary = True
        return self.recording.ordinary

    def submit(self, job: Job) -> None:
        if self.recording is not None:
            self.recording.submit(job)

    def pause(self) -> None:
        """Until `observe` or the next step, observe nothing and keep no file open; write what was recorded soon."""
        with self._pausing:
            if self._active is not None and not self.paused:
                self.paused = True
                self._watch.remove()
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
            self._watch.install()

    def _pause_without_model(self) -> None:
        self.submit(weakly(self._pause_if_unused))

    def _pause_if_unused(self) -> None:
        if self._watch.model_is_gone and self.recording is not None and not self.recording.step_is_open:
            self.pause()

    def observe(self) -> None:
        self._resume()
        if self._active is not None:
            self._watch.install()

    def find_unseen_functions(self, model: Any) -> None:
        if self.settings.traces and not self.closed:
            self._watch.find_unseen_functions(model)

    def see_function(self, model: Any, name: str) -> None:
        """Let Keras make a step function anew that is about to be called if it was traced before layers were observed.
        Keras then traces it once more, with the same result. Does nothing if no step may be traced."""
        if self.settings.traces and not self.closed:
            self._watch.see_function(model, name)

    def stop_observing(self) -> None:
        """Remove the wrappers now; safe in a finalizer."""
        if not hooks.busy:
            self._watch.remove()

    def before_data(self, phase: Phase) -> None:
        """A phase begins and no batch was requested yet: nothing in use now is a batch of the phase."""
        if self._active is not None:
            self.faults.run(RECORDING, self._active.before_data, phase)

    def check_layers(self) -> None:
        """Check whether the layer table changed; without this it is checked every few seconds."""
        if self._active is not None:
            self.faults.run(RECORDING, self._active.check_layers)

    # --- what is trained --------------------------------------------------------------------------------------------

    def watch(self, model: Any, optimizer: Any = None) -> None:
        self._watch.watch(model, optimizer, weakly(self._pause_without_model))
        self.check_layers()

    def set_epoch(self, epoch: int | None) -> None:
        self.faults.run(RECORDING, self._set_epoch, epoch)

    def _set_epoch(self, epoch: Any) -> None:
        self._epoch = int(epoch) if is_step(epoch) else MISSING
        if epoch is not None and self._epoch == MISSING:
            self._refuse("epochs with a wrong number", f"epochs {_STEPS}", epoch=epoch)

    def _refuse(self, part: str, rule: str, **received: Any) -> bool:
        ((name, value),) = received.items()
        self.faults.stop(part, f"{rule}; others are not recorded. Received: {name}={value!r}")
        return False

    # --- steps ------------------------------------------------------------------------------------------------------

    def begin_step(self, step: int, phase: Phase = "train", batch_size: int | None = None) -> None:
        """Begin a step and end the open one."""
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
            valid = (
                batch_size is None
                or is_batch_size(batch_size)
                or self._refuse(
                    "batch sizes with a wrong number", "batch sizes are integers from 1 on", batch_size=batch_size
                )
            )
            self._watch.observer.batch_size = int(batch_size) if valid and batch_size is not None else None
            self.recording.begin_step(int(step), phase, self._epoch)

    def end_step(self) -> None:
        if self.recording is not None:
            self.faults.run(RECORDING, self.recording.end_step)

    # --- failed allocations -----------------------------------------------------------------------------------------

    @property
    def active_since(self) -> tuple[bool, float]:
        """Whether a step is open, and when the last one began."""
        recording = self.recording
        return (False, 0.0) if recording is None else (recording.step_is_open, recording.ordinary.began)

    def enter_step(self) -> None:
        """Begin a block that belongs to the open step; pair it with `leave_step`."""
        self._guards += 1

    def leave_step(self) -> None:
        """End the block. An allocation that failed in it gets its post-mortem now: what the step was given is known."""
        self._guards -= 1
        raised, self._raised = self._raised, None
        if raised is not None and self._active is not None:
            self._active.on_failure(raised)

    def on_raised(self, error: BaseException, request: Request, since: float) -> None:
        """Take a failure whose exception is being made on this thread; see `raised_errors`."""
        raised = raised_now(error, request, self._watch.observer.calling_line)
        if self._guards:
            self._raised = raised
            return
        if self.recording is None:
            self.start()
            if self.recording is not None:
                self.recording.look_back(since)
        recording = self._active
        if recording is None:
            return
        if recording.step_is_open and not recording.uses_ordinary:
            recording.on_failure(raised)
        else:
            recording.on_failure_outside(raised)  # the callback of Keras guards the step's own function

    def _note(self, sentence: str) -> None:
        if self._active is not None:
            self._active.note(sentence)
