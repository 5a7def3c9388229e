"""`JaxSession`: a session as `MemoryCallback` needs it where Keras runs on JAX: a sample of every
step where the devices have statistics, and of each compiled step what XLA planned."""

import atexit
import collections
import dataclasses
import functools
import itertools
import time
import weakref
from collections.abc import Sequence
from typing import Any

from tb_memplugin.attribution import ModuleContents, OomEvent, post_mortem
from tb_memplugin.importers import read_message
from tb_memplugin.recorder.base import (
    Background,
    Faults,
    Settings,
    abandon_in_child,
    submit,
    wait,
)
from tb_memplugin.recorder.devices import Clock, ResidentMemory, SampleBuffer
from tb_memplugin.recorder.loop import jax_modules
from tb_memplugin.recorder.loop.counts import CounterRows
from tb_memplugin.recorder.loop.run_file import RunFile
from tb_memplugin.recorder.watch import TABLE, build_layer_table, signature
from tb_memplugin.schema import MISSING, PHASES, RECORDING, LayerTable, Oom, Phase
from tb_memplugin.storage.write import RunWriter

FLUSH_SECONDS = 5.0
PLANS = "what XLA planned for compiled steps"
_STATISTICS = "bytes_in_use", "peak_bytes_in_use", "bytes_limit"


def device_name(device: Any) -> str:
    return f"{device.platform.upper()}:{device.id}"


_by_place: "weakref.WeakValueDictionary[tuple[str, str], JaxSession]" = (
    weakref.WeakValueDictionary()
)


class _Nothing:
    """The layers that TensorFlow's functions are observed for; JAX's modules name theirs."""

    def see_function(self, *_: Any) -> None: ...

    find_unseen_functions = remove = see_function


