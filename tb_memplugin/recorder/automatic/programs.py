"""Records what a program trains without a change of its code: `Wrapping` wraps what trains, as soon
as the program imports it (`AfterImport`): methods of Keras models, and custom loops, whose steps
are the calls of a `tf.function` that takes gradients and changes variables. `AutomaticRecording`
has the runs.

Whether a function does so is known once its first call has traced it and before that call runs what
was traced: there step 0 begins. The tracing is observed, so that the steps know which layer makes
which operation."""

import contextlib
import functools
import importlib.abc
import inspect
import itertools
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NamedTuple

from tb_memplugin.environment import absolute, is_unrecorded, why_unrecorded
from tb_memplugin.recorder.base import ByIdentity, asked

logger = logging.getLogger("tb_memplugin")

Job = Callable[[ModuleType], None]

MAX_RUNS = 16
"""Most models that are recorded into runs of their own. Further ones share a run, in which each
call is a step."""
_UPDATES = ("Assign", "ResourceApply", "ResourceSparseApply", "ResourceScatter")
"""Beginnings of the types of ops that change variables."""


class Loop(NamedTuple):
    """A custom training loop whose steps can be observed."""

    recorder: Any
    steps: Iterator[int]

    def step(self) -> Any:
        return self.recorder.step(next(self.steps))


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.depth = 0  # of `inside`
        self.first_call: _FirstCall | None = None  # of a function


