"""Handler of the route with the answers to the four questions."""

from typing import Any

from tb_memplugin.analysis.answers.questions import describe_answers
from tb_memplugin.analysis.steps.facts import device_facts
from tb_memplugin.errors import NotFoundError
from tb_memplugin.model import Phase, Run
from tb_memplugin.model.text import some
from tb_memplugin.reader.catalog import RunTags
from tb_memplugin.reader.files.source import Source
from tb_memplugin.reader.run_reader import Reader
from tb_memplugin.server.worker_lookup import tags_with, with_all_ooms, workers_with

_RESPONSE_BYTES = 16 << 10
"""Estimated bytes of a response in memory."""


class AnswerHandlers:
    """Handler on top of one `Reader`; errors as in `Handlers`. Thread-safe."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def answers(self, source: Source, run: str, device: str | None, phase: Phase) -> dict[str, Any]:
        """``GET answers``: the answers on a device, cached for runs that did not change."""
        tags = tags_with(self._reader, source, run, device)
        key = ("answers", run, device, phase)
        known: dict[str, Any] | None = self._reader.cache.get(key, tags.version)
        if known is not None:
            return known
        described = {
            "run": run,
            "device": device,
            "phase": phase,
            "answers": describe_answers(self._run_of(source, tags, device), device, phase),
        }
        self._reader.cache.put(key, tags.version, described, _RESPONSE_BYTES)
        return described

    def _run_of(self, source: Source, tags: RunTags, device: str | None) -> Run:
        """The run with the worker of a device, as `describe_answers` needs it."""
        names = []
        for own in workers_with(tags, device):
            loaded = self._reader.load(source, own)
            of_worker = [facts.device for facts in device_facts(loaded.run)]
            if device is None or device in of_worker:
                return with_all_ooms(self._reader, source, loaded, tags.name)
            names.extend(of_worker)
        raise NotFoundError(f"run {tags.name} has no device {device!r:.200}; available: {some(names)}")
