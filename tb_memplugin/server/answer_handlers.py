"""Handler of the route with the answers to the four questions."""

import threading
from typing import Any

from tb_memplugin.analysis.answers import describe_answers
from tb_memplugin.analysis.facts import device_facts
from tb_memplugin.errors import NotFoundError
from tb_memplugin.model import Phase
from tb_memplugin.reader.cache import ByteCache
from tb_memplugin.reader.run_reader import Reader
from tb_memplugin.reader.source import Source
from tb_memplugin.server.lookup import some

CACHE_BYTES = 4 << 20
"""Limit of the cached responses."""
_RESPONSE_BYTES = 16 << 10
"""Estimated bytes of a response in memory."""


class AnswerHandlers:
    """Handler on top of one `Reader`; errors as in `Handlers`. Thread-safe."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._lock = threading.Lock()
        self._known: ByteCache[dict[str, Any]] = ByteCache(CACHE_BYTES)

    def answers(self, source: Source, run: str, device: str | None, phase: Phase) -> dict[str, Any]:
        """``GET answers``: the answers on a device, cached for runs that did not change."""
        loaded = self._reader.run(source, run)
        key = (run, device, phase)
        with self._lock:
            known = self._known.get(key, loaded.version)
        if known is not None:
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
            self._known.put(key, loaded.version, described, _RESPONSE_BYTES)
        return described
