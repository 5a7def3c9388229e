"""`Steps`: the steps of an open session, on the training's thread. A step that ends becomes a
sample, and work for the sender; while nothing else is due, `FastPath` ends steps and begins the
next ones by itself."""

import dataclasses
import math
import time
import weakref
from collections.abc import Sequence
from typing import Any

from tb_memplugin.recorder.base import (
    Due,
    Faults,
    Settings,
    changes,
    is_batch_size,
    is_step,
    submit,
)
from tb_memplugin.recorder.devices import PINNED, Device, MemoryMaps, Sample, Sampler
from tb_memplugin.recorder.devices import statistics as allocator
from tb_memplugin.recorder.failure import FailureMaps, OomWatch
from tb_memplugin.recorder.helper import Dumps, TracedStep
from tb_memplugin.recorder.loop.counts import ProgramCounts
from tb_memplugin.recorder.loop.run_file import RunFile
from tb_memplugin.recorder.tracing import Measurements, Windows
from tb_memplugin.recorder.watch import OBSERVING, TABLE, LayerWatch, program_counters
from tb_memplugin.schema import (
    MISSING,
    PHASES,
    SAMPLES,
    WRONG_NUMBERS,
    WRONG_PHASES,
    LayerTable,
    Phase,
    is_gpu,
)
from tb_memplugin.storage.write import MAX_SAMPLE_ROWS, RunWriter

LOOK_SECONDS = 5.0  # longest time after which a step looks what is due, as at the layer table

POOLS = "measuring the pool"
POST_MORTEMS = "post-mortems of failed allocations"
COUNTERS = "counters of models, traces and dataset caches"
DRIVER = "figures of the GPU driver"
_MADE_AGAIN = (
    "step {step} took {seconds:.1f} s: TensorFlow traced the model's function again, because no "
    "recorder saw the first time. With the callback from the first call on nothing is traced twice."
)
_NUMBERS = "must be integers from 0 to 2**53 - 1"


@dataclasses.dataclass
class OpenStep:
    """The running step; `FastPath` has its number, which may increase while this object stays."""

    phase: Phase
    epoch: int
    began: float  # by `time.perf_counter`


recording_now: "weakref.WeakSet[Steps]" = weakref.WeakSet()
"""Those of the sessions of this process that are open and not paused."""


