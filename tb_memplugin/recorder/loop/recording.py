"""`Recording`: samples the steps of one run, traces some of them and has the results written."""

import atexit
import contextlib
import dataclasses
import functools
import logging
import math
import os
import shlex
import sys
import threading
import time
import weakref
from collections.abc import Callable, Collection
from typing import Any

from tb_memplugin.environment import shown
from tb_memplugin.importers import Request
from tb_memplugin.recorder.base import (
    FOREIGN_SECONDS,
    Background,
    Due,
    Faults,
    Job,
    Settings,
    abandon_in_child,
    changes,
    end_foreign_calls,
    is_batch_size,
    is_private,
    is_step,
    remove_abandoned,
    submit,
    wait,
    weakly,
)
from tb_memplugin.recorder.devices import (
    PINNED,
    FastPath,
    MemoryMaps,
    Sample,
    Sampler,
    choose_devices,
)
from tb_memplugin.recorder.devices import statistics as allocator
from tb_memplugin.recorder.failure import (
    POLL_SECONDS,
    FailureMaps,
    OomWatch,
    Place,
    RaisedError,
    raised_errors,
    raised_now,
    uncaught_failures,
)
from tb_memplugin.recorder.helper import TRACING, Dumps, OwnedMap, TracedStep
from tb_memplugin.recorder.loop.output import Output, ProgramCounts, versions
from tb_memplugin.recorder.tracing import HostBuffers, StepEnds, StepTracer
from tb_memplugin.recorder.watch import OBSERVING, TABLE, LayerWatch, batch_notes, program_counters
from tb_memplugin.schema import (
    MISSING,
    PHASES,
    RECORDING,
    SAMPLES,
    WRONG_NUMBERS,
    WRONG_PHASES,
    MemoryMap,
    Oom,
    Phase,
    TraceFacts,
    format_bytes,
    is_gpu,
)
from tb_memplugin.storage.write import MAX_SAMPLE_ROWS, RunWriter, recordings

logger = logging.getLogger("tb_memplugin")

FLUSH_SECONDS = 5.0
REMOTE_FLUSH_SECONDS = 45.0  # on a remote file system each flush uploads the whole file again

MAX_PAUSED = 3  # most paused recordings that keep their helper process, the last ones

POOLS = "measuring the pool"
REPLAYS = "replays of failed steps"
POST_MORTEMS = "post-mortems of failed allocations"
ABANDONED = "removing directories of killed processes"
COUNTERS = "counters of models, traces and dataset caches"
DRIVER = "figures of the GPU driver"
HOST_BUFFERS = "buffers in host memory"
_STEPS = "must be integers from 0 to 2**53 - 1"
_INCOMPLETE = "the memory run may be incomplete: its last records could not be written in time"

_by_place: "weakref.WeakValueDictionary[tuple[str, str], Recording]" = weakref.WeakValueDictionary()
"""The last one by run directory, as in `Settings`, and worker name; the active ones are closed at
the process's end."""


@dataclasses.dataclass
class _OpenStep:
    """The running step; `Recording.ordinary` has its number, which may increase while this object
    stays."""

    phase: Phase
    epoch: int
    began: float  # by `time.perf_counter`


