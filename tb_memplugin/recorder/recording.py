"""`Recording`: the parts of one session, between its start and its end."""

import dataclasses
import functools
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tb_memplugin.events.run_writer import MAX_SAMPLE_ROWS, RunWriter
from tb_memplugin.model import MISSING, PHASES, LayerTable, Oom, Phase
from tb_memplugin.model.notes import SAMPLES
from tb_memplugin.model.units import counted
from tb_memplugin.recorder.base.background import Background, Job
from tb_memplugin.recorder.base.clock import Clock
from tb_memplugin.recorder.base.faults import Faults
from tb_memplugin.recorder.base.private_directory import remove_abandoned
from tb_memplugin.recorder.base.settings import Settings
from tb_memplugin.recorder.host_parts import HostParts
from tb_memplugin.recorder.lifetime import weakly
from tb_memplugin.recorder.native.allocators import PINNED
from tb_memplugin.recorder.native.memory_maps import MemoryMaps
from tb_memplugin.recorder.observe.layer_watch import TABLE, LayerWatch
from tb_memplugin.recorder.observe.program_counters import program_counters
from tb_memplugin.recorder.oom.post_mortems import OomWatch
from tb_memplugin.recorder.oom.stalled_maps import POLL_SECONDS, StalledMaps
from tb_memplugin.recorder.run_files import FILES, RunFiles
from tb_memplugin.recorder.sampling import devices as allocator
from tb_memplugin.recorder.sampling.counter_rows import CounterRows
from tb_memplugin.recorder.sampling.host import Driver, DriverFigures, HostMemory
from tb_memplugin.recorder.sampling.peak_scalars import PeakScalars, ScalarPoint
from tb_memplugin.recorder.sampling.sample_buffer import SampleBuffer
from tb_memplugin.recorder.tracing.step_analysis import TRACING, TracedStep
from tb_memplugin.recorder.tracing.step_ends import StepEnds
from tb_memplugin.recorder.tracing.step_tracer import StepTracer

FLUSH_SECONDS = 5.0
REMOTE_FLUSH_SECONDS = 45.0
"""On a remote file system each flush uploads the whole file again."""

POOLS = "measuring the pool"
REPLAYS = "replays of failed steps"
SCALARS = "peaks as scalars"
POST_MORTEMS = "post-mortems of failed allocations"
FIXES = "simulations of fixes"
ABANDONED = "removing directories of killed processes"
COUNTERS = "counters of models, traces and dataset caches"
DRIVER = "figures of the GPU driver"
HOST_PARTS = "parts of host memory"

_NO_FIGURES = DriverFigures()


@dataclasses.dataclass
class _OpenStep:
    step: int
    phase: Phase
    epoch: int
    began: float


class _Sample(NamedTuple):
    """A sample's row in the buffer, and bytes in use and peak by device."""

    row: int
    in_use_bytes: Mapping[str, int]
    peak_bytes: Mapping[str, int]