class Steps:
    """Any thread may read the attributes; the training's thread calls all methods, and the
    background thread `rest` for a session that was dropped.

    Args:
        hooked: Whether the caller asks `ordinary.next` before it begins a step."""

    def __init__(
        self,
        settings: Settings,
        devices: Sequence[Device],
        layers: LayerWatch,
        faults: Faults,
        sampler: Sampler,
        counts: ProgramCounts,
        file: RunFile,
        hooked: bool,
    ) -> None:
        self.log_dir = settings.log_dir
        self._batch_size = settings.batch_size
        self.open: OpenStep | None = None
        self.sampler = sampler
        self.ordinary = sampler.ordinary
        self._layers, self._faults = layers, faults
        self._counts, self._file = counts, file
        self._hooked = hooked
        self._sample: Sample | None = None  # of the last step
        self._chunks = 0  # of samples, that were to be written
        self._next_look = 0.0  # at the layer table

        names = sampler.names
        maps = MemoryMaps([*names, *[PINNED] * any(map(is_gpu, names))], faults.warn)
        self.windows = Windows(settings, devices, layers, faults, maps)
        self.failure_maps = FailureMaps(devices, maps)
        self.oom = OomWatch(layers, self.failure_maps, self.windows.helper, file.write_oom)
        spend = self.windows.schedule.add_cost
        self._measurements = Measurements(maps, sampler.buffer, settings.overhead, spend, faults)
        for read in (sampler.driver.open, sampler.driver.read):
            faults.run(DRIVER, read)
        recording_now.add(self)

    def check_table(self, step: int | None = None) -> None:
        """Write the layer table if it changed; by default from the next step on."""
        self._next_look = time.monotonic() + LOOK_SECONDS
        step = self._layers.last_step + 1 if step is None else step
        table = self._faults.run(TABLE, self._layers.changed_table, step)
        if table is not None:
            self.windows.schedule.changed()
            submit(self._write_table, table)

    def _write_table(self, table: LayerTable) -> None:
        completed = self._faults.run(TABLE, self._layers.completed, table)
        if completed is not None:
            self._file.do(RunWriter.layer_table, completed)

    def _refuse(self, part: str, rule: str, **received: Any) -> None:
        ((name, value),) = received.items()
        self._faults.stop(part, f"{rule}; others are not recorded. Received: {name}={value!r}")

    def begin(self, step: int, phase: Phase, epoch: Any, batch_size: int | None) -> None:
        """Begin a step, unless its number or phase is none."""
        if not is_step(step):
            self._refuse(WRONG_NUMBERS, f"steps {_NUMBERS}", step=step)
            return
        if phase not in PHASES:
            self._refuse(WRONG_PHASES, f"phases are {', '.join(PHASES)}", phase=phase)
            return
        if epoch is not None and not is_step(epoch):
            self._refuse("epochs with a wrong number", f"epochs {_NUMBERS}", epoch=epoch)
            epoch = None
        if batch_size is None and phase == "train":
            batch_size = self._batch_size
        if batch_size is not None and not is_batch_size(batch_size):
            part, rule = "batch sizes with a wrong number", "batch sizes are integers from 1 on"
            self._refuse(part, rule, batch_size=batch_size)
            batch_size = None
        self._layers.step_batch_size = None if batch_size is None else int(batch_size)

        step = int(step)
        if time.monotonic() >= self._next_look and phase == "train":
            self.check_table(step)
        self.ordinary.begin(step, self.sampler.clock.now())
        epoch = MISSING if epoch is None else int(epoch)
        self.open = opened = OpenStep(phase, epoch, time.perf_counter())
        batches = self.windows.first_batches()
        if batches is not None:
            first_batches = self.windows.helper.first_batches
            submit(self._faults.run_step, OBSERVING, step, first_batches, *batches)
        self.windows.begin(step, phase)
        self._faults.run(SAMPLES, self._reset_peaks)
        if self._hooked:
            self._allow_ordinary(opened, step)

    def _others(self) -> "list[Steps]":
        return [one for one in recording_now if one is not self]

    def _reset_peaks(self) -> None:
        """Reset the devices' peaks, which the running steps of other sessions have, too."""
        for other in self._others():
            other.sampler.lose(allocator.peaks(other.sampler.names))
        self.sampler.reset_peaks()

    def _allow_ordinary(self, opened: OpenStep, step: int) -> None:
        """Let steps end and begin by themselves until a part wants more of them than a sample, or
        another session begins, which needs the peaks that these steps reset."""
        seen = changes.last  # before looking, so that no change is lost
        busy = self.oom.waits or self.windows.tracing or self.windows.compiled
        if busy or self._sample is None or self._faults.stopped(SAMPLES) or self._others():
            return
        traced = self.windows.due(step, opened.phase)
        seconds = min(
            LOOK_SECONDS,
            program_counters.due_in(),
            self._measurements.due_in(),
            self._next_look - time.monotonic() if opened.phase == "train" else math.inf,
            traced.seconds,
        )
        peak = min(traced.peak_bytes, self.sampler.next_look_bytes)
        due = Due(seconds, min(traced.step, step + MAX_SAMPLE_ROWS), peak)
        self.sampler.allow_ordinary(seen, due, step, opened.phase, opened.epoch)

    def _take_ordinary(self, opened: OpenStep) -> int:
        """Make up for the steps since `_allow_ordinary`; return the number of the running one."""
        passed = self.ordinary.drain()
        if passed.steps:
            clock = self.sampler.clock
            clock.advance_to(self.ordinary.began)
            now = time.perf_counter()
            # the clock may have been set
            passed = passed._replace(seconds=min(passed.seconds, now - opened.began))
            opened.began = max(opened.began, now - max(0.0, clock.now() - self.ordinary.began))
            self.oom.steps_ended(self.ordinary.began - clock.behind)
            self.windows.passed(opened.phase, passed)
        return self.ordinary.step

    def end(self) -> TracedStep | None:
        """End the open step; return it if it was traced."""
        opened, self.open = self.open, None
        if opened is None:
            return None
        step, phase = self._take_ordinary(opened), opened.phase
        self._faults.run(POST_MORTEMS, self.oom.step_ended)
        wall_time, tracing = self.sampler.clock.now(), self.windows.tracing
        sample = self._sample = self._faults.run(
            SAMPLES, self._sample_step, opened, step, wall_time, tracing
        )
        seconds = time.perf_counter() - opened.began
        if self.windows.compiled:
            self.check_table(step)  # the first step builds the optimizer
        if self._layers.remade:
            self._layers.remade = False
            self._faults.warn(_MADE_AGAIN.format(step=step, seconds=seconds))
        peak = 0 if sample is None else max(sample.peak_bytes.values(), default=0)
        traced = self.windows.end(step, phase, wall_time, seconds, peak)
        cost = self._faults.run(COUNTERS, self._counts.count, step, self.sampler.grew)
        self.windows.schedule.add_cost(cost or 0.0)
        if phase == "train":
            self._layers.last_step = max(self._layers.last_step, step)
        if sample is None:
            return traced

        if tracing:
            self._measure(sample, {} if traced is None else traced.end)
        chunks = (sample.number + 1) // MAX_SAMPLE_ROWS
        if chunks > self._chunks:  # samples of fast steps do not wait in memory for the tick
            self._chunks = chunks
            submit(self._file.write_samples)
        return traced

    def _sample_step(self, opened: OpenStep, step: int, wall_time: float, tracing: bool) -> Sample:
        read = None
        # reading tf.data's buffers runs an operation
        if not tracing and self._measurements.due_in() <= 0.0:
            read = self._faults.run(POOLS, self._measurements.read)
        buffers = None if read is None else read.host_buffers
        waits = tracing or read is not None
        sample = self.sampler.sample(wall_time, step, opened.phase, opened.epoch, buffers, waits)
        if read is not None:
            self._measure(sample, read.dumps)
        return sample

    def _measure(self, sample: Sample, dumps: Dumps) -> None:
        """Add the figures of the pool to a sample, which waits for them."""
        self._faults.run(POOLS, self._measurements.fill, sample, dumps)
        self.sampler.buffer.release(sample.number)

    def interrupt(self, opened: OpenStep) -> TracedStep | None:
        """Close the window of the open step, which a failed allocation ends; the traced step, if it
        was traced."""
        step = self._take_ordinary(opened)
        if not self.windows.tracing:
            return None
        seconds = time.perf_counter() - opened.began
        traced = self.windows.end(step, opened.phase, self.sampler.clock.now(), seconds, 0)
        return None if traced is None else dataclasses.replace(traced, interrupted=True)

    def _note_end(self) -> None:
        sample = self._sample
        if sample is not None:
            own = self._layers.model_bytes
            self._faults.run(COUNTERS, lambda: self._counts.note_end(sample.in_use_bytes, own()))

    def next_training(self) -> None:
        """Another training goes on in this run: for what trainings leave in use, one has ended."""
        self._note_end()
        self._counts.next_session()

    def rest(self) -> None:
        """Keep no file open until `wake`."""
        recording_now.discard(self)
        self._note_end()
        self.ordinary.disarm()
        self._faults.clean_up(SAMPLES, self.sampler.host.close)

    def wake(self) -> None:
        self._counts.next_session()
        recording_now.add(self)
        self.sampler.host.open()

    def abandon(self) -> None:
        """Forget the steps in a forked child."""
        recording_now.discard(self)
        self.ordinary.disarm()
        self.sampler.host.close()
