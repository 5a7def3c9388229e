"""`MemoryRecorder`: one process's recording into one run."""

import atexit
import contextlib
import dataclasses
import os
import sys
import time
import weakref
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from tb_memplugin.codec import MISSING
from tb_memplugin.model import PHASES, Oom, Phase
from tb_memplugin.recorder import devices as allocator
from tb_memplugin.recorder.background import Background
from tb_memplugin.recorder.faults import Faults
from tb_memplugin.recorder.host import Driver, DriverFigures, HostMemory
from tb_memplugin.recorder.layer_watch import LayerWatch
from tb_memplugin.recorder.oom import OomWatch
from tb_memplugin.recorder.sample_buffer import SampleBuffer
from tb_memplugin.recorder.settings import Settings, check
from tb_memplugin.recorder.step_tracer import StepTracer
from tb_memplugin.recorder.writing import open_run_writer

FLUSH_SECONDS = 5.0
REMOTE_FLUSH_SECONDS = 45.0
"""On a remote file system each flush uploads the whole file again."""

SAMPLES = "memory samples"
RECORDING = "memory recording"
FILES = "writing the memory run"
POST_MORTEMS = "post-mortems of failed allocations"


@dataclasses.dataclass
class _OpenStep:
    step: int
    phase: Phase
    began: float