class Recording:
    """One process's recording into one run. The program's thread begins and ends steps; all that
    takes time runs on the background thread, which holds a recording only weakly. One that is
    dropped without `close` pauses until the next one is made: memory may run out after the
    training. One that still exists when the process ends is closed then."""

    closed = False
    told = False  # whether `tell` has nothing more to say
    _started = False  # whether the parts are there that `start` makes

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._devices, self._unavailable = choose_devices(settings.devices)
        self.faults = Faults(weakly(self._note))
        self.layers = LayerWatch(self.faults, settings.source_lines)
        self._epoch = MISSING
        self.paused = False  # whether nothing is observed until `observe` or the next step
        self._pausing = threading.RLock()
        self._guards = 0  # blocks that are running, at whose end `leave_step` is called
        self._guarded_thread = 0  # on which they run
        self._raised: RaisedError | None = None  # the last failed allocation in them
        self._open: _OpenStep | None = None
        self._sample: Sample | None = None  # of the last step
        self._chunks = 0  # of samples, that were queued for writing
        self._ending = self._has_breakdown = False
        self._on_tick: Job = lambda: None  # called every few seconds on the background thread
        self._uses_ordinary = False  # whether `ordinary.next` is asked before `begin_step`
        self._next_watch = 0.0
        self._polled: float | None = None
        raised_errors.add(self)
        if settings.at_failure is not None:
            uncaught_failures.add(self)

    # --- the recording's life

    def start(self) -> None:
        if not self._started and not self.closed:
            self.faults.run(RECORDING, self._start)

    def _start(self) -> None:
        """Start. An open recording of the same run is closed: a notebook cell may run again."""
        place = self.settings.log_dir, self.settings.worker
        predecessor, _by_place[place] = _by_place.get(place), self
        recordings.register(place[0], functools.partial(_write, place))
        changes.note()
        if predecessor is not None and not predecessor.closed:
            if not predecessor.paused:
                predecessor.faults.warn("a newer recorder of this process took over the run")
            predecessor.close()
        try:
            self._make_parts()
        except BaseException:
            self._started = False  # it can neither record nor end
            self.layers.remove()
            raise
        for sentence in self._unavailable:
            self.faults.warn(sentence)
        atexit.unregister(_close_all)
        atexit.register(_close_all)  # so that it runs before what TensorFlow has registered so far
        abandon_in_child(self)

    def _make_parts(self) -> None:
        settings, faults = self.settings, self.faults
        self._sampler = Sampler(self._devices)
        self.ordinary = self._sampler.ordinary
        self._counts = ProgramCounts(settings.overhead)
        self._output = Output(settings, faults, self._sampler.buffer, self._counts.rows)
        # kept from now on: what reading them leaves would be collected on the background thread
        versions()
        submit(functools.partial(faults.run, ABANDONED, remove_abandoned))
        # not opened here: by then a dropped recorder of the same run is closed
        submit(self._output.open)
        # from now on notes are recorded: the following parts may report faults
        self._started = True
        names = self._sampler.names
        maps = MemoryMaps([*names, *[PINNED] * any(map(is_gpu, names))], faults.warn)
        self._stalled = FailureMaps(self._devices, maps)
        self.tracer = StepTracer(settings, self._devices, self.layers, faults, maps)
        if settings.traces and self._devices:
            submit(functools.partial(faults.run, TRACING, self.tracer.helper.start))
        paused = [
            one for one in list(_by_place.values()) if one is not self and one.active and one.paused
        ]
        for one in paused[: max(0, len(paused) - MAX_PAUSED)]:
            submit(one.tracer.helper.close)
        self.oom = OomWatch(self.layers, self._stalled, self.tracer.helper, weakly(self._write_oom))
        spend = self.tracer.schedule.add_cost
        self._step_ends = StepEnds(maps, self._sampler.buffer, settings.overhead, spend)
        self._host_buffers = HostBuffers(maps, settings.overhead, spend)
        self.layers.install()
        self._open_driver()
        faults.run(DRIVER, self._sampler.driver.read)
        seconds = REMOTE_FLUSH_SECONDS if settings.remote else FLUSH_SECONDS
        self._periodic = Background(self._tick, seconds), Background(self._poll, POLL_SECONDS)
        self._check_table(0)

    def _abandon(self) -> None:
        """End the recording in a forked child: nothing is written, removed or waited for."""
        self.closed, self.paused = True, False
        self._pausing = threading.RLock()
        self.layers.abandon()
        self._guards, self._raised = 0, None
        if self._started:
            self._started, self._open = False, None
            self.ordinary.disarm()
            self._output.abandon()
            self._sampler.host.close()

    def close(self) -> None:
        if not self.closed:
            self.close_without_waiting()
            if self._started and not wait():
                self.faults.warn(_INCOMPLETE)
            self.tell()

    def tell(self) -> None:
        """Say once, on standard error, where the run is and what it shows, unless the package's
        warnings are off."""
        told, self.told = self.told, True
        if not told:
            self.faults.clean_up("the last line", self._tell)

    def _tell(self) -> None:
        peak, fatal = self._output.peak_bytes if self._started else None, self.fatal
        run = self.settings.log_dir
        if (
            is_private(run)
            or (peak is None and fatal is None)
            or not logger.isEnabledFor(logging.WARNING)
        ):
            return
        run = shown(run)
        if fatal is None:
            see = f"tensorboard --logdir {shlex.quote(os.path.dirname(run) or '.')}"
            line = f"Memory recorded in {run}: peak {format_bytes(peak)}. {see}"
        else:
            where = " ".join(filter(None, ["Out of memory", fatal.place]))
            line = f"{where}: {fatal.reason.rstrip('.')}. tb-memplugin inspect {shlex.quote(run)}"
        with contextlib.suppress(Exception):
            print(line, file=sys.stderr, flush=True)

    def close_without_waiting(self) -> None:
        self.end_step()
        self.closed = True
        self.faults.clean_up(RECORDING, self._finish)

    def _finish(self) -> None:
        self.layers.remove()
        if self._started:
            self.faults.run(POST_MORTEMS, self.oom.say_survived)
            if self.paused:
                self._write(RunWriter.end)
                submit(self.tracer.helper.close)
            else:
                self._ending = True
                self._rest()
        raised_errors.update()

    def __del__(self) -> None:
        # Runs on any thread, between any two statements, so it only submits a job; the job keeps
        # the recording alive.
        if self._started and not self.closed:
            submit(self._dropped)

    def _dropped(self) -> None:
        """Pause after the last reference is gone; end if the garbage collector cleared weak
        references to it, too."""
        place = self.settings.log_dir, self.settings.worker
        if _by_place.get(place) is self and not self.closed:
            self.end_step()
            self.pause()
            raised_errors.keep(self)
        elif not self.closed:
            self.close_without_waiting()

    @property
    def active(self) -> bool:
        """Whether it is between start and close."""
        return self._started and not self.closed

    def drain(self) -> bool:
        """Wait until everything recorded so far is written; False if that takes too long."""
        if not self.active:
            return True
        submit(self._output.write_out)
        return wait()

    def start_ordinary(self, on_tick: Job) -> FastPath | None:
        """Start; what begins the steps at which nothing else is due, None if nothing is
        recorded."""
        self.start()
        if not self._started:
            return None
        self._on_tick, self._uses_ordinary = on_tick, True
        return self.ordinary

    def pause(self) -> None:
        """Until `observe` or the next step, observe nothing and keep no file open; write what was
        recorded soon."""
        with self._pausing:
            if self.active and not self.paused:
                self.paused = True
                self.layers.remove()
                self._rest()

    def _rest(self) -> None:
        """Write what was recorded and close every file until `_wake`, without waiting."""
        if self._sample is not None:
            in_use = self._sample.in_use_bytes
            self.faults.run(
                COUNTERS, lambda: self._counts.note_end(in_use, self.layers.model_bytes())
            )
        self.ordinary.disarm()
        self.faults.clean_up(SAMPLES, self._sampler.host.close)
        submit(self._write_and_rest)
        for one in self._periodic:
            one.set_ticking(False)

    def _resume(self) -> None:
        if not self.paused:
            return
        with self._pausing:
            if not self.paused:
                return
            self.paused = False
            if not self.active:
                self.faults.stop(
                    RECORDING,
                    "it was closed, or a newer recorder of this process took over the run",
                )
                return
            self._wake()
            self.layers.install()

    def _wake(self) -> None:
        self._sampler.host.open()
        submit(self._output.wake)
        submit(self._open_driver)
        for one in self._periodic:
            one.set_ticking(True)

    def _open_driver(self) -> None:
        self.faults.run(DRIVER, self._sampler.driver.open)

    def _pause_without_model(self) -> None:
        if self._started:
            submit(weakly(self._pause_if_unused))

    def _pause_if_unused(self) -> None:
        if self.layers.model_is_gone and self._open is None:
            self.pause()

    def observe(self) -> None:
        self._resume()
        if self.active:
            self.layers.install()

    # --- on the training's thread

    @property
    def may_trace(self) -> bool:
        return self.settings.traces and not self.closed

    def before_data(self, phase: Phase) -> None:
        """A phase begins and no batch was requested yet: nothing in use now is a batch of the
        phase."""
        if self.active:
            self.faults.run(RECORDING, self.tracer.before_data, phase)

    def check_layers(self) -> None:
        """Check whether the layer table changed, as is done every few seconds."""
        if self.active:
            self.faults.run(RECORDING, self._check_table)

    def _check_table(self, step: int | None = None) -> None:
        """Write the layer table if it changed; by default from the next step on."""
        self._next_watch = time.monotonic() + FLUSH_SECONDS
        step = self.layers.last_step + 1 if step is None else step
        table = self.faults.run(TABLE, self.layers.changed_table, step)
        if table is not None:
            self.tracer.schedule.changed()
            self._write(RunWriter.layer_table, table)

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
        self._end_step()
        if not self.active:
            return
        if not is_step(step):
            self._refuse(WRONG_NUMBERS, f"steps {_STEPS}", step=step)
            return
        if phase not in PHASES:
            self._refuse(WRONG_PHASES, f"phases are {', '.join(PHASES)}", phase=phase)
            return
        if batch_size is None and phase == "train":
            batch_size = self.settings.batch_size
        if batch_size is not None and not is_batch_size(batch_size):
            part, rule = "batch sizes with a wrong number", "batch sizes are integers from 1 on"
            self._refuse(part, rule, batch_size=batch_size)
            batch_size = None
        self.layers.step_batch_size = None if batch_size is None else int(batch_size)
        step = int(step)
        if time.monotonic() >= self._next_watch and phase == "train":
            self._check_table(step)
        self._stalled.clear()
        self.ordinary.begin(step, self._sampler.clock.now())
        self._open = _OpenStep(phase, self._epoch, time.perf_counter())
        batches = self.tracer.first_batches()
        if batches is not None:
            self._submit_step(OBSERVING, step, self.tracer.helper.first_batches, *batches)
        self.tracer.begin(step, phase)
        self.faults.run(SAMPLES, self._reset_peaks)
        if self._uses_ordinary:
            self._allow_ordinary(self._open, step)

    def _reset_peaks(self) -> None:
        """Reset the devices' peaks, which the running steps of other recordings have, too."""
        for other in self._others():
            other._sampler.lose(allocator.peaks(other._sampler.names))
        self._sampler.reset_peaks()

    def _others(self) -> "list[Recording]":
        """Other recordings of this process that record now."""
        return [
            one
            for one in list(_by_place.values())
            if one is not self and one.active and not one.paused
        ]

    def _allow_ordinary(self, opened: _OpenStep, step: int) -> None:
        """Let steps end and begin by themselves until a part wants more of them than a sample, or
        another recording begins, which needs the peaks that these steps reset."""
        seen = changes.last  # before looking, so that no change is lost
        busy = self.oom.waits or self.tracer.tracing or self.tracer.compiled
        if busy or self._sample is None or self.faults.stopped(SAMPLES) or self._others():
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
        passed = self.ordinary.drain()
        if not passed.steps:
            return
        clock = self._sampler.clock
        clock.advance_to(self.ordinary.began)
        now = time.perf_counter()
        # the clock may have been set
        passed = passed._replace(seconds=min(passed.seconds, now - opened.began))
        opened.began = max(opened.began, now - max(0.0, clock.now() - self.ordinary.began))
        self.oom.steps_ended(self.ordinary.began - clock.behind)
        self.tracer.passed(opened.phase, passed)

    def end_step(self) -> None:
        self.faults.run(RECORDING, self._end_step)

    def _end_step(self) -> None:
        opened, self._open = self._open, None
        if opened is None:
            return
        self._take_ordinary(opened)
        step = self.ordinary.step
        self.faults.run(POST_MORTEMS, self.oom.step_ended)
        wall_time, tracing = self._sampler.clock.now(), self.tracer.tracing
        sample = self._sample = self.faults.run(SAMPLES, self._sample_step, opened, step, wall_time)
        seconds = time.perf_counter() - opened.began
        if self.tracer.compiled:
            self._check_table(step)  # the first step builds the optimizer
        peak = 0 if sample is None else max(sample.peak_bytes.values(), default=0)
        traced = self.tracer.end(step, opened.phase, wall_time, seconds, peak)
        cost = self.faults.run(COUNTERS, self._counts.count, step, self._sampler.host_grew)
        self.tracer.schedule.add_cost(cost or 0.0)
        if sample is not None and tracing:
            submit(
                functools.partial(
                    self._measure, step, sample, {} if traced is None else traced.end, False
                )
            )
        if traced is not None:
            submit(functools.partial(self._work_through, traced))
        if opened.phase == "train":
            self.layers.last_step = max(self.layers.last_step, step)
        chunks = 0 if sample is None else (sample.number + 1) // MAX_SAMPLE_ROWS
        if chunks > self._chunks:  # samples of fast steps do not wait in memory for the tick
            self._chunks = chunks
            submit(self._output.write_samples)

    def _sample_step(self, opened: _OpenStep, step: int, wall_time: float) -> Sample:
        buffers = None
        # reading tf.data's runs an operation
        if self._host_buffers.due_in() <= 0.0 and not self.tracer.tracing:
            buffers = self.faults.run(HOST_BUFFERS, self._host_buffers.read)
        reads = self._step_ends.due_in() <= 0.0 and not self.tracer.tracing
        waits = reads or self.tracer.tracing
        sample = self._sampler.sample(wall_time, step, opened.phase, opened.epoch, buffers, waits)
        if reads:
            dumps = self.faults.run(POOLS, self._step_ends.read) or {}
            submit(functools.partial(self._measure, step, sample, dumps, True))
        return sample

    # --- failed allocations

    @property
    def fatal(self) -> Oom | None:
        """The failed allocation that ended the program, once the recording is closed."""
        return self.oom.fatal if self._started else None

    def on_uncaught(self, error: BaseException) -> None:
        """Handle an exception that nobody caught and that ends the program, or a cell of
        IPython."""
        call = self.settings.at_failure
        if call is not None and self._started and self.active and self.oom.is_behind(error):
            self.drain()
            self.faults.run("the function for failures", call, error, self.settings.log_dir)

    @property
    def active_since(self) -> tuple[bool, float]:
        """Whether a step is open, and when the last one began."""
        return (self._open is not None, self.ordinary.began) if self._started else (False, 0.0)

    @property
    def guards_this_thread(self) -> bool:
        """Whether a block of a step runs on this thread."""
        return self._guards > 0 and self._guarded_thread == threading.get_ident()

    def enter_step(self) -> None:
        """Begin a block of the open step; pair it with `leave_step`."""
        self._guards += 1
        self._guarded_thread = threading.get_ident()

    def leave_step(self) -> None:
        """End the block. An allocation that failed in it gets its post-mortem now: what the step
        was given is known."""
        self._guards -= 1
        raised, self._raised = self._raised, None
        if raised is not None and self.active:
            self._on_failure(raised)

    def on_raised(self, error: BaseException, request: Request, since: float) -> None:
        """Take a failure whose exception is being made on this thread."""
        raised = raised_now(error, request, self.layers.calling_line)
        if self._guards:
            self._raised = raised
            return
        if not self._started:
            self.start()
            if self._started:
                self.oom.look_back(since)
        if self.active:
            # a callback guards its own steps
            self._on_failure(raised, in_step=not self._uses_ordinary)

    def _on_failure(self, raised: RaisedError, in_step: bool = True) -> None:
        """Write the post-mortem of an allocation that failed, by default in the open step, which
        its error ends."""
        opened = self._open
        if opened is None or not in_step:
            last = self.layers.last_step if opened is None else self.ordinary.step
            place = Place(
                None if last < 0 else last, None, "building" if raised.builds else "between_steps"
            )
            self.faults.run(POST_MORTEMS, self.oom.on_error, raised, place)
            return
        self._take_ordinary(opened)
        step = self.ordinary.step
        place = Place(step, opened.phase, "step")
        traced = None
        if self.tracer.tracing:
            seconds = time.perf_counter() - opened.began
            traced = self.tracer.end(step, opened.phase, self._sampler.clock.now(), seconds, 0)
        if traced is None:
            self.faults.run(POST_MORTEMS, self.oom.on_error, raised, place)
            return
        failed = dataclasses.replace(traced, interrupted=True)

        def replay(
            device: str, memory_map: MemoryMap | None, request: Request, now: TraceFacts
        ) -> OwnedMap | None:
            about = (failed, device, memory_map, request, now, batch_notes.failed)
            return self.faults.run(REPLAYS, self.tracer.helper.failed_step, *about)

        analyzed = self.drain()  # the chunks of earlier steps
        self.faults.run(
            POST_MORTEMS, self.oom.on_error, raised, place, replay if analyzed else None
        )
        submit(functools.partial(self._work_through, failed))

    def _write_oom(self, oom: Oom, waits: bool) -> None:
        self._write(RunWriter.oom, oom)
        self._write(RunWriter.flush)
        if waits:
            self.drain()

    # --- on the background thread

    def _note(self, sentence: str) -> None:
        if self.active:
            self._write(RunWriter.note, sentence)

    def _write(self, method: Callable[..., None], *record: object) -> None:
        submit(functools.partial(self._output.do, method, *record))

    def _submit_step(self, part: str, step: int, job: Callable[..., None], *args: object) -> None:
        submit(functools.partial(self.faults.run_step, part, step, job, *args))

    def _measure(self, step: int, sample: Sample, dumps: Dumps, waited: bool) -> None:
        figures = sample.number, sample.in_use_bytes, dumps, waited
        self.faults.run_step(POOLS, step, self._step_ends.measure, *figures)
        self._sampler.buffer.release(sample.number)

    def _tick(self) -> None:
        self.faults.run("noticing interrupted trainings", self._on_tick)
        self.faults.run(DRIVER, self._sampler.driver.read)
        opened = self._open
        step, phase = (None, None) if opened is None else (self.ordinary.step, opened.phase)
        began = self.ordinary.began - self._sampler.clock.behind if self.ordinary.passed else 0.0
        self.faults.run(POST_MORTEMS, self.oom.tick, step, phase, began)
        self._output.write_out()

    def _poll(self) -> None:
        began = None if self._open is None else self.ordinary.began
        before, self._polled = self._polled, began
        if began is None or began != before:
            return  # the step has not run for as long as from one poll to the next
        # An allocator without statistics is a fault of the samples, and is logged as that only.
        self.faults.run(
            SAMPLES, lambda: [allocator.memory_info(name) for name in self._sampler.names]
        )
        if not self.faults.stopped(SAMPLES):
            self.faults.run(POST_MORTEMS, self._stalled.poll)

    def _work_through(self, traced: TracedStep) -> None:
        is_first = not self._has_breakdown
        if is_first:
            # readers find nothing but this so far
            self._output.do(RunWriter.analyzing, traced.step)
        records = self.tracer.work_through(traced)
        for record in records:
            self._output.do(RunWriter.traced, record)
        completed = self.faults.run_step(TABLE, traced.step, self.layers.completed_table)
        if completed is not None:
            self._output.do(RunWriter.layer_table, completed)
        if is_first:
            self._output.do(RunWriter.analyzing, None)
            self._has_breakdown = any(record.kept is not None for record in records)

    def _write_and_rest(self) -> None:
        try:
            self._sampler.buffer.release()
            self._tick()
            self._output.end_epoch()
            self._output.do(RunWriter.end if self._ending else RunWriter.roll_up)
        finally:
            self._output.rest()
            self.faults.clean_up(DRIVER, self._sampler.driver.close)
            if self._ending:
                self.tracer.helper.close()


