"""`AutomaticRecording`: the runs of what a program trains, without a change of its code."""

import logging
import os
import threading
import weakref
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from tb_memplugin.environment import absolute
from tb_memplugin.recorder.base import uncounted

logger = logging.getLogger("tb_memplugin")

MAX_RUNS = 16
"""Most models that are recorded into runs of their own. Further ones share a run, in which each call is a step."""


class Loop:
    """A training loop of the program's own, as far as its steps can be seen."""

    def __init__(self, recorder: Any, first_step: int) -> None:
        self.recorder = recorder
        self._next = first_step

    def step(self) -> AbstractContextManager[None]:
        self._next += 1
        block: AbstractContextManager[None] = self.recorder.step(self._next - 1)
        return block


class AutomaticRecording:
    """The runs of a program that does not record itself: a callback for each model, a recorder for each loop.

    `Wrapping` asks for them. Nothing of TensorFlow is imported before the first of them.

    The first model's run is named `run`; those of further models get ``-2``, ``-3`` and so on. `arguments` are those of
    `MemoryCallback` and `MemoryRecorder`, except `log_dir`.
    """

    @uncounted
    def __init__(self, log_dir: str, run: str, arguments: Mapping[str, Any] | None = None) -> None:
        self.log_dir = absolute(log_dir)
        self.names: list[str] = []
        self.latest: str | None = None  # the run that was last asked for
        self.unseen = 0  # calls of ``GradientTape.gradient`` that belong to no recorded step
        self.ready_lists = 0  # calls that the program gave a `CallbackList`, to which nothing is added
        self._run = run
        self._arguments = dict(arguments or {})
        self._process = os.getpid()
        self._callbacks: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self._loops: weakref.WeakKeyDictionary[Any, Loop] = weakref.WeakKeyDictionary()
        self._recorders: dict[str, Any] = {}
        self._more: Loop | None = None
        self._sees_failures = False
        self.failure_run: str | None = None  # opened for a failure before the first call of what trains
        self._failed = False
        self._local = threading.local()

    def close(self) -> None:
        """Write what was recorded, and wait for it. In a forked child, do nothing."""
        self.see_failures(False)
        for recorder in self._recorders.values() if os.getpid() == self._process else ():
            recorder.close()

    def notes(self) -> Iterator[str]:
        from tb_memplugin.schema import counted

        if self._more is not None:
            yield (
                f"The first {MAX_RUNS} models have a run each. The calls of all further ones are the steps of run "
                f"{self._run}-more."
            )
        if self._failed:
            yield "Something could not be recorded: the log of Python's logger tb_memplugin at level DEBUG says why."
        if self.ready_lists:
            yield (
                f"{counted(self.ready_lists, 'call')} of `fit`, `evaluate` or `predict` with a `CallbackList` of the "
                "program's own: add tb_memplugin.MemoryCallback to that list."
            )
        if self.unseen:
            yield (
                f"{counted(self.unseen, 'call')} of GradientTape.gradient not recorded: outside of `fit` and of a "
                "`tf.function` that also updates the variables. Where such a step begins and ends cannot be seen from "
                "outside: record it with `with recorder.step(n)` of tb_memplugin.MemoryRecorder."
            )

    # --- what the wrappers ask --------------------------------------------------------------------------------------

    @property
    def is_inside(self) -> bool:
        """Whether this thread is in a call that is recorded, or being looked at."""
        return bool(getattr(self._local, "depth", 0))

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Mark a call, so that calls below it are left alone."""
        self._local.depth = getattr(self._local, "depth", 0) + 1
        try:
            yield
        finally:
            self._local.depth -= 1

    def records(self) -> bool:
        """Whether to record here: not in a forked child, and not while a recorder of the program's own records."""
        from tb_memplugin.recorder.loop.lifetime import is_recording

        return os.getpid() == self._process and not is_recording(
            except_into=[self._directory_of(name) for name in self.names]
        )

    def failed(self) -> None:
        """Log the exception that is being handled: something is not recorded, and the program goes on."""
        self._failed = True
        logger.debug("a call could not be recorded automatically", exc_info=True)

    def callback_for(self, model: Any) -> Any:
        """The model's `MemoryCallback`; None if it is one of those that share a run: see `loop_for`."""
        callback = self._callbacks.get(model)
        if callback is None:
            from tb_memplugin.recorder.loop.callback import MemoryCallback

            name = self._next_run()
            if name is None:
                return None
            callback = self._callbacks[model] = MemoryCallback(self._directory_of(name), **self._arguments)
            self._recorders[name] = callback
        self._note_latest(callback)
        return callback

    @uncounted
    def loop_for(self, owner: Any, model: Any, first_step: int = 0) -> Loop:
        """The loop that a model or a function (`owner`, kept weakly) stands for; one for all beyond `MAX_RUNS`."""
        loop = self._loops.get(owner)
        if loop is None:
            name = self._next_run()
            if name is None:
                return self._shared()
            recorder = self._recorders.get(name)
            if recorder is None:
                recorder = self._record_into(name, model)
            elif model is not None:
                recorder.watch(model)
            recorder.start()
            loop = self._loops[owner] = Loop(recorder, first_step)
        self._note_latest(loop.recorder)
        return loop

    def _shared(self) -> Loop:
        """The loop whose steps are the calls of all models beyond `MAX_RUNS`."""
        if self._more is None:
            name = f"{self._run}-more"
            self.names.append(name)
            recorder = self._record_into(name, trace_steps=())  # a call of `fit` is a step, and too long to be traced
            recorder.start()
            self._more = Loop(recorder, 0)
        self._note_latest(self._more.recorder)
        return self._more

    def _record_into(self, name: str, model: Any = None, **more: Any) -> Any:
        from tb_memplugin.recorder.loop.memory_recorder import MemoryRecorder

        recorder = MemoryRecorder(self._directory_of(name), model, **{**self._arguments, **more})
        self._recorders[name] = recorder
        return recorder

    def see_failures(self, opens: bool = True) -> None:
        """Open a run for an allocation that fails while nothing is recorded, as in a model that is built."""
        if opens or self._sees_failures:
            from tb_memplugin.recorder.failure import raised_errors

            raised_errors.open_with(self._open_run_for_failure if opens else None)
            self._sees_failures = opens

    def _open_run_for_failure(self) -> None:
        name = self._next_run() if os.getpid() == self._process else None
        if name is not None:
            self._record_into(name)
            self.failure_run = self.latest = name

    def _note_latest(self, recorder: Any) -> None:
        self.latest = next(name for name, one in self._recorders.items() if one is recorder)

    def _next_run(self) -> str | None:
        if self.failure_run is not None:  # what trains now goes on with that run
            name, self.failure_run = self.failure_run, None
            return name
        if len(self.names) >= MAX_RUNS:
            return None
        name = self._run if not self.names else f"{self._run}-{len(self.names) + 1}"
        self.names.append(name)
        return name

    def _directory_of(self, name: str) -> str:
        return f"{self.log_dir.rstrip('/')}/{name}"
