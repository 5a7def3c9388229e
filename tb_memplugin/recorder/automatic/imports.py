"""Calls functions as soon as modules are imported: at once, or when the program imports them."""

import contextlib
import importlib.abc
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

logger = logging.getLogger("tb_memplugin")

Job = Callable[[ModuleType], None]


class AfterImport(importlib.abc.MetaPathFinder):
    """Waits for imports. The modules' own loaders load them, and a job that fails is logged only.

    Args:
        jobs: Name of a module to what is called with it, once.
    """

    def __init__(self, jobs: Mapping[str, Job]) -> None:
        self._jobs = dict(jobs)

    def install(self) -> None:
        """Call the jobs of modules that are imported, and wait for the others."""
        for name in list(self._jobs):
            module = sys.modules.get(name)
            if module is not None and not getattr(module.__spec__, "_initializing", False):
                self._run(self._jobs.pop(name), module)
        if self._jobs:
            sys.meta_path.insert(0, self)

    def remove(self) -> None:
        """Wait no longer."""
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