class JaxSession:
    """The training's thread calls all methods; plans are read on the background thread."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.layers, self.failures = settings, _Nothing(), self
        self.closed = self.paused = self.told = False
        self.sender = None  # nothing of a fast path
        self.fatal: Oom | None = None
        self._notes: collections.deque[str] = collections.deque()
        self.faults = Faults(self._notes.append)
        self._clock, self._host = Clock(), ResidentMemory()
        self._ticks: Background | None = None
        self._model: Any = lambda: None
        self._table: LayerTable | None = None
        self._signature: Any = None
        self._step: tuple[int, Phase] | None = None
        self._last_step = 0
        self._epoch: int | None = None
        self._looks = False  # whether a module may have been compiled
        self._seen: set[Any] = set()
        # what is in the largest allocation of each module, and its batch size
        self._planned: list[tuple[Phase, ModuleContents, int | None]] = []
        self._peak = 0

    @functools.cached_property
    def _device(self) -> Any:
        """Asked for when training begins: a program may call `jax.distributed.initialize` after it
        made the callback."""
        import jax

        return jax.local_devices()[0]

    @functools.cached_property
    def _name(self) -> str:
        return device_name(self._device)

    @functools.cached_property
    def _buffer(self) -> SampleBuffer:
        return SampleBuffer([] if self._statistics() is None else [self._name])

    @functools.cached_property
    def _file(self) -> RunFile:
        return RunFile(self.settings, self.faults, self._notes, self._buffer, CounterRows())

    def _statistics(self) -> dict[str, int] | None:
        return self.faults.run("statistics of the device", self._device.memory_stats) or None

    def watch(self, model: Any) -> None:
        self._model = weakref.ref(model)

    def start(self) -> None:
        if self._ticks is not None or self.closed:
            return
        place = self.settings.log_dir, self.settings.worker
        if (predecessor := _by_place.get(place)) is not None:
            predecessor.close()
        _by_place[place] = self
        if not self._buffer.devices:
            self._notes.append(
                f"{self._name} keeps no memory statistics under JAX: no bytes in use are sampled. "
                "The breakdown is XLA's plan."
            )
        submit(self._file.open)
        self._ticks = Background(self._file.write_out, FLUSH_SECONDS)
        atexit.unregister(_close_all)
        atexit.register(_close_all)
        abandon_in_child(self)

    def _abandon(self) -> None:
        self.closed = True
        self._file.abandon()

    # --- steps

    def observe(self) -> None:
        self.paused = False
        submit(self._file.wake)

    def before_data(self, phase: Phase) -> None:
        self._looks = True

    def set_epoch(self, epoch: Any) -> None:
        self._epoch = epoch

    def check_layers(self) -> None:
        self._looks = True
        self.faults.run(TABLE, self._check_table)

    def _check_table(self) -> None:
        model = self._model()
        now = None if model is None else signature(model, model.optimizer)
        if model is not None and now != self._signature:
            self._signature = now
            step = self._last_step
            self._table = build_layer_table(model, model.optimizer, step=step, previous=self._table)
            self._file.send(RunWriter.layer_table, self._table)

    def begin_step(self, step: int, phase: Phase) -> None:
        self.end_step()
        self._step, self._last_step = (step, phase), step
        if self.fatal is not None:
            self._file.write_oom(dataclasses.replace(self.fatal, status="survived"), waits=False)
            self.fatal = None

    def end_step(self) -> None:
        ended, self._step = self._step, None
        if ended is not None and not self.closed:
            self.faults.run(RECORDING, self._sample, *ended)
            if self._looks:
                self._looks = False
                self.faults.run(PLANS, self.add_plans, ended[0])

    def _sample(self, step: int, phase: Phase) -> None:
        epoch = MISSING if self._epoch is None else self._epoch
        row = [step, PHASES.index(phase), epoch, self._host.resident_bytes(), MISSING, MISSING]
        if self._buffer.devices:
            found = self._statistics() or {}
            in_use, peak, limit = (int(found.get(name, MISSING)) for name in _STATISTICS)
            # JAX keeps one peak for the whole process: this step's, if it rose
            own, self._peak = peak if peak > self._peak else MISSING, max(peak, self._peak)
            pool, free = (
                int(found.get(name, MISSING)) for name in ("pool_bytes", "largest_free_block_bytes")
            )
            row += in_use, own, limit, MISSING, MISSING, MISSING, pool, free
        self._buffer.append(self._clock.now(), tuple(row))

    def add_plans(
        self, step: int, found: Sequence[tuple[Phase, jax_modules.Compiled]] | None = None
    ) -> None:
        """Record modules of the model's steps, by default the new ones of this process."""
        model = self._model()
        if found is None:
            found = list(jax_modules.compiled_steps(self._device, self._seen))
        if model is None or not found:
            return
        variables = jax_modules.variables_of_model(model)
        # where Keras keeps the values of variables during a step, else in these
        state = getattr(model, "_jax_state", None) or {}
        known = (*model.variables, *getattr(model.optimizer, "variables", ()))
        values = [getattr(one, "_value", None) for one in known]
        arrays = (*values, *itertools.chain.from_iterable(state.values()))
        others = jax_modules.other_arrays(self._device, arrays)
        limit = (self._statistics() or {}).get("bytes_limit")
        for phase, module in found:
            compiled = jax_modules.CompiledStep(phase, module, variables, others)
            submit(self.faults.run_step, PLANS, step, self._add_plan, compiled, step, limit)

    def _add_plan(self, compiled: jax_modules.CompiledStep, step: int, limit: int | None) -> None:
        about = {"step": step, "wall_time": time.time(), "capacity_bytes": limit}
        attributed = jax_modules.plan(compiled, self._name, **about)
        if attributed is None:
            return
        batch = attributed.facts.batch.size
        self._planned.append((compiled.phase, attributed.module_contents(), batch))
        snapshot = dataclasses.replace(attributed.snapshot, batch_size=batch)
        requests = attributed.requests(first=False, batch_size=batch)
        for record in filter(None, (snapshot, attributed.timeline(), requests)):
            self._file.do(RunWriter.traced, record)

    # --- failures, as guards report them

    def enter(self) -> None: ...

    def leave(self, error: BaseException | None = None) -> None:
        if error is not None and self._step is not None:
            self.faults.run("post-mortems of failed allocations", self._failed, error, *self._step)

    def _failed(self, error: BaseException, step: int, phase: Phase) -> None:
        request = read_message(str(error))
        if request is None:
            return
        self.faults.run(PLANS, self.add_plans, step)  # compiled, if it could not run
        found = self._statistics() or {}
        figures = found.get("bytes_in_use"), found.get("bytes_limit")

        def write() -> None:
            size, uncertain = request.requested_bytes, request.uncertain_bytes
            contents, batch = next(
                (
                    (contents, batch)
                    for of_phase, contents, batch in reversed(self._planned)
                    if of_phase == phase and size is not None
                    if abs(sum(row.bytes for row in contents.ledger) - size) <= uncertain
                ),
                (ModuleContents(), None),
            )
            if contents.ledger:  # the request is the module's, whose size is exact
                size, uncertain = sum(row.bytes for row in contents.ledger), 0
            event = OomEvent(
                identifier=f"jax {step}",
                status="failed",
                device=self._name,
                wall_time=time.time(),
                step=step,
                phase=phase,
                requested_bytes=size,
                uncertain_bytes=uncertain,
                compiled=True,
                request_ledger=contents.ledger,
                request_tensors=contents.tensors,
                in_use_bytes=figures[0],
                capacity_bytes=figures[1],
                during="step",
            )
            self.fatal = post_mortem(event, None, batch)
            self._file.write_oom(self.fatal, waits=False)

        submit(write)

    # --- end

    def pause(self) -> None:
        self._looks = True
        self.end_step()
        self.paused = True
        submit(self._file.write_out)
        submit(self._file.do, RunWriter.roll_up)
        submit(self._file.rest)

    def close(self) -> None:
        if self.closed:
            return
        self.end_step()
        self.closed = True
        if self._ticks is not None:
            self._ticks.set_ticking(False)
            submit(self._file.write_out)
            submit(self._file.do, RunWriter.end)
            submit(self._file.rest)
            wait()

    def __del__(self) -> None:
        if not self.closed and self._ticks is not None:
            for job in (self._file.write_out, self._file.rest):
                submit(job)


def _close_all() -> None:
    for session in list(_by_place.values()):
        session.close()