class AutomaticRecording:
    """The runs of a program that does not record itself: a callback for each model, a recorder for
    each loop.

    The first model's run is named `run`; those of further models get ``-2``, ``-3`` and so on.
    `arguments` are those of `MemoryCallback` and `MemoryRecorder`, except `log_dir`."""

    def __init__(self, log_dir: str, run: str, arguments: Mapping[str, Any] | None = None) -> None:
        self.log_dir = absolute(log_dir)
        self.names: list[str] = []
        self.latest: str | None = None  # the run that was last asked for
        self.unseen = 0  # calls of ``GradientTape.gradient`` that belong to no recorded step
        # calls that the program gave a `CallbackList`, to which nothing is added
        self.ready_lists = 0
        # opened for a failure before the first call of what trains
        self.failure_run: str | None = None
        self.run = run
        self.can_record = True  # false with another backend of Keras than TensorFlow's
        self.records_itself = False  # whether the program has a recorder of its own
        self._arguments = dict(arguments or {})
        self._process = os.getpid()
        self._callbacks = ByIdentity[Any]()
        self._loops = ByIdentity[Loop]()  # by model, or code of a function
        self._trained = ByIdentity[bool]()  # models and functions with a loop
        self._recorders: dict[str, Any] = {}
        self._more: Loop | None = None  # whose steps are the calls of all models beyond `MAX_RUNS`
        self._sees_failures = self._failed = False
        self.trains = ByIdentity[bool]()  # whether a function takes gradients and updates variables
        self.of_thread = _OfThread()

    def close(self) -> None:
        """Write what was recorded, wait for it, and record no more. In a forked child, do
        nothing."""
        self.see_failures(False)
        for recorder in self._recorders.values() if os.getpid() == self._process else ():
            recorder._recording.told = True  # there is a summary
            recorder.close()
        self._process = 0

    def fatal_run(self) -> str | None:
        """Directory of the run with the failed allocation that ended the program, after `close`."""
        failed = [name for name, one in self._recorders.items() if one._recording.fatal is not None]
        return self._directory_of(failed[-1]) if failed else None

    def notes(self) -> Iterator[str]:
        from tb_memplugin.schema import counted

        if self.records_itself and not self.names:
            yield "The program records itself, into a run of its own: nothing was added."
        if self._more is not None:
            yield (
                f"The first {MAX_RUNS} models have a run each. The calls of all further ones are "
                f"the steps of run {self.run}-more."
            )
        if self._failed:
            log = "the log of Python's logger tb_memplugin at level DEBUG says why."
            yield f"Something could not be recorded: {log}"
        if self.ready_lists:
            yield (
                f"{counted(self.ready_lists, 'call')} of `fit`, `evaluate` or `predict` with a "
                "`CallbackList` of the program's own: add tb_memplugin.MemoryCallback to that list."
            )
        if self.unseen:
            yield (
                f"{counted(self.unseen, 'call')} of GradientTape.gradient not recorded: outside of "
                "`fit` and of a `tf.function` that also updates the variables. Where such a step "
                "begins and ends cannot be seen from outside: record it with "
                "`with recorder.step(n)` of tb_memplugin.MemoryRecorder."
            )

    @property
    def is_inside(self) -> bool:
        """Whether this thread is in a call that is recorded, or being looked at."""
        return self.of_thread.depth > 0

    @contextlib.contextmanager
    def inside(self, loop: Loop | None = None) -> Iterator[None]:
        """Mark a call, the next step of a loop if given, so that calls below it are left alone."""
        self.of_thread.depth += 1
        try:
            with contextlib.nullcontext() if loop is None else loop.step():
                yield
        finally:
            self.of_thread.depth -= 1

    def records(self) -> bool:
        """Whether to record here: not in a forked child, and not while a recorder of the program's
        own records."""
        if not self.can_record:
            return False
        from tb_memplugin.recorder.loop import is_recording

        own = is_recording([self._directory_of(name) for name in self.names])
        self.records_itself = self.records_itself or own
        return os.getpid() == self._process and not own

    def failed(self) -> None:
        """Log the exception that is being handled: something is not recorded, and the program goes
        on."""
        self._failed = True
        logger.debug("a call could not be recorded automatically", exc_info=True)

    def callback_for(self, model: Any) -> Any:
        """The model's `MemoryCallback`; None if it is one of those that share a run: see
        `loop_for`."""
        callback = self._callbacks.get(model)
        if callback is None:
            from tb_memplugin.recorder.loop import MemoryCallback

            name = self._next_run()
            if name is None:
                return None
            callback = MemoryCallback(self._directory_of(name), **self._arguments)
            self._callbacks[model] = self._recorders[name] = callback
        self._note_latest(callback)
        return callback

    def loop_for(self, owner: Any, model: Any) -> Loop:
        """The loop that a model or a function (`owner`, kept weakly) stands for; one for all beyond
        `MAX_RUNS`. Functions of the same code share one: each is another training of its run."""
        from tb_memplugin.recorder.watch import code_of

        code = code_of(owner)
        key = owner if code is None else code
        loop: Loop | None = self._loops.get(key)
        if loop is not None and owner is not key and owner not in self._trained:
            loop.recorder._recording.watch(model, anew=True)
        self._trained.add(owner)
        if loop is None:
            name = self._next_run()
            if name is not None:
                loop = self._loops[key] = Loop(self._record_into(name, model), itertools.count())
            else:
                loop = self._more = self._more or self._open_more()
            loop.recorder.start()
        self._note_latest(loop.recorder)
        return loop

    def _open_more(self) -> Loop:
        name = f"{self.run}-more"
        self.names.append(name)
        # A call of `fit` is a step, and too long to be traced.
        return Loop(self._record_into(name, trace_steps=()), itertools.count())

    def _record_into(self, name: str, model: Any = None, **more: Any) -> Any:
        from tb_memplugin.recorder.loop import MemoryRecorder

        recorder = self._recorders.get(name)
        if recorder is None:
            arguments = {**self._arguments, **more}
            recorder = MemoryRecorder(self._directory_of(name), model, **arguments)
            self._recorders[name] = recorder
        elif model is not None:
            recorder.watch(model)
        return recorder

    def see_failures(self, opens: bool = True) -> None:
        """Open a run for an allocation that fails while nothing is recorded, as in a model that is
        built."""
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
        name = self.run if not self.names else f"{self.run}-{len(self.names) + 1}"
        self.names.append(name)
        return name

    def _directory_of(self, name: str) -> str:
        return f"{self.log_dir.rstrip('/')}/{name}"


def _model_call(
    recording: AutomaticRecording, original: Any, self: Any, /, *arguments: Any, **named: Any
) -> Any:
    """A method of models: it gets a callback more, or each call is a step if it takes none."""
    loop = None
    try:
        position = _callbacks_at(original)
        is_step = position is None
        if not (is_step and recording.is_inside) and recording.records():
            if position is not None:
                arguments, named, is_step = _add(recording, self, position, arguments, named)
            # on JAX, only what takes a callback
            if is_step and not recording.is_inside and why_unrecorded() is None:
                loop = recording.loop_for(self, self)
    except Exception:
        recording.failed()
    with recording.inside(loop):
        return original(self, *arguments, **named)


