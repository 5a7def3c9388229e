"""Answers that simulate, which takes some seconds. They also raise RequestError for malformed
conditions or budgets.

They are computed one at a time, each only once, so that they slow down the other routes no more
than one does. A cached answer does not wait, and a verdict of `what_if` not for longer than a
simulated step."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar

from tb_memplugin.analysis import capacity_of
from tb_memplugin.errors import NotFoundError
from tb_memplugin.fit import (
    Conditions,
    Predictor,
    advice,
    answer_of,
    capacity_bytes,
    checked_conditions,
    describe_what_if,
    device_of,
    measured_snapshot,
    peak_demand,
    plan_for,
)
from tb_memplugin.fit import batch_limit as limit_of
from tb_memplugin.fit import curve as curve_of
from tb_memplugin.schema import record_of, with_layers_of
from tb_memplugin.server import answers as of
from tb_memplugin.server.ahead import Question
from tb_memplugin.server.lookup import Lookup
from tb_memplugin.server.messages import BATCH_SIZE
from tb_memplugin.server.turns import Turns
from tb_memplugin.storage import REQUESTS, TIMELINES, LoadedRun

_ROW_BYTES, _SHORT_ANSWER_BYTES = 500, 4 << 10
"""Estimated bytes in memory of a row or a layer's name of an answer, and of an answer with few of
them."""
_SETTLED = ("failed", "growing", "fragmented", "ok")
"""Statuses of runs that do not change with each flush of a recorder."""
MOST_AHEAD = 4  # most runs whose slow questions are asked ahead
_TURNS = Turns()
_Answer = TypeVar("_Answer")


_Parts: TypeAlias = Callable[[Predictor, Conditions, LoadedRun], dict[str, Any]]


def _predicted(
    kind: type[_Answer],
    parts: _Parts,
    lookup: Lookup,
    run: str,
    device: str | None,
    values: Mapping[str, str],
) -> _Answer:
    names = ("freeze", "unfreeze", "optimizer", "precision")
    conditions = checked_conditions(
        BATCH_SIZE.read(values), values.get("capacity"), *(values.get(one) or None for one in names)
    )
    loaded = lookup.run(run, REQUESTS)
    chosen = device_of(loaded.run, device)

    def compute() -> tuple[_Answer, int]:
        predictor = lookup.reader.cache.computed(
            ("predictor", run, chosen),
            loaded.version,
            lambda: (_predictor(loaded, chosen), loaded.nbytes),
        )
        found = {"run": run, "device": chosen, **parts(predictor, conditions, loaded)}
        rows = sum(2 * len(part) for part in found.values() if isinstance(part, list))
        return kind(**found), _ROW_BYTES * (20 + rows)

    key = kind, run, chosen, conditions
    return _once(lookup, key, loaded, compute, first=kind is of.WhatIf)


def _predictor(loaded: LoadedRun, device: str) -> Predictor:
    return Predictor.of(with_layers_of(loaded.run, loaded.by_worker, device), device)


def _what_if(predictor: Predictor, conditions: Conditions, loaded: LoadedRun) -> dict[str, Any]:
    answer = answer_of(predictor, conditions)
    seen = measured_snapshot(
        loaded.run, answer.device, answer.recorded_steps, answer.prediction.batch_size
    )
    measured = None if seen is None else record_of(of.MeasuredStep, seen)
    return {**describe_what_if(answer), "measured": measured}


def _curve(predictor: Predictor, conditions: Conditions, loaded: LoadedRun) -> dict[str, Any]:
    return {"curve": curve_of(predictor, conditions)}


def _batch_limit(predictor: Predictor, conditions: Conditions, loaded: LoadedRun) -> dict[str, Any]:
    return limit_of(predictor, conditions)


what_if = partial(_predicted, of.WhatIf, _what_if)
curve = partial(_predicted, of.Curve, _curve)
batch_limit = partial(_predicted, of.BatchLimit, _batch_limit)


def plan(
    lookup: Lookup, run: str, device: str | None, budget: str | None, batch_size: int | None = None
) -> of.Plan:
    loaded = lookup.run(run, REQUESTS, TIMELINES)
    chosen = device_of(loaded.run, device)
    size = (
        None
        if budget is None
        else capacity_bytes(budget, "budget", capacity_of(loaded.run, chosen))
    )

    def compute() -> tuple[of.Plan, int]:
        of_device = with_layers_of(loaded.run, loaded.by_worker, chosen)
        found = plan_for(of_device, chosen, size, batch_size)
        segments = sum(len(part) for option in found.options for part in option.segments)
        rows = 20 + len(found.ledger) + segments
        return record_of(of.Plan, found, run=loaded.run.name), _ROW_BYTES * rows

    return _once(lookup, ("plan", run, chosen, size, batch_size), loaded, compute)


def fixes(lookup: Lookup, run: str, index: int) -> of.Fixes:
    loaded = lookup.run(run)
    ooms = loaded.run.ooms
    if index >= len(ooms):
        raise NotFoundError(
            f"run {run} has no failed allocation {index}; it has {len(ooms)} of them"
        )

    def compute() -> tuple[of.Fixes, int]:
        reader, source, _ = lookup
        failed = reader.failed_session(source, lookup.tags(run), loaded, ooms[index])
        found = advice(*failed)
        unchanged: Any = found.unchanged and found.unchanged.as_peak()
        return of.Fixes(run, index, found.fixes, found.note, unchanged), _SHORT_ANSWER_BYTES

    return _once(lookup, ("fixes", run, index), loaded, compute)


def demand(lookup: Lookup, run: str, device: str | None) -> of.DemandAnswer:
    loaded = lookup.run(run, REQUESTS)
    chosen = device_of(loaded.run, device)

    def compute() -> tuple[of.DemandAnswer, int]:
        found = peak_demand(loaded.run, chosen)
        return of.DemandAnswer(run, chosen, found), _SHORT_ANSWER_BYTES

    return _once(lookup, ("demand", run, chosen), loaded, compute)


def slow_questions(lookup: Lookup, runs: Sequence[of.RunInfo]) -> list[Question]:
    """What takes seconds of the runs that the page opens first, given the entries of its list."""
    found: list[Question] = []
    settled = [run for run in runs if run.status in _SETTLED and run.devices]
    for run in sorted(settled, key=lambda run: run.rank)[:MOST_AHEAD]:
        name, device = run.run, run.most_loaded
        slow: list[Callable[[], object]] = [
            partial(fixes, lookup, name, oom) for oom in {0, run.ooms - 1} if 0 <= oom < run.ooms
        ]
        slow += [
            partial(what_if, lookup, name, device, {}),
            partial(curve, lookup, name, device, {}),
            partial(plan, lookup, name, device, None),
        ]
        about = name, run.sessions, run.ooms, run.steps
        found += [((*about, number), ask) for number, ask in enumerate(slow)]
    return found


def _once(
    lookup: Lookup,
    key: Hashable,
    loaded: LoadedRun,
    compute: Callable[[], tuple[_Answer, int]],
    first: bool = False,
) -> _Answer:
    """An answer at the version of its run; `compute` returns it and its estimated bytes in memory.
    For `first` see `Turns`."""
    cache = lookup.reader.cache
    known: _Answer | None = cache.get(key, loaded.version)
    if known is not None:
        return known
    with _TURNS.turn(first):  # another thread may have computed it meanwhile
        return cache.computed(key, loaded.version, compute)
