"""`Session`: one process's recording into one run: its start, pauses and end, also by a fork, a
failure or the end of the process. Its parts are `Steps`, on the training's thread, `Sender` and
`RunFile`, on the background thread, and `Failures`, on the thread on which an allocation fails."""

import atexit
import collections
import contextlib
import functools
import logging
import os
import shlex
import sys
import threading
import weakref
from collections.abc import Callable, Collection
from typing import Any, TypeVar

from tb_memplugin.environment import shown
from tb_memplugin.recorder.base import (
    FOREIGN_SECONDS,
    Faults,
    Job,
    Settings,
    abandon_in_child,
    changes,
    end_foreign_calls,
    is_private,
    remove_abandoned,
    submit,
    wait,
    weakly,
)
from tb_memplugin.recorder.devices import Sampler, choose_devices
from tb_memplugin.recorder.failure import raised_errors, uncaught_failures
from tb_memplugin.recorder.helper import TRACING
from tb_memplugin.recorder.loop.counts import ProgramCounts
from tb_memplugin.recorder.loop.failures import Failures
from tb_memplugin.recorder.loop.run_file import RunFile, versions
from tb_memplugin.recorder.loop.sender import Sender
from tb_memplugin.recorder.loop.steps import POST_MORTEMS, Steps, recording_now
from tb_memplugin.recorder.watch import LayerWatch
from tb_memplugin.schema import RECORDING, Oom, Phase, format_bytes
from tb_memplugin.storage.write import recordings

logger = logging.getLogger("tb_memplugin")

_R = TypeVar("_R")

MAX_PAUSED = 3  # most paused sessions that keep their helper process, the last ones

ABANDONED = "removing directories of killed processes"
_INCOMPLETE = "the memory run may be incomplete: its last records could not be written in time"
_WAITING = (
    "the memory recorder waits for up to %d s until TensorFlow gives up a request to the file "
    "system of a run: the process would be aborted otherwise"
)

_by_place: "weakref.WeakValueDictionary[tuple[str, str], Session]" = weakref.WeakValueDictionary()
"""The last one by run directory, as in `Settings`, and worker name; the active ones are closed at
the process's end."""