def is_recording(except_into: Collection[str]) -> bool:
    """Whether a recorder is between its start and end, or in a recorded call of Keras, except into
    some directories."""
    open_ones = [one for one in list(_by_place.values()) if one.active and not one.paused]
    return any(one.settings.log_dir not in except_into for one in open_ones)


def _write(place: tuple[str, str]) -> bool:
    """Write what was recorded into the run; False if that takes too long."""
    recording = _by_place.get(place)
    return wait() if recording is None or not recording.active else recording.drain()


def _close_all() -> None:
    unclosed = [one for one in list(_by_place.values()) if one.active]
    reason = (
        "the memory recorder waits for up to %d s until TensorFlow gives up a request to the "
        "file system of a run: the process would be aborted otherwise"
    )
    try:
        for recording in unclosed:
            recording.close_without_waiting()
        if not wait():  # once for all, also for recordings that were dropped
            for recording in unclosed:
                recording.faults.warn(_INCOMPLETE)
        for recording in unclosed:
            recording.tell()
    finally:
        end_foreign_calls(functools.partial(logger.warning, reason, FOREIGN_SECONDS))


def _forget_all() -> None:
    """Forget the recordings in a forked child: they belong to the parent."""
    atexit.unregister(_close_all)
    _by_place.clear()
    recordings.forget_all()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
