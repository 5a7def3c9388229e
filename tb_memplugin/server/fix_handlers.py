"""Handler of the route with the possible fixes of a failed allocation."""

from typing import Any

from tb_memplugin.analysis.describe import describe_fixes
from tb_memplugin.analysis.fixes import advice
from tb_memplugin.errors import NotFoundError
from tb_memplugin.reader.failed_sessions import failed_session
from tb_memplugin.reader.run_reader import LoadedRun, Reader
from tb_memplugin.reader.source import Source
from tb_memplugin.server.computed import Computed

_ANSWER_BYTES = 4 << 10
"""Estimated bytes of an answer in memory."""


class FixHandlers:
    """Handler on top of one `Reader`; errors as in `Handlers`."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._answers = Computed(reader.cache)

    def fixes(self, source: Source, run: str, index: int) -> dict[str, Any]:
        """``GET fixes``: the possible fixes of a failed allocation, by its index in ``oom``."""
        loaded = self._reader.run(source, run)
        if index >= len(loaded.run.ooms):
            raise NotFoundError(f"run {run} has no failed allocation {index}; it has {len(loaded.run.ooms)} of them")
        answer: dict[str, Any] = self._answers.get(
            ("fixes", run, index), loaded.version, lambda: (self._described(source, loaded, index), _ANSWER_BYTES)
        )
        return answer

    def _described(self, source: Source, loaded: LoadedRun, index: int) -> dict[str, Any]:
        name = loaded.run.name
        tags = self._reader.tags(source, name)
        found = advice(*failed_session(self._reader, source, tags, loaded, loaded.run.ooms[index]))
        return {"run": name, "oom": index, "fixes": describe_fixes(found.fixes), "note": found.note}
