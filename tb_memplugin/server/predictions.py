"""Handlers of the routes whose answers are simulated: what-if, plan, fixes and demand. Each takes some seconds."""

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from tb_memplugin.errors import NotFoundError
from tb_memplugin.fit import (
    Conditions,
    Predictor,
    advice,
    capacity_bytes,
    checked_conditions,
    describe_demand,
    describe_measured,
    describe_plan,
    describe_what_if,
    device_of,
    measured_snapshot,
    peak_demand,
    plan_for,
)
from tb_memplugin.schema import as_json, with_layers_of
from tb_memplugin.server.messages import BATCH_SIZE
from tb_memplugin.server.workers import Lookup
from tb_memplugin.storage import BASIC, REQUESTS, TIMELINES, LoadedRun
from tb_memplugin.storage.files import Source

_ROW_BYTES, _SHORT_ANSWER_BYTES = 500, 4 << 10
"""Estimated bytes in memory of a row or a layer's name of an answer, and of an answer with few of them."""


class Predictions(Lookup):
    """Handlers that also raise RequestError for malformed conditions or budgets. Answers are computed one at a time,
    each only once, so that they slow down the other routes no more than one does. A cached answer does not wait."""

    _computing = threading.Lock()

    def what_if(self, source: Source, run: str, device: str | None, values: Mapping[str, str]) -> dict[str, Any]:
        conditions = checked_conditions(
            BATCH_SIZE.read(values),
            values.get("capacity"),
            *(values.get(name) or None for name in ("freeze", "unfreeze", "optimizer", "precision")),
        )
        loaded = self._reader.run(source, run, {*BASIC, REQUESTS})
        chosen = device_of(loaded.run, device)
        return self._once(
            ("what_if", run, chosen, conditions), loaded.version, lambda: self._what_if(loaded, chosen, conditions)
        )

    def plan(self, source: Source, run: str, device: str | None, budget: str | None) -> dict[str, Any]:
        size = None if budget is None else capacity_bytes(budget, "budget")
        loaded = self._reader.run(source, run, {*BASIC, REQUESTS, TIMELINES})
        chosen = device_of(loaded.run, device)
        return self._once(("plan", run, chosen, size), loaded.version, lambda: _plan(loaded, chosen, size))

    def fixes(self, source: Source, run: str, index: int) -> dict[str, Any]:
        loaded = self._reader.run(source, run)
        if index >= len(loaded.run.ooms):
            raise NotFoundError(f"run {run} has no failed allocation {index}; it has {len(loaded.run.ooms)} of them")

        def compute() -> tuple[dict[str, Any], int]:
            tags = self._reader.tags(source, run)
            found = advice(*self._reader.failed_session(source, tags, loaded, loaded.run.ooms[index]))
            return {"run": run, "oom": index, "fixes": as_json(found.fixes), "note": found.note}, _SHORT_ANSWER_BYTES

        return self._once(("fixes", run, index), loaded.version, compute)

    def demand(self, source: Source, run: str, device: str | None) -> dict[str, Any]:
        loaded = self._reader.run(source, run, {*BASIC, REQUESTS})
        chosen = device_of(loaded.run, device)

        def compute() -> tuple[dict[str, Any], int]:
            demand = describe_demand(peak_demand(loaded.run, chosen))
            return {"run": run, "device": chosen, "demand": demand}, _SHORT_ANSWER_BYTES

        return self._once(("demand", run, chosen), loaded.version, compute)

    def _once(
        self, key: Hashable, version: Hashable, compute: Callable[[], tuple[dict[str, Any], int]]
    ) -> dict[str, Any]:
        """An answer at a version of its run; `compute` returns it and its estimated bytes in memory."""
        cache = self._reader.cache
        known: dict[str, Any] | None = cache.get(key, version)
        if known is not None:
            return known
        with self._computing:  # another thread may have computed it meanwhile
            return cache.computed(key, version, compute)

    def _what_if(self, loaded: LoadedRun, device: str, conditions: Conditions) -> tuple[dict[str, Any], int]:
        predictor = self._reader.cache.computed(
            ("predictor", loaded.run.name, device),
            loaded.version,
            lambda: (Predictor.of(with_layers_of(loaded.run, loaded.by_worker, device), device), loaded.nbytes),
        )
        answer = predictor.what_if(conditions)
        curve = predictor.curve(answer)
        described = {**describe_what_if(answer), "curve": curve}
        return _with_measured(loaded, device, described, answer.recorded_steps, len(curve))


def _plan(loaded: LoadedRun, device: str, budget: int | None) -> tuple[dict[str, Any], int]:
    plan = plan_for(with_layers_of(loaded.run, loaded.by_worker, device), device, budget)
    steps = [one.step for one in loaded.run.requests if one.device == device and one.phase == "train"]
    names = sum(len(part) for option in plan.options for part in option.segments)
    return _with_measured(loaded, device, describe_plan(plan), steps, names)


def _with_measured(
    loaded: LoadedRun, device: str, described: Mapping[str, Any], steps: Sequence[int], others: int
) -> tuple[dict[str, Any], int]:
    """An answer with a ledger and `others` more rows, and beside it a measured one; its estimated bytes in memory."""
    measured = describe_measured(measured_snapshot(loaded.run, device, steps))
    rows = 20 + len(described["ledger"]) + others + (len(measured["ledger"]) if measured else 0)
    return {"run": loaded.run.name, **described, "measured": measured}, _ROW_BYTES * rows
