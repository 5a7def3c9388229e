"""Handler of the route with the answers to the four questions."""

import threading
from typing import Any

from tb_memplugin.analysis.answers import describe_answers
from tb_memplugin.analysis.facts import device_facts
from tb_memplugin.errors import NotFoundError
from tb_memplugin.model import Phase
from tb_memplugin.reader.run_reader import Reader
from tb_memplugin.reader.source import Source
from tb_memplugin.server.lookup import some

MAX_CACHED = 256
"""Most cached responses."""


class AnswerHandlers:
    """Handler on top of one `Reader`; errors as in `Handlers`. Thread-safe."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str | None, Phase], tuple[str, dict[str, Any]]] = {}

    def answers(self, source: Source, run: str, device: str | None, phase: Phase) -> dict[str, Any]:
        """``GET answers``: the answers on a device, cached for runs that did not change."""
        loaded = self._reader.run(source, run)
        key = (run, device, phase)
        with self._lock:
            version, known = self._known.get(key, ("", {}))
        if known and version == loaded.version:
            return known
        names = [facts.device for facts in device_facts(loaded.run)]
        if device is not None and device not in names:
            raise NotFoundError(f"run {run} has no device {device!r:.200}; available: {some(names)}")
        described = {
            "run": run,
            "device": device,
            "phase": phase,
            "answers": describe_answers(loaded.run, device, phase),
        }
        with self._lock:
            while len(self._known) >= MAX_CACHED:
                del self._known[next(iter(self._known))]
            self._known[key] = (loaded.version, described)
        return described
