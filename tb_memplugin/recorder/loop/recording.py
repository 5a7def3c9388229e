"""`Recording`: samples the steps of one session, traces some of them and writes the results."""

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Sequence

from tb_memplugin.importers import Request
from tb_memplugin.recorder.base import (
    Background,
    Due,
    Faults,
    Job,
    Settings,
    changes,
    remove_abandoned,
    submit,
    uncounted,
    wait,
    weakly,
)
from tb_memplugin.recorder.devices import PINNED, MemoryMaps, Sample, Sampler
from tb_memplugin.recorder.devices import statistics as allocator
from tb_memplugin.recorder.failure import POLL_SECONDS, FailureMaps, OomWatch, OwnedMap, Place, RaisedError
from tb_memplugin.recorder.loop.counters import ProgramCounts
from tb_memplugin.recorder.loop.output import Output
from tb_memplugin.recorder.tracing import HostBuffers, StepEnds, StepTracer, TracedStep
from tb_memplugin.recorder.watch import OBSERVING, TABLE, LayerWatch, program_counters
from tb_memplugin.schema import SAMPLES, MemoryMap, Oom, Phase, TraceFacts, is_gpu
from tb_memplugin.storage.write import MAX_SAMPLE_ROWS, RunWriter

FLUSH_SECONDS = 5.0
REMOTE_FLUSH_SECONDS = 45.0  # on a remote file system each flush uploads the whole file again

POOLS = "measuring the pool"
REPLAYS = "replays of failed steps"
POST_MORTEMS = "post-mortems of failed allocations"
ABANDONED = "removing directories of killed processes"
COUNTERS = "counters of models, traces and dataset caches"
DRIVER = "figures of the GPU driver"
HOST_BUFFERS = "buffers in host memory"


@dataclasses.dataclass
class _OpenStep:
    """The running step; `Recording.ordinary` has its number, which may increase while this object stays."""

    phase: Phase
    epoch: int
    began: float  # by `time.perf_counter`


