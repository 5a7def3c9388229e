"""`Recording`: the parts of one session, between its start and its end."""

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tb_memplugin.importers import Request
from tb_memplugin.recorder.base import (
    Background,
    Due,
    Faults,
    Job,
    Settings,
    changes,
    remove_abandoned,
    uncounted,
    wait,
    weakly,
)
from tb_memplugin.recorder.devices import (
    PINNED,
    SAMPLE_INTEGERS,
    Clock,
    Driver,
    DriverFigures,
    MemoryMaps,
    OrdinarySteps,
    ResidentMemory,
    SampleBuffer,
)
from tb_memplugin.recorder.devices import statistics as allocator
from tb_memplugin.recorder.failure import POLL_SECONDS, FailureMaps, OomWatch, OwnedMap, Place, RaisedError, Replay
from tb_memplugin.recorder.heap import unreachable
from tb_memplugin.recorder.loop.counters import CounterRows, KeptRows, Value, session_ends
from tb_memplugin.recorder.loop.output import Output
from tb_memplugin.recorder.tracing import HostBuffers, StepEnds, StepTracer, TracedStep
from tb_memplugin.recorder.watch import OBSERVING, TABLE, LayerWatch, program_counters
from tb_memplugin.schema import MISSING, PHASES, SAMPLES, FailedDuring, MemoryMap, Oom, Phase, TraceFacts, is_gpu
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

_NO_FIGURES = DriverFigures()
_RESIDENT = SAMPLE_INTEGERS.index("host_resident_bytes")


@dataclasses.dataclass
class _OpenStep:
    """The running step; `Recording.ordinary` has its number, which may increase while this object stays."""

    phase: Phase
    epoch: int
    began: float  # by `time.perf_counter`


class _Sample(NamedTuple):
    """A sample's number in the buffer, its row, and bytes in use and peak by device."""

    number: int
    row: tuple[int, ...]
    in_use_bytes: Mapping[str, int]
    peak_bytes: Mapping[str, int]


