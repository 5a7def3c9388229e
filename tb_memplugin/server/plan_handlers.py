"""Handler of the route with a plan under a budget."""

from typing import Any

from tb_memplugin.analysis.plan import plan_for
from tb_memplugin.analysis.plan_answer import describe_plan
from tb_memplugin.analysis.what_if_answer import describe_measured, measured_snapshot
from tb_memplugin.analysis.what_if_questions import capacity_bytes, device_of
from tb_memplugin.reader.run_reader import LoadedRun, Reader
from tb_memplugin.reader.source import Source
from tb_memplugin.reader.streams import BASIC, REQUESTS, TIMELINES
from tb_memplugin.server.computed import Computed

_ROW_BYTES = 500
"""Estimated bytes of a row or a layer's name of an answer in memory."""


class PlanHandlers:
    """Handler on top of one `Reader`; errors as in `Handlers`, and RequestError for a malformed budget.

    An answer takes up to some seconds to compute.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._answers = Computed(reader.cache)

    def plan(self, source: Source, run: str, device: str | None, budget: str | None) -> dict[str, Any]:
        """``GET plan``: how a run fits into a budget, by default the allocator's limit."""
        size = None if budget is None else capacity_bytes(budget, "budget")
        loaded = self._reader.run(source, run, {*BASIC, REQUESTS, TIMELINES})
        chosen = device_of(loaded.run, device)
        answer: dict[str, Any] = self._answers.get(
            ("plan", run, chosen, size), loaded.version, lambda: self._described(loaded, chosen, size)
        )
        return answer

    @staticmethod
    def _described(loaded: LoadedRun, device: str, budget: int | None) -> tuple[dict[str, Any], int]:
        """The answer, and its estimated bytes in memory."""
        plan = plan_for(loaded.run, device, budget)
        steps = [one.step for one in loaded.run.requests if one.device == device and one.phase == "train"]
        described = {
            "run": loaded.run.name,
            **describe_plan(plan),
            "measured": describe_measured(measured_snapshot(loaded.run, device, steps)),
        }
        rows = 20 + len(plan.ledger) + sum(len(segment) for option in plan.options for segment in option.segments)
        rows += len(described["measured"]["ledger"]) if described["measured"] else 0
        return described, _ROW_BYTES * rows