@functools.cache
def _callbacks_at(method: Any) -> int | None:
    """The position of a method's argument `callbacks`; None without."""
    names = list(inspect.signature(method).parameters)
    return names.index("callbacks") - 1 if "callbacks" in names else None  # without `self`


def _add(
    recording: AutomaticRecording,
    model: Any,
    position: int,
    arguments: tuple[Any, ...],
    named: dict[str, Any],
) -> tuple[tuple[Any, ...], dict[str, Any], bool]:
    """The arguments with a callback more, unless one of this package is among them; and whether the
    model has none because it shares a run."""
    positional = len(arguments) > position
    given = arguments[position] if positional else named.get("callbacks")
    if given is not None and any(kind.__name__ == "CallbackList" for kind in type(given).__mro__):
        # Made by Keras, for an evaluation inside `fit`, or by the program, which then answers for
        # all of it.
        if not recording.is_inside and not _any_of_ours(given.callbacks):
            recording.ready_lists += 1
        return arguments, named, False
    callbacks = list(given) if isinstance(given, (list, tuple)) else [given] * (given is not None)
    ours = _any_of_ours(callbacks)
    recording.records_itself = recording.records_itself or ours
    callback = None if ours else recording.callback_for(model)
    if callback is None:
        return arguments, named, not ours
    callbacks.append(callback)
    if positional:
        arguments = (*arguments[:position], callbacks, *arguments[position + 1 :])
    else:
        named = {**named, "callbacks": callbacks}
    return arguments, named, False


def _any_of_ours(callbacks: list[Any]) -> bool:
    from tb_memplugin.recorder.loop import MemoryCallback

    return any(isinstance(one, MemoryCallback) for one in callbacks)


def _function_call(
    recording: AutomaticRecording, original: Any, self: Any, /, *arguments: Any, **named: Any
) -> Any:
    import tensorflow as tf

    known = recording.trains.get(self)
    if known is False or recording.is_inside or tf.inside_function():
        return original(self, *arguments, **named)
    loop = first = None
    try:
        if recording.records():
            if known:
                loop = recording.loop_for(self, None)
            else:
                first = _FirstCall(recording, self)
    except Exception:
        recording.failed()
    with recording.inside(loop), first or contextlib.nullcontext():
        return original(self, *arguments, **named)


def _function_traced(
    recording: AutomaticRecording, original: Any, self: Any, /, *arguments: Any, **named: Any
) -> Any:
    """The first tracing of a function, which its first call runs then."""
    result = original(self, *arguments, **named)
    first = recording.of_thread.first_call
    if first is not None and first.function is self:
        try:
            first.traced()
        except Exception:
            recording.failed()
    return result


class _FirstCall:
    """The call that traces a function: observes it, notes in `trains` whether the function takes
    gradients and changes variables, and if so, makes what runs after the tracing a step."""

    def __init__(self, recording: AutomaticRecording, function: Any) -> None:
        from tb_memplugin.recorder.watch import call_notes, hooks

        self.function = function
        self._recording, self._hooks, self._notes = recording, hooks, call_notes
        self._step = contextlib.ExitStack()
        hooks.acquire()
        self._before = {
            id(graph): len(notes.spans) for graph, notes in list(call_notes.graphs.items())
        }

    def __enter__(self) -> None:
        self._recording.of_thread.first_call = self

    def __exit__(self, *error: Any) -> None:
        self._recording.of_thread.first_call = None
        self._hooks.release()
        if error[0] is None:  # also if it was traced before
            self._recording.trains.setdefault(self.function, False)
        self._step.__exit__(*error)

    def traced(self) -> None:
        """Begin the step if the function trains."""
        new = {
            graph: notes.spans[self._before.get(id(graph), 0) :]
            for graph, notes in list(self._notes.graphs.items())
        }
        spans = list(itertools.chain(*new.values()))
        kinds = {span.kind for span in spans}
        ops = (op for graph, of_graph in new.items() if of_graph for op in graph.get_operations())
        changes = "backward" in kinds and any(op.type.startswith(_UPDATES) for op in ops)
        if "update" in kinds or changes:
            loop = self._recording.loop_for(self.function, self._model(spans))
            self._step.enter_context(loop.step())
            self._recording.trains[self.function] = True

    def _model(self, spans: list[Any]) -> Any:
        """The layer with most weights that no other layer called; None without layers."""
        layers = [span.layer() for span in spans if span.layer is not None]
        outermost = [layer for layer in layers if layer in self._notes.outermost_layers]
        weights = [asked(layer, lambda layer: layer.count_params()) or 0 for layer in outermost]
        return outermost[weights.index(max(weights))] if outermost else None


