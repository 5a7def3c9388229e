"""`Wrapping`: wraps what trains, as soon as the program imports it (`AfterImport`)."""

import contextlib
import functools
import importlib.abc
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from tb_memplugin.recorder.automatic import function_calls, model_calls
from tb_memplugin.recorder.automatic.recording import AutomaticRecording

Place = tuple[type, str, Callable[[Any], Any]]


class Wrapping:
    """Adds a callback to each `fit`, `evaluate` and `predict`, and records loops whose steps can be seen.

    Nothing of TensorFlow is imported before the program does so.
    """

    def __init__(self, recording: AutomaticRecording) -> None:
        self._recording = recording
        self._restore: list[Callable[[], None]] = []
        self._imports = AfterImport({"tensorflow": self._functions, "keras": self.models, "tf_keras": self.models})

    def install(self) -> None:
        self._imports.install()

    def remove(self) -> None:
        """Restore everything that was wrapped, and record nothing more."""
        self._imports.remove()
        for restore in reversed(self._restore):
            restore()
        self._restore.clear()

    def models(self, keras: ModuleType) -> None:
        self._replace(model_calls.places(keras, self._recording))

    def _functions(self, _: ModuleType) -> None:
        self._recording.see_failures()
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


logger = logging.getLogger("tb_memplugin")

Job = Callable[[ModuleType], None]


class AfterImport(importlib.abc.MetaPathFinder):
    """Calls each job with its module once that is imported by its own loader. A failing job is only logged."""

    def __init__(self, jobs: Mapping[str, Job]) -> None:
        self._jobs = dict(jobs)

    def install(self) -> None:
        for name in list(self._jobs):
            module = sys.modules.get(name)
            if module is not None and not getattr(module.__spec__, "_initializing", False):
                self._run(self._jobs.pop(name), module)
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
                with contextlib.suppress(AttributeError, TypeError):  # a loader that takes no attributes
                    self._attach(fullname, spec)
                return spec
        return None

    def _attach(self, name: str, spec: ModuleSpec) -> None:
        loader: Any = spec.loader
        original = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            original(module)
            job = self._jobs.pop(name, None)
            if job is not None:
                self._run(job, module)

        loader.exec_module = exec_module

    def _run(self, job: Job, module: ModuleType) -> None:
        try:
            job(module)
        except Exception:
            logger.debug("%s cannot be recorded automatically", module.__name__, exc_info=True)
