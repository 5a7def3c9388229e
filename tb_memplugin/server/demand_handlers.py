"""Handler of the route with the parts of a device's peak."""

from typing import Any

from tb_memplugin.analysis.demand import describe_demand, peak_demand
from tb_memplugin.analysis.what_if_questions import device_of
from tb_memplugin.reader.run_reader import Reader
from tb_memplugin.reader.source import Source
from tb_memplugin.reader.streams import BASIC, REQUESTS
from tb_memplugin.server.computed import Computed

_ANSWER_BYTES = 2 << 10
"""Estimated bytes of an answer in memory."""


class DemandHandlers:
    """Handler on top of one `Reader`; errors as in `Handlers`."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._answers = Computed(reader.cache)

    def demand(self, source: Source, run: str, device: str | None) -> dict[str, Any]:
        """``GET demand``: how much of a device's highest recorded peak any allocator would need."""
        loaded = self._reader.run(source, run, {*BASIC, REQUESTS})
        chosen = device_of(loaded.run, device)
        answer: dict[str, Any] = self._answers.get(
            ("demand", run, chosen),
            loaded.version,
            lambda: (
                {"run": run, "device": chosen, "demand": describe_demand(peak_demand(loaded.run, chosen))},
                _ANSWER_BYTES,
            ),
        )
        return answer
