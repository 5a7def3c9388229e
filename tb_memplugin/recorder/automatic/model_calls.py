"""Wrappers of the methods that train and use a Keras model."""

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from tb_memplugin.recorder.automatic.recording import AutomaticRecording
from tb_memplugin.recorder.base.uncounted import uncounted

CALLBACK_METHODS = ("fit", "evaluate", "predict")
Wrapper = Callable[[Any], Any]


def places(keras: Any, recording: AutomaticRecording) -> Iterator[tuple[type, str, Wrapper]]:
    for name in CALLBACK_METHODS:
        yield _owner(keras.Model, name), name, functools.partial(_with_callback, recording)
    yield _owner(keras.Model, "train_on_batch"), "train_on_batch", functools.partial(_as_step, recording)


def _owner(kind: type, name: str) -> type:
    return next(one for one in kind.__mro__ if name in vars(one))


def _with_callback(recording: AutomaticRecording, original: Any) -> Any:
    position = list(inspect.signature(original).parameters).index("callbacks") - 1  # without `self`

    @functools.wraps(original)
    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        step: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        try:
            if recording.records():
                arguments, named, is_shared = _add(recording, self, position, arguments, named)
                if is_shared and not recording.is_inside:
                    step = recording.loop_for(self, self).step()
        except Exception:
            recording.failed()
        with recording.inside(), step:
            return original(self, *arguments, **named)

    return call


@uncounted
def _add(
    recording: AutomaticRecording, model: Any, position: int, arguments: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any], bool]:
    """The arguments with a callback more, unless one of this package is among them; and whether the model has none
    because it shares a run."""
    positional = len(arguments) > position
    given = arguments[position] if positional else named.get("callbacks")
    if given is not None and any(kind.__name__ == "CallbackList" for kind in type(given).__mro__):
        # Made by Keras, for an evaluation inside `fit`, or by the program, which then answers for all of it.
        if not recording.is_inside and not _any_of_ours(given.callbacks):
            recording.ready_lists += 1
        return arguments, named, False
    callbacks = [] if given is None else list(given) if isinstance(given, (list, tuple)) else [given]
    if _any_of_ours(callbacks):
        return arguments, named, False
    callback = recording.callback_for(model)
    if callback is None:
        return arguments, named, True
    callbacks.append(callback)
    if positional:
        return (*arguments[:position], callbacks, *arguments[position + 1 :]), named, False
    return arguments, {**named, "callbacks": callbacks}, False


def _any_of_ours(callbacks: list[Any]) -> bool:
    from tb_memplugin.recorder.callback import MemoryCallback

    return any(isinstance(one, MemoryCallback) for one in callbacks)


def _as_step(recording: AutomaticRecording, original: Any) -> Any:
    @functools.wraps(original)
    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        loop = None
        try:
            if not recording.is_inside and recording.records():
                loop = recording.loop_for(self, self)
        except Exception:
            recording.failed()
        with recording.inside(), contextlib.nullcontext() if loop is None else loop.step():
            return original(self, *arguments, **named)

    return call
