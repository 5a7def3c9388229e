"""`Wrapping`: wraps what trains, as soon as the program imports it."""

import functools
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from tb_memplugin.recorder.automatic import function_calls, model_calls
from tb_memplugin.recorder.automatic.imports import AfterImport
from tb_memplugin.recorder.automatic.recording import AutomaticRecording

Place = tuple[type, str, Callable[[Any], Any]]


class Wrapping:
    """Adds a callback to each `fit`, `evaluate` and `predict`, and records loops whose steps can be seen.

    Nothing of TensorFlow is imported before the program does so.

    Args:
        recording: Gives the callbacks and recorders.
    """

    def __init__(self, recording: AutomaticRecording) -> None:
        self._recording = recording
        self._restore: list[Callable[[], None]] = []
        self._imports = AfterImport({"tensorflow": self._functions, "keras": self.models, "tf_keras": self.models})

    def install(self) -> None:
        """Record what is trained from now on."""
        self._imports.install()

    def remove(self) -> None:
        """Restore everything that was wrapped, and record nothing more."""
        self._imports.remove()
        for restore in reversed(self._restore):
            restore()
        self._restore.clear()

    def models(self, keras: ModuleType) -> None:
        """Wrap the methods of a package's models."""
        self._replace(model_calls.places(keras, self._recording))

    def _functions(self, _: ModuleType) -> None:
        self._replace(function_calls.places(self._recording))

    def _replace(self, places: Iterator[Place]) -> None:
        for owner, name, wrapper in places:
            original = vars(owner)[name]
            if getattr(original, "tb_memplugin_automatic", False):
                continue  # of a package that is the same as another one
            replacement = wrapper(original)
            replacement.tb_memplugin_automatic = True
            setattr(owner, name, replacement)
            self._restore.append(functools.partial(_restore, owner, name, original, replacement))


def _restore(owner: type, name: str, original: Any, replacement: Any) -> None:
    if vars(owner).get(name) is replacement:
        setattr(owner, name, original)