def _tape_gradient(
    recording: AutomaticRecording, original: Any, self: Any, /, *arguments: Any, **named: Any
) -> Any:
    import tensorflow as tf

    if not recording.is_inside and tf.executing_eagerly() and recording.records():
        recording.unseen += 1
    return original(self, *arguments, **named)


class Wrapping:
    """Adds a callback to each `fit`, `evaluate` and `predict`, and records loops whose steps can be
    seen."""

    def __init__(self, recording: AutomaticRecording) -> None:
        self._recording = recording
        self._wrapped: list[tuple[type, str, Any, Any]] = []
        self._imports = AfterImport(
            {"tensorflow": self._functions, "keras": self._keras, "tf_keras": self.models}
        )
        self.install = self._imports.install

    def remove(self) -> None:
        """Restore everything that was wrapped, and record nothing more."""
        self._imports.remove()
        while self._wrapped:
            owner, name, original, replacement = self._wrapped.pop()
            if vars(owner).get(name) is replacement:
                setattr(owner, name, original)

    def _keras(self, keras: ModuleType) -> None:
        if is_unrecorded(on_jax=True):  # the program has set the backend itself
            self._recording.can_record = False
            self._recording.see_failures(False)
        else:
            self.models(keras)

    def models(self, keras: ModuleType) -> None:
        for name in ("fit", "evaluate", "predict", "train_on_batch"):
            self._wrap(keras.Model, name, _model_call)

    def _functions(self, tensorflow: ModuleType) -> None:
        from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function

        self._recording.see_failures()
        self._wrap(Function, "__call__", _function_call)
        self._wrap(Function, "_initialize", _function_traced)
        self._wrap(tensorflow.GradientTape, "gradient", _tape_gradient)

    def _wrap(self, kind: type, name: str, wrapper: Callable[..., Any]) -> None:
        """Call `wrapper` instead of a method, with the recording and the method before its
        arguments."""
        owner = next(one for one in kind.__mro__ if name in vars(one))
        original = vars(owner)[name]
        # of a package that is the same as another one
        if getattr(original, "tb_memplugin_automatic", False):
            return
        recording = self._recording

        @functools.wraps(original)
        def replacement(self: Any, *arguments: Any, **named: Any) -> Any:
            return wrapper(recording, original, self, *arguments, **named)

        replacement.tb_memplugin_automatic = True  # type: ignore[attr-defined]
        setattr(owner, name, replacement)
        self._wrapped.append((owner, name, original, replacement))


class AfterImport(importlib.abc.MetaPathFinder):
    """Calls each job with its module once that is imported by its own loader. A failing job is only
    logged."""

    def __init__(self, jobs: Mapping[str, Job]) -> None:
        self._jobs = dict(jobs)

    def install(self) -> None:
        for name in list(self._jobs):
            module = sys.modules.get(name)
            if module is not None and not getattr(module.__spec__, "_initializing", False):
                self._run(name, module)
        if self._jobs:
            sys.meta_path.insert(0, self)

    def remove(self) -> None:
        self._jobs.clear()
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """What the other finders find; the job runs when the module's code has run."""
        if fullname not in self._jobs:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None if find is None else find(fullname, path, target)
            if spec is not None:
                # a loader that takes no attributes
                with contextlib.suppress(AttributeError, TypeError):
                    self._attach(fullname, spec.loader)
                return spec
        return None

    def _attach(self, name: str, loader: Any) -> None:
        original = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            original(module)
            self._run(name, module)

        loader.exec_module = exec_module

    def _run(self, name: str, module: ModuleType) -> None:
        try:
            if name in self._jobs:
                self._jobs.pop(name)(module)
        except Exception:
            logger.debug("%s cannot be recorded automatically", module.__name__, exc_info=True)