class Session:
    """One process's recording into one run. It starts with the first step, unless `start` was
    called before. The background thread holds it only weakly. One that is dropped without `close`
    pauses until the next one is made: memory may run out after the training. One that still exists
    when the process ends is closed then.

    Args:
        look: Called every few seconds on the background thread. With it, hooks of Keras begin the
            steps: they ask `Steps.ordinary` first, and guard what they run."""

    def __init__(self, settings: Settings, look: Job | None = None) -> None:
        self.settings = settings
        self.closed = False
        self.paused = False  # whether nothing is observed until `observe` or the next step
        self.told = False  # whether `tell` has nothing more to say
        self.hooked = look is not None
        self._look = look or (lambda: None)
        self._started = False
        self._sender: Sender | None = None  # after the start
        self._epoch: Any = None  # of the following steps
        self._pausing = threading.RLock()
        self._notes: collections.deque[str] = collections.deque()
        self.faults = Faults(self._notes.append)
        self.layers = LayerWatch(self.faults, settings.source_lines)
        self._devices, self._unavailable = choose_devices(settings.devices)
        self.failures = Failures(self)
        raised_errors.add(self.failures)
        if settings.at_failure is not None:
            uncaught_failures.add(self.failures)

    @property
    def sender(self) -> Sender | None:
        """The sender, which has the steps and the file, between start and close."""
        return None if self.closed else self._sender

    @property
    def fatal(self) -> Oom | None:
        """The failed allocation that ended the program, once the session is closed."""
        return None if self._sender is None else self._sender.steps.oom.fatal

    # --- start

    def start(self) -> None:
        if not self._started and not self.closed:
            self._started = True
            self.faults.run(RECORDING, self._start)

    def _start(self) -> None:
        """Start. An open session of the same run is closed: a notebook cell may run again."""
        place = self.settings.log_dir, self.settings.worker
        predecessor, _by_place[place] = _by_place.get(place), self
        recordings.register(place[0], functools.partial(_write, place))
        changes.note()
        if predecessor is not None and not predecessor.closed:
            if not predecessor.paused:
                predecessor.faults.warn("a newer recorder of this process took over the run")
            predecessor.close()
        try:
            self._sender = self._made()
        except BaseException:
            self.layers.remove()
            raise
        for sentence in self._unavailable:
            self.faults.warn(sentence)
        atexit.unregister(_close_all)
        atexit.register(_close_all)  # so that it runs before what TensorFlow has registered so far
        abandon_in_child(self)

    def _made(self) -> Sender:
        settings, faults, layers = self.settings, self.faults, self.layers
        sampler, counts = Sampler(self._devices), ProgramCounts(settings.overhead)
        file = RunFile(settings, faults, self._notes, sampler.buffer, counts.rows)
        # kept from now on: what reading them leaves would be collected on the background thread
        versions()
        submit(faults.run, ABANDONED, remove_abandoned)
        # not opened here: by then a dropped session of the same run is closed
        submit(file.open)
        steps = Steps(settings, self._devices, layers, faults, sampler, counts, file, self.hooked)
        if settings.traces and self._devices:
            submit(faults.run, TRACING, steps.windows.helper.start)
        paused = [one.sender for one in list(_by_place.values()) if one.paused and one.sender]
        for one in paused[: max(0, len(paused) - MAX_PAUSED)]:
            submit(one.steps.windows.helper.close)
        layers.install()
        steps.check_table()
        return Sender(settings, steps, file, layers, faults, self._look)

    # --- steps

    def watch(self, model: Any, optimizer: Any = None, anew: bool = False) -> None:
        """With `anew`, the program begins another training in the same run, of a model or None."""
        if anew:
            self._on_steps(Steps.next_training)
            if model is None:
                return
        unused = functools.partial(submit, weakly(self._pause_if_unused))
        self.layers.watch(model, optimizer, unused)
        self.check_layers()

    def _on_steps(self, method: Callable[..., _R], *given: Any) -> _R | None:
        """Call a method of the steps, between start and close."""
        sender = self.sender
        return None if sender is None else self.faults.run(RECORDING, method, sender.steps, *given)

    def check_layers(self) -> None:
        """Check whether the layer table changed, as is done every few seconds."""
        self._on_steps(Steps.check_table)

    def before_data(self, phase: Phase) -> None:
        """A phase begins and no batch was requested yet: nothing in use now is a batch of the
        phase."""
        self._on_steps(lambda steps: steps.windows.before_data(phase))

    def set_epoch(self, epoch: Any) -> None:
        self._epoch = epoch

    def begin_step(self, step: int, phase: Phase = "train", batch_size: int | None = None) -> None:
        self.start()
        self.faults.run(RECORDING, self._resume)
        self.end_step()
        self._on_steps(Steps.begin, step, phase, self._epoch, batch_size)

    def end_step(self) -> None:
        traced = self._on_steps(Steps.end)
        if traced is not None and self._sender is not None:
            submit(self._sender.analyze, traced)

    def drain(self) -> bool:
        """Wait until everything recorded so far is written; False if that takes too long."""
        sender = self.sender
        return sender is None or sender.file.drain()

    # --- pauses

    def observe(self) -> None:
        self._resume()
        if self.sender is not None:
            self.layers.install()

    def pause(self) -> None:
        """Until `observe` or the next step, observe nothing and keep no file open; write what was
        recorded soon."""
        with self._pausing:
            sender = self.sender
            if sender is not None and not self.paused:
                self.paused = True
                self.layers.remove()
                sender.steps.rest()
                sender.rest(ends=False)

    def _pause_if_unused(self) -> None:
        sender = self.sender
        if self.layers.model_is_gone and sender is not None and sender.steps.open is None:
            self.pause()

    def _resume(self) -> None:
        if not self.paused:
            return
        with self._pausing:
            if not self.paused:
                return
            self.paused = False
            sender = self.sender
            if sender is None:
                reason = "it was closed, or a newer recorder of this process took over the run"
                self.faults.stop(RECORDING, reason)
                return
            sender.steps.wake()
            sender.wake()
            self.layers.install()

    # --- end

    def close(self) -> None:
        if not self.closed:
            self.close_without_waiting()
            if self._sender is not None and not wait():
                self.faults.warn(_INCOMPLETE)
            self.tell()

    def close_without_waiting(self) -> None:
        self.end_step()
        self.closed = True
        self.faults.clean_up(RECORDING, self._finish)

    def _finish(self) -> None:
        self.layers.remove()
        if self._sender is not None:
            self.faults.run(POST_MORTEMS, self._sender.steps.oom.say_survived)
            if not self.paused:
                self._sender.steps.rest()
            self._sender.rest(ends=True)
        raised_errors.update()

    def tell(self) -> None:
        """Say once, on standard error, where the run is and what it shows, unless the package's
        warnings are off."""
        sender, told, self.told = self._sender, self.told, True
        if sender is not None and not told:
            peak, fatal = sender.file.peak_bytes, self.fatal
            self.faults.run("the last line", _tell, self.settings.log_dir, peak, fatal)

    def __del__(self) -> None:
        # Runs on any thread, between any two statements, so it only submits a job; the job keeps
        # the session alive.
        if self.sender is not None:
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

    def _abandon(self) -> None:
        """End the session in a forked child: nothing is written, removed or waited for."""
        self.closed, self.paused = True, False
        self._pausing = threading.RLock()
        self.layers.abandon()
        self.failures.abandon()
        if self._sender is not None:
            self._sender.steps.abandon()
            self._sender.file.abandon()
            self._sender = None


def _tell(run: str, peak: int | None, fatal: Oom | None) -> None:
    if is_private(run) or not logger.isEnabledFor(logging.WARNING):
        return
    run = shown(run)
    if fatal is not None:
        where = " ".join(filter(None, ["Out of memory", fatal.place]))
        line = f"{where}: {fatal.reason.rstrip('.')}. tb-memplugin inspect {shlex.quote(run)}"
    elif peak is not None:
        see = f"tensorboard --logdir {shlex.quote(os.path.dirname(run) or '.')}"
        line = f"Memory recorded in {run}: peak {format_bytes(peak)}. {see}"
    else:
        return
    with contextlib.suppress(Exception):
        print(line, file=sys.stderr, flush=True)


def is_recording(except_into: Collection[str]) -> bool:
    """Whether a recorder is between its start and end, or in a recorded call of Keras, except into
    some directories."""
    return any(one.log_dir not in except_into for one in recording_now)


def _write(place: tuple[str, str]) -> bool:
    """Write what was recorded into the run; False if that takes too long."""
    session = _by_place.get(place)
    return wait() if session is None or session.sender is None else session.drain()


def _close_all() -> None:
    unclosed = [one for one in list(_by_place.values()) if one.sender is not None]
    try:
        for session in unclosed:
            session.close_without_waiting()
        if not wait():  # once for all, also for sessions that were dropped
            for session in unclosed:
                session.faults.warn(_INCOMPLETE)
        for session in unclosed:
            session.tell()
    finally:
        end_foreign_calls(functools.partial(logger.warning, _WAITING, FOREIGN_SECONDS))


def _forget_all() -> None:
    """Forget the sessions in a forked child: they belong to the parent."""
    atexit.unregister(_close_all)
    _by_place.clear()
    recordings.forget_all()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