class Recording:
    """Samples steps, traces some of them and writes the results.

    The training's thread begins and ends steps; everything that takes time runs on the background thread, which holds
    a recording only weakly.

    Args:
        settings: Checked arguments of the recorder.
        devices: The devices to record.
        watch: Observer of the model's layers.
        faults: Where parts that fail are reported.

    Attributes:
        on_tick: Called every few seconds on the background thread.
    """

    def __init__(
        self, settings: Settings, devices: Sequence[allocator.Device], watch: LayerWatch, faults: Faults
    ) -> None:
        self._settings = settings
        self._devices = devices
        self._names = tuple(device.name for device in devices)
        self._capacities = [MISSING if device.capacity_bytes is None else device.capacity_bytes for device in devices]
        self._watch = watch
        self._faults = faults
        self._buffer = SampleBuffer(self._names)
        self._clock = Clock()
        self._counters = CounterRows()
        self._counted = False
        self._scalars = PeakScalars() if settings.scalars else None
        self._files = RunFiles(settings, faults)
        self._open: _OpenStep | None = None
        self._paused = False
        self._ending = False
        self.on_tick: Job = lambda: None
        self._next_watch = 0.0
        self._host = HostMemory()
        self._driver = Driver({device.name: device.pci_bus_id for device in devices if device.pci_bus_id})
        interval = REMOTE_FLUSH_SECONDS if settings.remote else FLUSH_SECONDS
        self._background = Background(self._tick, self._write_out, interval)
        self._polling = Background(self._poll, self._poll, POLL_SECONDS)
        self._background.submit(functools.partial(faults.run, ABANDONED, remove_abandoned))
        # Not opened here: by then a dropped recorder of the same run is closed.
        self._background.submit(self._files.open)

    def begin(self) -> None:
        """Set up the parts that may report faults: notes are recorded from now on."""
        pinned = [PINNED] * any(name.startswith("GPU") for name in self._names)
        self._maps = MemoryMaps([*self._names, *pinned], self._faults.warn)
        self._stalled = StalledMaps(self._names, self._maps)
        self._oom = OomWatch(self._devices, self._watch, self._stalled, weakly(self._write_oom))
        self._tracer = StepTracer(self._settings, self._devices, self._watch, self._faults, self._oom, self._maps)
        overhead, spend = self._settings.overhead, self._tracer.schedule.cost
        self._step_ends = StepEnds(self._names, self._maps, self._buffer, overhead, spend)
        self._host_parts = HostParts(self._maps, overhead, spend)
        self._watch.install()
        self._faults.run(POST_MORTEMS, self._oom.install)
        if self._driver.answers:
            self._driver.read()
        self.check_layers(0)

    def pause(self) -> None:
        """Write what was recorded and close every file until `resume`, without waiting."""
        if self._paused:
            return
        self._paused = True
        self._host.close()
        self._polling.rest(self._poll)
        self._background.rest(self._rest)

    def resume(self) -> None:
        """Go on after `pause`."""
        if not self._paused:
            return
        self._paused = False
        self._host.open()
        self._faults.run(POST_MORTEMS, self._oom.install)
        self._polling.wake(self._poll)
        self._background.wake(self._wake)

    def end(self) -> None:
        """End the session, without waiting until everything is written."""
        if self._paused:
            self._background.submit(self._files.end)
        self._ending = True
        self.pause()

    def abandon(self) -> None:
        """Let go of everything in a forked child."""
        self._files.abandon()
        self._host.close()

    def submit(self, job: Job) -> None:
        """Queue a job for the background thread. Safe in a finalizer."""
        self._background.submit(job)

    def drain(self) -> None:
        """Wait until everything recorded so far is written, or that takes too long."""
        self._background.drain()

    def note(self, sentence: str) -> None:
        """Keep a sentence in the run."""
        self._background.submit(functools.partial(self._files.write, RunWriter.note, sentence))

    # --- on the training's thread -----------------------------------------------------------------------------------

    @property
    def step_is_open(self) -> bool:
        """Whether a step began and did not end."""
        return self._open is not None

    def before_data(self, phase: Phase) -> None:
        """A phase begins and no batch was requested yet: nothing in use now is a batch of the phase."""
        self._tracer.before_data(phase)

    def check_layers(self, step: int | None = None) -> None:
        """Write the layer table if it changed; by default from the next step on."""
        self._next_watch = time.monotonic() + FLUSH_SECONDS
        table = self._watch.changed_table(self._watch.last_step + 1 if step is None else step)
        if table is not None:
            self._tracer.schedule.changed()
            self._background.submit(functools.partial(self._write_table, table))

    def begin_step(self, step: int, phase: Phase, epoch: int) -> None:
        """Begin a step; none may be open."""
        if time.monotonic() >= self._next_watch and phase == "train":
            self.check_layers(step)
        self._stalled.clear()
        self._open = _OpenStep(step, phase, epoch, time.perf_counter())
        batches = self._tracer.first_batches()
        if batches is not None:
            self._background.submit(
                functools.partial(self._faults.run, TRACING, self._tracer.note_first_batches, *batches)
            )
        self._tracer.begin(step, phase)
        for name in self._names:
            self._faults.run(SAMPLES, allocator.reset_peak, name)

    def end_step(self) -> None:
        """End the open step, if there is one, and keep its sample."""
        opened, self._open = self._open, None
        if opened is None:
            return
        self._faults.run(POST_MORTEMS, self._oom.step_ended)
        wall_time = self._clock.now()
        sample: _Sample | None = self._faults.run(SAMPLES, self._sample, opened, wall_time)
        seconds = time.perf_counter() - opened.began
        if self._tracer.compiled:
            self.check_layers(opened.step)  # the first step builds the optimizer
        peak = 0 if sample is None else max(sample.peak_bytes.values(), default=0)
        if sample is not None:
            self._oom.sampled(opened.step, opened.phase, sample.peak_bytes)
        traced = self._tracer.end(opened.step, opened.phase, wall_time, seconds, peak)
        self._faults.run(COUNTERS, self._count, opened.step)
        if traced is not None and sample is not None:
            self._background.submit(functools.partial(self._measure, sample, traced.end))
        if traced is not None:
            self._background.submit(functools.partial(self._work_through, traced))
        if opened.phase == "train":
            self._watch.last_step = max(self._watch.last_step, opened.step)
        if sample is not None and sample.row >= 0 and (sample.row + 1) % MAX_SAMPLE_ROWS == 0:
            self._background.submit(self._write_samples)  # samples of fast steps do not wait in memory for the tick

    def on_error(self, error: BaseException) -> bool:
        """Write a post-mortem if the exception means that memory ran out, and return whether it does."""
        opened = self._open
        if opened is None:
            return bool(self._faults.run(POST_MORTEMS, self._oom.on_error, error, None, None))
        traced = replayed = None
        if self._tracer.tracing and self._faults.run(POST_MORTEMS, self._oom.concerns, error):
            traced = self._tracer.end(
                opened.step, opened.phase, self._clock.now(), time.perf_counter() - opened.began, 0
            )
            traced = None if traced is None else dataclasses.replace(traced, interrupted=True)
            if self._background.drain() and traced is not None:  # the chunks of earlier steps are known
                replayed = functools.partial(self._faults.run, REPLAYS, self._tracer.failed_step, traced)
        for_memory = self._faults.run(POST_MORTEMS, self._oom.on_error, error, opened.step, opened.phase, replayed)
        if traced is not None:
            self._background.submit(functools.partial(self._work_through, traced))
        if for_memory:
            self._background.submit(self._simulate_fixes)
        return bool(for_memory)

    def _count(self, step: int) -> None:
        """Keep the program's counters that changed."""
        if program_counters.due or not self._counted:
            self._counted = True
            self._counters.add(step, program_counters.values())

    def _write_oom(self, oom: Oom, wait: bool) -> None:
        def write() -> None:
            self._files.write(RunWriter.oom, oom)
            self._files.flush()

        self._background.submit(write)
        if wait:
            self._background.drain()

    def _sample(self, opened: _OpenStep, wall_time: float) -> _Sample:
        phase = PHASES.index(opened.phase)
        resident = None
        if self._host_parts.due() and not self._tracer.tracing:  # reading tf.data's figures runs an operation
            resident = self._faults.run(HOST_PARTS, self._host_parts.measure, opened.step, phase, wall_time)
        if resident is None:
            resident = self._host.resident_bytes()
        row = [opened.step, phase, opened.epoch, resident]
        peaks, in_use = {}, {}
        for name, capacity in zip(self._names, self._capacities, strict=True):
            current, peak = allocator.memory_info(name)
            driver = self._driver.figures.get(name) or _NO_FIGURES
            row += (current, peak, capacity, driver.process_bytes, driver.used_bytes, driver.total_bytes)
            row += (MISSING, MISSING)  # the pool and its largest free chunk, which `SampleBuffer.measure` fills in
            peaks[name], in_use[name] = peak, current
        sample = _Sample(self._buffer.append(wall_time, tuple(row)), in_use, peaks)
        if self._step_ends.due():
            dumps = self._step_ends.read()
            measure = functools.partial(self._step_ends.measure_read, sample.row, sample.in_use_bytes, dumps)
            self._background.submit(functools.partial(self._faults.run, POOLS, measure))
        return sample

    # --- on the background thread -----------------------------------------------------------------------------------

    def _tick(self) -> None:
        self._faults.run("noticing interrupted trainings", self.on_tick)
        if self._driver.answers:
            self._faults.run(DRIVER, self._driver.read)
        opened = self._open
        step, phase = (None, None) if opened is None else (opened.step, opened.phase)
        self._faults.run(POST_MORTEMS, self._oom.tick, step, phase)
        self._write_out()

    def _poll(self) -> None:
        opened = self._open
        if opened is None or time.perf_counter() - opened.began <= POLL_SECONDS:
            return
        # An allocator without statistics is a fault of the samples, and is logged as that only.
        if all(self._faults.run(SAMPLES, allocator.memory_info, name) is not None for name in self._names):
            self._faults.run(POST_MORTEMS, self._stalled.poll)

    def _simulate_fixes(self) -> None:
        self._write_out()  # the end of the process does not wait for fixes that take longer
        oom = self._faults.run(FIXES, self._oom.simulated)
        if oom is not None:
            self._files.write(RunWriter.oom, oom)
            self._files.flush()

    def _measure(self, sample: _Sample, dumps: Mapping[str, bytes | None]) -> None:
        self._faults.run(POOLS, self._step_ends.measure, sample.row, sample.in_use_bytes, dumps)

    def _write_out(self) -> None:
        self._write_samples()
        if not self._faults.stopped(FILES):
            self._files.flush()

    def _write_samples(self) -> None:
        samples = self._faults.run(SAMPLES, self._buffer.take)
        dropped = self._buffer.take_dropped()
        parts = self._faults.run(HOST_PARTS, self._host_parts.take)
        if self._faults.stopped(FILES):
            return
        if samples is not None:
            self._files.write(RunWriter.samples, samples)
            if self._scalars is not None:
                self._write_scalars(self._faults.run(SCALARS, self._scalars.add, samples))
        if parts is not None:
            self._files.write(RunWriter.host, parts)
        counters = self._faults.run(COUNTERS, self._counters.take)
        if counters is not None:
            self._files.write(RunWriter.counters, counters)
        if dropped:
            self._faults.warn(
                f"{SAMPLES} stopped for {counted(dropped, 'step')}: earlier ones could not be written in time"
            )

    def _end_epoch(self) -> None:
        if self._scalars is not None:
            self._write_scalars(self._faults.run(SCALARS, self._scalars.end_epoch))
            self._files.flush()

    def _write_scalars(self, points: Sequence[ScalarPoint] | None) -> None:
        for point in points or ():
            self._files.write(lambda writer, point: writer.scalar(*point), point)

    def _work_through(self, traced: TracedStep) -> None:
        result = self._faults.run(TRACING, self._tracer.work_through, traced)
        if result is None:
            return
        for snapshot in result.snapshots:
            self._files.write(RunWriter.snapshot, snapshot)
        for memory_map in result.maps:
            self._files.write(RunWriter.memory_map, memory_map)
        for timeline in result.timelines:
            self._files.write(RunWriter.timeline, timeline)
        for requests in result.requests:
            self._oom.remember_requests(requests)
            self._files.write(RunWriter.requests, requests)
        completed = self._faults.run(TABLE, self._watch.completed_table)  # the trace may tell the batch size
        if completed is not None:
            self._write_table(completed)

    def _write_table(self, table: LayerTable) -> None:
        self._files.write(RunWriter.layer_table, table)

    def _rest(self) -> None:
        try:
            self._tick()
            self._end_epoch()
            if self._ending:
                self._files.end()
        finally:
            self._files.rest()
            self._faults.clean_up(POST_MORTEMS, self._oom.remove)
            self._faults.clean_up(DRIVER, self._driver.close)

    def _wake(self) -> None:
        self._files.wake()
        self._faults.run(DRIVER, self._driver.open)