class Recording:
    """Samples steps, traces some of them and writes the results. The training's thread begins and ends steps; all
    that takes time runs on the background thread, which holds a recording only weakly."""

    @uncounted
    def __init__(
        self, settings: Settings, devices: Sequence[allocator.Device], watch: LayerWatch, faults: Faults
    ) -> None:
        self._host = ResidentMemory()
        self._settings = settings
        self._devices = devices
        self._names = tuple(device.name for device in devices)
        self.ordinary = OrdinarySteps(self._names, self._host)
        self._capacities = [MISSING if device.capacity_bytes is None else device.capacity_bytes for device in devices]
        self._totals = {device.name: device.total_bytes for device in devices if device.total_bytes is not None}
        self._watch = watch
        self._faults = faults
        self._buffer = SampleBuffer(self._names)
        self._clock = Clock()
        self._counters = CounterRows()
        self._counted = False
        self._number = session_ends.begin()
        self._earlier: Sequence[Value] = ()
        self._kept = KeptRows(settings.overhead)
        self._in_use: Mapping[str, int] = {}  # at the end of the last step
        self._chunks = 0  # of samples, that were queued for writing
        self._last: tuple[float, tuple[int, ...]] | None = None  # the last sample's wall time and row
        self._output = Output(settings, faults, self._buffer, self._counters)
        self._open: _OpenStep | None = None
        self._paused = False
        self._begun = self._ending = False
        self._has_breakdown = False
        self.on_tick: Job = lambda: None  # called every few seconds on the background thread
        self.uses_ordinary = False  # whether `ordinary.next` is asked before each pair of `end_step` and `begin_step`
        self._next_watch = 0.0
        self._polled: float | None = None
        self._driver = Driver({device.name: device.pci_bus_id for device in devices if device.pci_bus_id})
        interval = REMOTE_FLUSH_SECONDS if settings.remote else FLUSH_SECONDS
        self._background = Background(self._tick, interval)
        self._polling = Background(self._poll, POLL_SECONDS)
        self.submit(functools.partial(self._faults.run, ABANDONED, remove_abandoned))
        # Not opened here: by then a dropped recorder of the same run is closed.
        self.submit(self._output.open)

    @uncounted
    def begin(self) -> None:
        """Set up the parts that may report faults: notes are recorded from now on."""
        pinned = [PINNED] * any(map(is_gpu, self._names))
        self._maps = MemoryMaps([*self._names, *pinned], self._faults.warn)
        self._stalled = FailureMaps(self._devices, self._maps)
        self._oom = OomWatch(self._watch, self._stalled, weakly(self._write_oom))
        self._tracer = StepTracer(self._settings, self._devices, self._watch, self._faults, self._oom, self._maps)
        overhead, spend = self._settings.overhead, self._tracer.schedule.add_cost
        self._step_ends = StepEnds(self._names, self._maps, self._buffer, overhead, spend)
        self._host_buffers = HostBuffers(self._maps, overhead, spend)
        self._watch.install()
        self._faults.run(DRIVER, self._open_driver)
        self._begun = True
        self.check_layers(0)

    def _open_driver(self) -> None:
        self._driver.open()
        if self._driver.answers:
            self._driver.read()

    @uncounted
    def pause(self) -> None:
        """Write what was recorded and close every file until `resume`, without waiting."""
        if self._paused:
            return
        self._paused = True
        self._faults.run(COUNTERS, self._note_end)
        self.ordinary.forbid()
        self._host.close()
        self._polling.rest(self._poll)
        self._background.rest(self._rest)

    @uncounted
    def resume(self) -> None:
        if not self._paused:
            return
        self._paused = False
        self._host.open()
        self._polling.wake(self._poll)
        self._background.wake(self._wake)

    def end(self) -> None:
        """End the session, without waiting until everything is written."""
        self._faults.run(POST_MORTEMS, self._oom.say_survived)
        if self._paused:
            self.submit(self._output.end)
        self._ending = True
        self.pause()

    def abandon(self) -> None:
        self.ordinary.forbid()
        self._output.abandon()
        self._host.close()

    def submit(self, job: Job) -> None:
        self._background.submit(job)

    def _submit_step(self, part: str, step: int, job: Callable[..., None], *args: object) -> None:
        self.submit(functools.partial(self._faults.run_step, part, step, job, *args))

    def drain(self) -> bool:
        """Wait until everything recorded so far is written; False if that takes too long."""
        self.submit(self._output.write_out)
        return wait()

    def note(self, sentence: str) -> None:
        self.submit(functools.partial(self._output.write, RunWriter.note, sentence))

    # --- on the training's thread -----------------------------------------------------------------------------------

    @property
    def step_is_open(self) -> bool:
        return self._open is not None

    def before_data(self, phase: Phase) -> None:
        """A phase begins and no batch was requested yet: nothing in use now is a batch of the phase."""
        self._tracer.before_data(phase)

    @uncounted
    def check_layers(self, step: int | None = None) -> None:
        """Write the layer table if it changed; by default from the next step on."""
        self._next_watch = time.monotonic() + FLUSH_SECONDS
        table = self._watch.changed_table(self._watch.last_step + 1 if step is None else step)
        if table is not None:
            self._tracer.schedule.changed()
            self.submit(functools.partial(self._output.write, RunWriter.layer_table, table))

    def begin_step(self, step: int, phase: Phase, epoch: int) -> None:
        """Begin a step; none may be open."""
        if time.monotonic() >= self._next_watch and phase == "train":
            self.check_layers(step)
        self._stalled.clear()
        self.ordinary.begin(step, self._clock.now())
        self._open = _OpenStep(phase, epoch, time.perf_counter())
        batches = self._tracer.first_batches()
        if batches is not None:
            self._submit_step(OBSERVING, step, self._tracer.analysis.note_first_batches, *batches)
        self._tracer.begin(step, phase)
        for name in self._names:
            self._faults.run(SAMPLES, allocator.reset_peak, name)
        if self.uses_ordinary:
            self._allow_ordinary(step, phase)

    def _allow_ordinary(self, step: int, phase: Phase) -> None:
        """Let steps end and begin by themselves until a part wants more of them than a sample."""
        seen = changes.last  # before looking, so that no change is lost
        opened, last = self._open, self._last
        if opened is None or last is None or self._oom.waits or self._tracer.tracing or self._tracer.compiled:
            return
        statistics = None if self._faults.stopped(SAMPLES) else allocator.statistics()
        if statistics is None:
            return
        traced = self._tracer.due(step, phase)
        seconds = min(
            FLUSH_SECONDS,
            program_counters.due_in(),
            self._host_buffers.due_in(),
            self._step_ends.due_in(),
            self._next_watch - time.monotonic() if phase == "train" else math.inf,
            traced.seconds,
        )
        due = Due(seconds, min(traced.step, step + MAX_SAMPLE_ROWS), traced.peak_bytes)
        read_at, row = last
        keep = self._buffer.like((step, PHASES.index(phase), opened.epoch, *row[_RESIDENT:]))
        self.ordinary.allow(seen, due, self._clock.behind, (read_at, row[_RESIDENT]), statistics, keep)

    def _take_ordinary(self, opened: _OpenStep) -> None:
        """Make up for the steps since `_allow_ordinary`."""
        passed = self.ordinary.take()
        if not passed.steps:
            return
        self._clock.advance_to(self.ordinary.began)
        now = time.perf_counter()
        passed = passed._replace(seconds=min(passed.seconds, now - opened.began))  # the clock may have been set
        opened.began = max(opened.began, now - max(0.0, self._clock.now() - self.ordinary.began))
        self._oom.steps_ended(self.ordinary.began - self._clock.behind)
        self._tracer.passed(opened.phase, passed)

    @uncounted
    def end_step(self) -> None:
        opened, self._open = self._open, None
        if opened is None:
            return
        self._take_ordinary(opened)
        step = self.ordinary.step
        self._faults.run(POST_MORTEMS, self._oom.step_ended)
        wall_time = self._clock.now()
        sample = self._faults.run(SAMPLES, self._sample, opened, step, wall_time)
        seconds = time.perf_counter() - opened.began
        if self._tracer.compiled:
            self.check_layers(step)  # the first step builds the optimizer
        peak = 0 if sample is None else max(sample.peak_bytes.values(), default=0)
        traced = self._tracer.end(step, opened.phase, wall_time, seconds, peak)
        self._faults.run(COUNTERS, self._count, step, MISSING if sample is None else sample.row[_RESIDENT])
        if traced is not None and sample is not None:
            self._submit_step(POOLS, step, self._step_ends.measure, sample.number, sample.in_use_bytes, traced.end)
        if traced is not None:
            self.submit(functools.partial(self._work_through, traced))
        if opened.phase == "train":
            self._watch.last_step = max(self._watch.last_step, step)
        self._last = None if sample is None else (wall_time, sample.row)
        self._in_use = {} if sample is None else sample.in_use_bytes
        chunks = 0 if sample is None else (sample.number + 1) // MAX_SAMPLE_ROWS
        if chunks > self._chunks:  # samples of fast steps do not wait in memory for the tick
            self._chunks = chunks
            self.submit(self._output.write_samples)

    def look_back(self, since: float) -> None:
        self._oom.look_back(since)

    def on_failure(self, raised: RaisedError) -> None:
        """Write the post-mortem of an allocation that failed in the open step, as its error ends the step."""
        opened = self._open
        if opened is None:
            self.on_failure_outside(raised)
            return
        self._take_ordinary(opened)
        step = self.ordinary.step
        place = Place(step, opened.phase, "step")
        seconds = time.perf_counter() - opened.began
        traced = None
        if self._tracer.tracing:
            traced = self._tracer.end(step, opened.phase, self._clock.now(), seconds, 0)
        if traced is None:
            self._write_failure(raised, place)
            return
        failed = dataclasses.replace(traced, interrupted=True)

        def replay(device: str, memory_map: MemoryMap | None, request: Request, now: TraceFacts) -> OwnedMap | None:
            nonlocal failed  # so that its analysis finds the same owners
            replayed = self._tracer.analysis.failed_step
            found = self._faults.run(REPLAYS, replayed, failed, device, memory_map, request, now)
            failed, owned = found or (failed, None)
            return owned

        self._write_failure(raised, place, replay if self.drain() else None)  # with the chunks of earlier steps
        self.submit(functools.partial(self._work_through, failed))

    def on_failure_outside(self, raised: RaisedError) -> None:
        """Write the post-mortem of an allocation that failed in none of the steps."""
        last = self._watch.last_step if self._open is None else self.ordinary.step
        during: FailedDuring = "building" if raised.builds else "between_steps"
        self._write_failure(raised, Place(None if last < 0 else last, None, during))

    def _write_failure(self, raised: RaisedError, place: Place, replay: Replay | None = None) -> None:
        self._faults.run(POST_MORTEMS, self._oom.on_error, raised, place, replay)

    def _count(self, step: int, resident_bytes: int) -> None:
        """Keep the program's counters that changed, and once those of earlier sessions."""
        cost = self._kept.look(resident_bytes)
        if program_counters.due_in() > 0.0 and self._counted and not cost:
            return
        if not self._counted:
            self._counted = True
            for values in session_ends.earlier(self._number):
                self._counters.add(step, values)
                self._earlier = values
        cost += program_counters.models.find_unreachable(self._settings.overhead, unreachable)
        self._tracer.schedule.add_cost(cost)
        self._counters.add(step, [*program_counters.values(), *self._kept.values, *self._earlier])

    def _note_end(self) -> None:
        """Note for later sessions what this one leaves in use beside its model."""
        if self._in_use:
            own = self._watch.model_bytes()
            # On the CPU, TensorFlow may use a NumPy array's memory for a weight, which its allocator does not know.
            left = {name: max(0, size - own.get(name, 0)) for name, size in self._in_use.items()}
            session_ends.note(self._number, left)

    def _write_oom(self, oom: Oom, waits: bool) -> None:
        def write() -> None:
            self._output.write(RunWriter.oom, oom)
            self._output.flush()

        self.submit(write)
        if waits:
            self.drain()

    def _sample(self, opened: _OpenStep, step: int, wall_time: float) -> _Sample:
        buffers = None
        if self._host_buffers.due_in() <= 0.0 and not self._tracer.tracing:  # reading tf.data's runs an operation
            buffers = self._faults.run(HOST_BUFFERS, self._host_buffers.read)
        row = [step, PHASES.index(opened.phase), opened.epoch, self._host.resident_bytes()]
        row += buffers or (MISSING, MISSING)
        peaks, in_use = {}, {}
        for name, capacity in zip(self._names, self._capacities, strict=True):
            current, peak = allocator.memory_info(name)
            driver = self._driver.figures.get(name) or _NO_FIGURES
            total = self._totals.get(name, driver.total_bytes)
            row += (current, peak, capacity, driver.process_bytes, driver.used_bytes, total)
            row += (MISSING, MISSING)  # the pool and its largest free chunk, which `SampleBuffer.measure` fills in
            peaks[name], in_use[name] = peak, current
        sample = _Sample(self._buffer.append(wall_time, tuple(row)), tuple(row), in_use, peaks)
        if self._step_ends.due_in() <= 0.0:
            dumps = self._step_ends.read()
            self._submit_step(POOLS, step, self._step_ends.measure_read, sample.number, sample.in_use_bytes, dumps)
        return sample

    # --- on the background thread -----------------------------------------------------------------------------------

    def _tick(self) -> None:
        if not self._begun:
            return
        self._faults.run("noticing interrupted trainings", self.on_tick)
        if self._driver.answers:
            self._faults.run(DRIVER, self._driver.read)
        opened = self._open
        step, phase = (None, None) if opened is None else (self.ordinary.step, opened.phase)
        began = self.ordinary.began - self._clock.behind if self.ordinary.passed else 0.0
        self._faults.run(POST_MORTEMS, self._oom.tick, step, phase, began)
        self._output.write_out()

    def _poll(self) -> None:
        began = None if self._open is None else self.ordinary.began
        before, self._polled = self._polled, began
        if began is None or began != before:
            return  # the step has not run for as long as from one poll to the next
        # An allocator without statistics is a fault of the samples, and is logged as that only.
        self._faults.run(SAMPLES, lambda: [allocator.memory_info(name) for name in self._names])
        if self._faults.stopped(SAMPLES):
            return
        self._faults.run(POST_MORTEMS, self._stalled.poll)

    def _work_through(self, traced: TracedStep) -> None:
        is_first = not self._has_breakdown
        if is_first:
            self._output.write(RunWriter.analyzing, traced.step)  # readers find nothing but this so far
        result = self._tracer.work_through(traced)
        self._output.write_traced(result)
        completed = self._faults.run_step(TABLE, traced.step, self._watch.completed_table)
        if completed is not None:
            self._output.write(RunWriter.layer_table, completed)
        if is_first:
            self._output.write(RunWriter.analyzing, None)
            self._has_breakdown = bool(result.snapshots)

    def _rest(self) -> None:
        try:
            self._tick()
            self._output.end_epoch()
            if self._ending:
                self._output.end()
            else:
                self._output.roll_up()
        finally:
            self._output.rest()
            self._faults.clean_up(DRIVER, self._driver.close)

    def _wake(self) -> None:
        self._output.wake()
        self._faults.run(DRIVER, self._driver.open)