class MemoryRecorder:
    """Records a training run's device memory: samples of every step, layer tables, and traced steps.

    ```python
    with tb_memplugin.MemoryRecorder("runs/exp1", model=model, optimizer=optimizer) as recorder:
        for step, batch in enumerate(dataset):
            with recorder.step(step):
                train_step(batch)
    ```

    Make it before the training functions are traced, so that it sees which operations each layer makes. It never
    raises into the training and never changes its result: a part that fails is reported once by `logging` and stops.

    Args:
        log_dir: The run's directory (what TensorBoard shows as one run), local or a URL that TensorFlow writes to.
        model: Keras model that is trained; without it there are no layers.
        optimizer: Its optimizer; by default the one the model was compiled with.
        overhead: Share of run time that tracing may cost; 0 traces nothing.
        trace_steps: Trace exactly these training steps instead.
        devices: Names of the devices to record, by default all GPUs, or the CPU where there is none.
        keep_profile: Leave the raw profile of each traced step in the run, for TensorBoard's profiler tab.
        worker: Name of this process, if several record into the same run.

    Raises:
        RecordingError: An argument cannot work.
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str],
        model: Any = None,
        optimizer: Any = None,
        *,
        overhead: float = 0.005,
        trace_steps: Collection[int] | None = None,
        devices: Sequence[str] | None = None,
        keep_profile: bool = False,
        worker: str = "",
    ) -> None:
        self._settings: Settings = check(log_dir, overhead, trace_steps, devices, keep_profile, worker)
        self._devices, self._unavailable = allocator.choose_devices(self._settings.devices)
        self._names = tuple(device.name for device in self._devices)
        self._capacities = [
            MISSING if device.capacity_bytes is None else device.capacity_bytes for device in self._devices
        ]
        self._faults = Faults(self._note)
        self._watch = LayerWatch(self._faults)
        self._buffer = SampleBuffer(self._names)
        self._open: _OpenStep | None = None
        self._epoch = MISSING
        self._started = False
        self._closed = False
        self._next_watch = 0.0
        if model is not None:
            self.watch(model, optimizer)

    # --- life -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begins the session; entering the `with` block does it. Calling it again does nothing."""
        if self._started or self._closed:
            return
        self._started = True
        self._end_predecessor()
        self._watch.install()
        self._host = HostMemory()
        self._driver = Driver({device.name: device.pci_bus_id for device in self._devices if device.pci_bus_id})
        self._writer = self._faults.run(FILES, open_run_writer, self._settings)
        self._oom = OomWatch(self._devices, self._watch, self._write_oom)
        self._faults.run(POST_MORTEMS, self._oom.install)
        self._tracer = StepTracer(self._settings, self._devices, self._watch, self._faults, self._oom)
        interval = REMOTE_FLUSH_SECONDS if self._settings.remote else FLUSH_SECONDS
        self._background = Background(self._tick, self._write_out, interval)
        for sentence in self._unavailable:
            self._faults.warn(sentence)
        if self._driver.answers:
            self._driver.read()
        self._check_layers(0)
        _close_at_exit(self)

    def _end_predecessor(self) -> None:
        """Ends a recorder of this process that still holds the same place: a notebook's cell that was run again."""
        place = (os.path.abspath(self._settings.log_dir), self._settings.worker)
        predecessor = _recording.get(place)
        _recording[place] = self
        if predecessor is not None and not predecessor._closed:
            predecessor._faults.warn("a newer recorder of this process took over the run")
            predecessor.close()

    def close(self) -> None:
        """Ends an open step, writes everything and ends the session. Calling it again does nothing."""
        if self._closed:
            return
        if self._open is not None:
            # Where nothing of ours saw an exception pass, the interpreter keeps the one that ended the program.
            self.died(getattr(sys, "last_value", None))
        self.end_step()
        self.flush()
        self._closed = True
        self._watch.remove()
        if not self._started:
            return
        if not self._background.close():
            self._faults.warn("the memory run may be incomplete: its last records could not be written within 60 s")
        if self._writer is not None:
            self._faults.run(FILES, self._writer.close)
        self._faults.run(POST_MORTEMS, self._oom.remove)
        self._driver.close()
        self._host.close()

    def flush(self) -> None:
        """Waits until everything recorded so far is in the event file."""
        if self._started and not self._closed:
            self._background.drain()
            if self._check_layers(self._watch.last_step + 1):  # a snapshot may have told the batch size
                self._background.drain()

    def __enter__(self) -> "MemoryRecorder":
        self.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.died(error)
        self.close()

    # --- what is trained --------------------------------------------------------------------------------------------

    def watch(self, model: Any, optimizer: Any = None) -> None:
        """Names the model that is trained from now on, and its optimizer (by default the one it was compiled with)."""
        self._watch.watch(model, optimizer)
        if self._started and not self._closed:
            self._check_layers(self._watch.last_step + 1)

    def have_functions_traced_again(self, model: Any) -> None:
        """Lets Keras make the model's functions anew if they were traced before anybody watched which layer makes what.

        Keras then traces them once more, with the same result; without tracing of steps nothing is done.
        """
        if self._settings.traces:
            self._watch.forget_unseen_functions(model)

    def before_data(self) -> None:
        """No batch has been asked for yet: what is in use now is none."""
        if self._settings.traces:
            self._watch.before_data()

    def set_epoch(self, epoch: int | None) -> None:
        """Notes the epoch of the steps that follow; None for no epoch."""
        self._epoch = MISSING if epoch is None else int(epoch)

    # --- steps ------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def step(self, step: int, phase: Phase = "train") -> Iterator[None]:
        """Records what runs inside the block as one step (for other phases: one batch after training step `step`)."""
        self.begin_step(step, phase)
        try:
            yield
        except BaseException as error:
            self.died(error)
            raise
        finally:
            self.end_step()

    def begin_step(self, step: int, phase: Phase = "train") -> None:
        """Begins a step, ending the one that is open. Without a `with` block: pair it with `end_step`."""
        self._faults.run(RECORDING, self._begin_step, step, phase)

    def _begin_step(self, step: int, phase: Phase) -> None:
        self.start()
        if self._open is not None:
            self._end_step()
        if self._closed or not self._valid(step, phase):
            return
        step = int(step)
        now = time.monotonic()
        if now >= self._next_watch and phase == "train":
            self._check_layers(step)
        self._open = _OpenStep(step, phase, time.perf_counter())
        self._tracer.begin(step, phase)
        for name in self._names:
            self._faults.run(SAMPLES, allocator.reset_peak, name)

    def end_step(self) -> None:
        """Ends the open step and keeps its sample."""
        self._faults.run(RECORDING, self._end_step)

    def died(self, error: BaseException | None) -> bool:
        """An exception ends the open step: if memory ran out, the run gets a post-mortem before the exception goes on.

        Entering `step` as a `with` block does this; call it only where you pair `begin_step` and `end_step` yourself.
        Returns whether memory was the reason.
        """
        if error is None or not self._started or self._closed:
            return False
        opened = self._open
        step, phase = (None, None) if opened is None else (opened.step, opened.phase)
        return bool(self._faults.run(POST_MORTEMS, self._oom.died, error, step, phase))

    def _write_oom(self, oom: Oom, wait: bool) -> None:
        def write() -> None:
            if self._writer is not None:
                self._faults.run(FILES, self._writer.oom, oom)
                self._faults.run(FILES, self._writer.flush)

        if not wait:
            self._background.submit(write)
            return
        self._background.submit(write)
        self._background.drain()

    def _end_step(self) -> None:
        opened, self._open = self._open, None
        if opened is None:
            return
        self._faults.run(POST_MORTEMS, self._oom.step_ended)
        wall_time = time.time()
        peaks = self._faults.run(SAMPLES, self._sample, opened, wall_time)
        seconds = time.perf_counter() - opened.began
        if self._tracer.compiled:
            self._check_layers(opened.step)  # the first step builds the optimizer
        traced = self._tracer.end(opened.step, opened.phase, wall_time, seconds, peaks or 0)
        if traced is not None:
            self._background.submit(lambda: self._work_through(traced))
        if opened.phase == "train":
            self._watch.last_step = max(self._watch.last_step, opened.step)

    def _valid(self, step: Any, phase: Any) -> bool:
        if isinstance(step, bool) or not hasattr(step, "__index__") or int(step) < 0:
            self._faults.stop(
                "steps with a wrong number",
                f"steps are whole numbers from 0 and others are not recorded. Received: step={step!r}",
            )
            return False
        if phase not in PHASES:
            self._faults.stop(
                "steps with a wrong phase",
                f"phases are {', '.join(PHASES)} and others are not recorded. Received: phase={phase!r}",
            )
            return False
        return True

    def _sample(self, opened: _OpenStep, wall_time: float) -> int:
        row = [opened.step, PHASES.index(opened.phase), self._epoch, self._host.resident_bytes()]
        highest = 0
        for name, capacity in zip(self._names, self._capacities, strict=True):
            current, peak = allocator.memory_info(name)
            driver = self._driver.figures.get(name) or _NO_FIGURES
            row += (current, peak, capacity, driver.process_bytes, driver.used_bytes, driver.total_bytes)
            highest = max(highest, peak)
        self._buffer.append(wall_time, tuple(row))
        return highest

    # --- layers -----------------------------------------------------------------------------------------------------

    def check_layers(self) -> None:
        """Looks whether the layer table changed, as is done every few seconds and at `watch`."""
        if self._started and not self._closed:
            self._check_layers(self._watch.last_step + 1)

    def _check_layers(self, step: int) -> bool:
        """Whether there was a new layer table to write."""
        self._next_watch = time.monotonic() + FLUSH_SECONDS
        table = self._watch.changed_table(step)
        if table is not None:
            self._tracer.schedule.changed()
        else:
            table = self._watch.completed_table()
        if table is None or self._writer is None:
            return False
        writer = self._writer
        self._background.submit(lambda: self._faults.run(FILES, writer.layer_table, table))
        return True

    # --- on the background thread -------------------------------------------------------------------------------------

    def _tick(self) -> None:
        if self._driver.answers:
            self._faults.run("figures of the GPU driver", self._driver.read)
        opened = self._open
        step, phase = (None, None) if opened is None else (opened.step, opened.phase)
        self._faults.run(POST_MORTEMS, self._oom.tick, step, phase)
        self._write_out()

    def _write_out(self) -> None:
        samples = self._buffer.take()
        if self._writer is None or self._faults.stopped(FILES):
            return
        if samples is not None:
            self._faults.run(FILES, self._writer.samples, samples)
        self._faults.run(FILES, self._writer.flush)

    def _work_through(self, traced: Any) -> None:
        worked = self._tracer.work_through(traced)
        if self._writer is None:
            return
        for snapshot in worked.snapshots:
            self._faults.run(FILES, self._writer.snapshot, snapshot)
        for taken in worked.maps:
            self._faults.run(FILES, self._writer.allocator_map, taken)
        for inside in worked.timelines:
            self._faults.run(FILES, self._writer.timeline, inside)

    def _note(self, sentence: str) -> None:
        writer = getattr(self, "_writer", None)
        if writer is not None and not self._closed and not self._faults.stopped(FILES):
            self._background.submit(lambda: self._faults.run(FILES, writer.note, sentence))


_NO_FIGURES = DriverFigures()

_recording: "weakref.WeakValueDictionary[tuple[str, str], MemoryRecorder]" = weakref.WeakValueDictionary()


def _close_at_exit(recorder: MemoryRecorder) -> None:
    # Weak: a recorder that nobody holds any more is not kept alive until the process ends.
    reference = weakref.ref(recorder)

    def close() -> None:
        alive = reference()
        if alive is not None:
            alive.close()

    atexit.register(close)
