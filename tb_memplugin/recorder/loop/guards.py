"""What `MemoryCallback` learns beside the hooks of Keras, which calls none for an exception: guards
around a model's step functions, and which call runs (`Calls`). All on the training's thread."""

import functools
import sys
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tb_memplugin.recorder.heap import RunningCall
from tb_memplugin.recorder.watch import STEP_FUNCTIONS

if TYPE_CHECKING:
    from tb_memplugin.recorder.loop.callback import MemoryCallback


def _ends_data(error: BaseException) -> bool:
    """Whether Keras goes on after an exception of a step function."""
    tensorflow = sys.modules.get("tensorflow")
    ends = () if tensorflow is None else (tensorflow.errors.OutOfRangeError,)
    return isinstance(error, (StopIteration, *ends))


class Calls:
    """The call of the recorded model that runs, and whether Keras calls hooks for another one.
    Inside a `fit` of the recorded model, Keras does not call `set_model` when the other model's
    call has ended."""

    def __init__(self) -> None:
        self.own: RunningCall | None = None
        self.other: RunningCall | None = None
        self._phases = 0  # of the other one, that began and did not end

    def other_begins(self) -> None:
        self.other, self._phases = RunningCall(), 0

    def is_other(self, phases: int = 0) -> bool:
        """Whether a hook is the other model's, which begins (1) or ends (-1) a phase."""
        if self.other is None:
            return False
        if self.other.has_ended():  # by an exception that the program caught
            self.other = None
            return False
        self._phases += phases
        if phases < 0 and self._phases == 0 and self.own is not None and self.own.is_running():
            self.other = None
        return True


class _Guard:
    """Stands in for a step function of a model, and tells a callback of its exceptions."""

    def __init__(self, original: Any, callback: "MemoryCallback") -> None:
        functools.update_wrapper(self, original, updated=())
        self.tb_memplugin_original = original
        self.callback = weakref.ref(callback)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        callback, original = self.callback(), self.tb_memplugin_original
        if callback is None:
            return original(*arguments, **named)
        failures = callback._recording.failures
        failures.enter()
        try:
            result = original(*arguments, **named)
        except BaseException as error:
            failures.leave(error)
            if not _ends_data(error):
                callback._failed()
            raise
        failures.leave()
        return result


def guard(callback: "MemoryCallback", name: str) -> None:
    """Wrap the named function of the model until the phase ends or fails."""
    unguard(callback, [name])
    session, model = callback._recording, callback.model
    if session.closed:
        return
    if session.settings.traces:
        session.layers.see_function(model, name)
    original = getattr(model, name, None)
    if original is not None:
        setattr(model, name, _Guard(original, callback))


def unguard(callback: "MemoryCallback", names: Sequence[str] = STEP_FUNCTIONS) -> None:
    """Remove a callback's own guards; those of other callbacks stay."""
    for name in names:
        outer, function = None, getattr(callback.model, name, None)
        while isinstance(function, _Guard) and function.callback() is not callback:
            outer, function = function, function.tb_memplugin_original
        if isinstance(function, _Guard) and outer is not None:
            outer.tb_memplugin_original = function.tb_memplugin_original
        elif isinstance(function, _Guard):
            setattr(callback.model, name, function.tb_memplugin_original)