class Recording:
    """The training's thread begins and ends steps; all that takes time runs on the background thread, which holds a
    recording only weakly."""

    @uncounted
    def __init__(
        self, settings: Settings, devices: Sequence[allocator.Device], watch: LayerWatch, faults: Faults
    ) -> None:
        self._settings = settings
        self._devices = devices
        self._watch = watch
        self._faults = faults
        self._sampler = Sampler(devices)
        self.ordinary = self._sampler.ordinary
        self._counts = ProgramCounts(settings.overhead)
        self._output = Output(settings, faults, self._sampler.buffer, self._counts.rows)
        self._open: _OpenStep | None = None
        self._sample: Sample | None = None  # of the last step
        self._chunks = 0  # of samples, that were queued for writing
        self._paused = self._ending = self._has_breakdown = False
        self.on_tick: Job = lambda: None  # called every few seconds on the background thread
        self.uses_ordinary = False  # whether `ordinary.next` is asked before each pair of `end_step` and `begin_step`
        self._next_watch = 0.0
        self._polled: float | None = None
        submit(functools.partial(faults.run, ABANDONED, remove_abandoned))
        submit(self._output.open)  # not opened here: by then a dropped recorder of the same run is closed

    @uncounted
    def begin(self) -> None:
        """Set up the parts that may report faults: notes are recorded from now on."""
        names, settings, faults = self._sampler.names, self._settings, self._faults
        maps = MemoryMaps([*names, *[PINNED] * any(map(is_gpu, names))], faults.warn)
        self._stalled = FailureMaps(self._devices, maps)
        self.oom = OomWatch(self._watch, self._stalled, weakly(self._write_oom))
        self.tracer = StepTracer(settings, self._devices, self._watch, faults, self.oom.recent, maps)
        spend = self.tracer.schedule.add_cost
        self._step_ends = StepEnds(maps, self._sampler.buffer, settings.overhead, spend)
        self._host_buffers = HostBuffers(maps, settings.overhead, spend)
        self._watch.install()
        faults.run(DRIVER, self._sampler.driver.open)
        faults.run(DRIVER, self._sampler.driver.read)
        self._background = Background(self._tick, REMOTE_FLUSH_SECONDS if settings.remote else FLUSH_SECONDS)
        self._polling = Background(self._poll, POLL_SECONDS)
        self.check_layers(0)

    @uncounted
    def pause(self) -> None:
        """Write what was recorded and close every file until `resume`, without waiting."""
        if self._paused:
            return
        self._paused = True
        if self._sample is not None:
            in_use = self._sample.in_use_bytes
            self._faults.run(COUNTERS, lambda: self._counts.note_end(in_use, self._watch.model_bytes()))
        self.ordinary.forbid()
        self._sampler.host.close()
        self._polling.set_ticking(False)
        submit(self._rest)
        self._background.set_ticking(False)

    @uncounted
    def resume(self) -> None:
        if not self._paused:
            return
        self._paused = False
        self._sampler.host.open()
        self._polling.set_ticking(True)
        submit(self._wake)
        self._background.set_ticking(True)

    def end(self) -> None:
        """End the session, without waiting until everything is written."""
        self._faults.run(POST_MORTEMS, self.oom.say_survived)
        if self._paused:
            self._write(RunWriter.end)
        self._ending = True
        self.pause()

    def abandon(self) -> None:
        self.ordinary.forbid()
        self._output.abandon()
        self._sampler.host.close()

    def drain(self) -> bool:
        """Wait until everything recorded so far is written; False if that takes too long."""
        submit(self._output.write_out)
        return wait()

    def note(self, sentence: str) -> None:
        self._write(RunWriter.note, sentence)

    def _write(self, method: Callable[..., None], *record: object) -> None:
        submit(functools.partial(self._output.do, method, *record))

    def _submit_step(self, part: str, step: int, job: Callable[..., None], *args: object) -> None:
        submit(functools.partial(self._faults.run_step, part, step, job, *args))

    # --- on the training's thread

    @property
    def step_is_open(self) -> bool:
        return self._open is not None

    @uncounted
    def check_layers(self, step: int | None = None) -> None:
        """Write the layer table if it changed; by default from the next step on."""
        self._next_watch = time.monotonic() + FLUSH_SECONDS
        table = self._watch.changed_table(self._watch.last_step + 1 if step is None else step)
        if table is not None:
            self.tracer.schedule.changed()
            self._write(RunWriter.layer_table, table)

    def begin_step(self, step: int, phase: Phase, epoch: int) -> None:
        """Begin a step; none may be open."""
        if time.monotonic() >= self._next_watch and phase == "train":
            self.check_layers(step)
        self._stalled.clear()
        self.ordinary.begin(step, self._sampler.clock.now())
        self._open = _OpenStep(phase, epoch, time.perf_counter())
        batches = self.tracer.first_batches()
        if batches is not None:
            self._submit_step(OBSERVING, step, self.tracer.note_first_batches, *batches)
        self.tracer.begin(step, phase)
        self._faults.run(SAMPLES, self._sampler.reset_peaks)
        if self.uses_ordinary:
            self._allow_ordinary(self._open, step)

    def _allow_ordinary(self, opened: _OpenStep, step: int) -> None:
        """Let steps end and begin by themselves until a part wants more of them than a sample."""
        seen = changes.last  # before looking, so that no change is lost
        busy = self.oom.waits or self.tracer.tracing or self.tracer.compiled
        if busy or self._sample is None or self._faults.stopped(SAMPLES):
            return
        traced = self.tracer.due(step, opened.phase)
        seconds = min(
            FLUSH_SECONDS,
            program_counters.due_in(),
            self._host_buffers.due_in(),
            self._step_ends.due_in(),
            self._next_watch - time.monotonic() if opened.phase == "train" else math.inf,
            traced.seconds,
        )
        due = Due(seconds, min(traced.step, step + MAX_SAMPLE_ROWS), traced.peak_bytes)
        self._sampler.allow_ordinary(seen, due, step, opened.phase, opened.epoch)

    def _take_ordinary(self, opened: _OpenStep) -> None:
        """Make up for the steps since `_allow_ordinary`."""
        passed = self.ordinary.take()
        if not passed.steps:
            return
        clock = self._sampler.clock
        clock.advance_to(self.ordinary.began)
        now = time.perf_counter()
        passed = passed._replace(seconds=min(passed.seconds, now - opened.began))  # the clock may have been set
        opened.began = max(opened.began, now - max(0.0, clock.now() - self.ordinary.began))
        self.oom.steps_ended(self.ordinary.began - clock.behind)
        self.tracer.passed(opened.phase, passed)

    @uncounted
    def end_step(self) -> None:
        opened, self._open = self._open, None
        if opened is None:
            return
        self._take_ordinary(opened)
        step = self.ordinary.step
        self._faults.run(POST_MORTEMS, self.oom.step_ended)
        wall_time = self._sampler.clock.now()
        sample = self._sample = self._faults.run(SAMPLES, self._sample_step, opened, step, wall_time)
        seconds = time.perf_counter() - opened.began
        if self.tracer.compiled:
            self.check_layers(step)  # the first step builds the optimizer
        peak = 0 if sample is None else max(sample.peak_bytes.values(), default=0)
        traced = self.tracer.end(step, opened.phase, wall_time, seconds, peak)
        cost = self._faults.run(COUNTERS, self._counts.count, step, self._sampler.host_grew)
        self.tracer.schedule.add_cost(cost or 0.0)
        if traced is not None:
            if sample is not None:
                self._submit_step(POOLS, step, self._step_ends.measure, sample.number, sample.in_use_bytes, traced.end)
            submit(functools.partial(self._work_through, traced))
        if opened.phase == "train":
            self._watch.last_step = max(self._watch.last_step, step)
        chunks = 0 if sample is None else (sample.number + 1) // MAX_SAMPLE_ROWS
        if chunks > self._chunks:  # samples of fast steps do not wait in memory for the tick
            self._chunks = chunks
            submit(self._output.write_samples)

    def _sample_step(self, opened: _OpenStep, step: int, wall_time: float) -> Sample:
        buffers = None
        if self._host_buffers.due_in() <= 0.0 and not self.tracer.tracing:  # reading tf.data's runs an operation
            buffers = self._faults.run(HOST_BUFFERS, self._host_buffers.read)
        sample = self._sampler.sample(wall_time, step, opened.phase, opened.epoch, buffers)
        if self._step_ends.due_in() <= 0.0:
            dumps = self._step_ends.read()
            self._submit_step(POOLS, step, self._step_ends.measure_read, sample.number, sample.in_use_bytes, dumps)
        return sample

    def on_failure(self, raised: RaisedError, in_step: bool = True) -> None:
        """Write the post-mortem of an allocation that failed, by default in the open step, which its error ends."""
        opened = self._open
        if opened is None or not in_step:
            last = self._watch.last_step if opened is None else self.ordinary.step
            place = Place(None if last < 0 else last, None, "building" if raised.builds else "between_steps")
            self._faults.run(POST_MORTEMS, self.oom.on_error, raised, place)
            return
        self._take_ordinary(opened)
        step = self.ordinary.step
        place = Place(step, opened.phase, "step")
        traced = None
        if self.tracer.tracing:
            seconds = time.perf_counter() - opened.began
            traced = self.tracer.end(step, opened.phase, self._sampler.clock.now(), seconds, 0)
        if traced is None:
            self._faults.run(POST_MORTEMS, self.oom.on_error, raised, place)
            return
        failed = dataclasses.replace(traced, interrupted=True)

        def replay(device: str, memory_map: MemoryMap | None, request: Request, now: TraceFacts) -> OwnedMap | None:
            nonlocal failed  # so that its analysis finds the same owners
            found = self._faults.run(REPLAYS, self.tracer.failed_step, failed, device, memory_map, request, now)
            failed, owned = found or (failed, None)
            return owned

        analyzed = self.drain()  # the chunks of earlier steps
        self._faults.run(POST_MORTEMS, self.oom.on_error, raised, place, replay if analyzed else None)
        submit(functools.partial(self._work_through, failed))

    def _write_oom(self, oom: Oom, waits: bool) -> None:
        self._write(RunWriter.oom, oom)
        self._write(RunWriter.flush)
        if waits:
            self.drain()

    # --- on the background thread

    def _tick(self) -> None:
        self._faults.run("noticing interrupted trainings", self.on_tick)
        self._faults.run(DRIVER, self._sampler.driver.read)
        opened = self._open
        step, phase = (None, None) if opened is None else (self.ordinary.step, opened.phase)
        began = self.ordinary.began - self._sampler.clock.behind if self.ordinary.passed else 0.0
        self._faults.run(POST_MORTEMS, self.oom.tick, step, phase, began)
        self._output.write_out()

    def _poll(self) -> None:
        began = None if self._open is None else self.ordinary.began
        before, self._polled = self._polled, began
        if began is None or began != before:
            return  # the step has not run for as long as from one poll to the next
        # An allocator without statistics is a fault of the samples, and is logged as that only.
        self._faults.run(SAMPLES, lambda: [allocator.memory_info(name) for name in self._sampler.names])
        if not self._faults.stopped(SAMPLES):
            self._faults.run(POST_MORTEMS, self._stalled.poll)

    def _work_through(self, traced: TracedStep) -> None:
        is_first = not self._has_breakdown
        if is_first:
            self._output.do(RunWriter.analyzing, traced.step)  # readers find nothing but this so far
        result = self.tracer.work_through(traced)
        self._output.write_traced(result)
        completed = self._faults.run_step(TABLE, traced.step, self._watch.completed_table)
        if completed is not None:
            self._output.do(RunWriter.layer_table, completed)
        if is_first:
            self._output.do(RunWriter.analyzing, None)
            self._has_breakdown = bool(result.snapshots)

    def _rest(self) -> None:
        try:
            self._tick()
            self._output.end_epoch()
            self._output.do(RunWriter.end if self._ending else RunWriter.roll_up)
        finally:
            self._output.rest()
            self._faults.clean_up(DRIVER, self._sampler.driver.close)

    def _wake(self) -> None:
        self._output.wake()
        self._faults.run(DRIVER, self._sampler.driver.open)
