"""All handlers, the routes to them, and errors as HTTP. Imported with the first request:
TensorBoard starts faster."""

import logging
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from tensorboard import errors as tensorboard_errors
from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Request, Response

from tb_memplugin.analysis import capacity_of, with_ranks
from tb_memplugin.errors import FormatError, NotFoundError, RequestError
from tb_memplugin.fit import (
    Conditions,
    Predictor,
    advice,
    answer_of,
    batch_limit,
    capacity_bytes,
    checked_conditions,
    curve,
    describe_demand,
    describe_measured,
    describe_plan,
    describe_what_if,
    device_of,
    measured_snapshot,
    peak_demand,
    plan_for,
)
from tb_memplugin.schema import as_json, clean, with_layers_of
from tb_memplugin.server import messages as of
from tb_memplugin.server.ahead import Ahead, Question
from tb_memplugin.server.messages import Route, Sources, StaticFiles, route
from tb_memplugin.server.run_list import RunFacts, RunList
from tb_memplugin.server.turns import Turns
from tb_memplugin.server.views import Views
from tb_memplugin.server.workers import Devices
from tb_memplugin.storage import BASIC, REQUESTS, TIMELINES, LoadedRun, Reader, given_back
from tb_memplugin.storage.files import FileSource, Source, SourceError
from tb_memplugin.version import __version__

_ROW_BYTES, _SHORT_ANSWER_BYTES = 500, 4 << 10
"""Estimated bytes in memory of a row or a layer's name of an answer, and of an answer with few of
them."""
_SETTLED = ("failed", "growing", "fragmented", "ok")
"""Statuses of runs that do not change with each flush of a recorder."""
MOST_AHEAD = 4  # most runs whose slow questions are asked ahead
_Sized: TypeAlias = tuple[dict[str, Any], int]  # an answer, and its estimated bytes in memory
_Predict: TypeAlias = Callable[[Predictor, Conditions, LoadedRun], dict[str, Any]]


class Handlers(Views, Devices):
    """Handlers on top of one `Reader`, whose answers ``http_api.md`` describes; for
    `patience_seconds` see `RunList`, for errors `Lookup`. Thread-safe.

    The last ones simulate, which takes some seconds, and also raise RequestError for malformed
    conditions or budgets. Their answers are computed one at a time, each only once, so that they
    slow down the other routes no more than one does. A cached answer does not wait, and a verdict
    of `what_if` not for longer than a simulated step."""

    _turns = Turns()

    def __init__(self, reader: Reader, patience_seconds: float | None = None) -> None:
        super().__init__(reader)
        self._runs = RunList(RunFacts(reader).describe, patience_seconds)

    def runs(self, source: Source) -> dict[str, Any]:
        facts = self._runs.facts(source, self._reader.catalog(source))
        return {"plugin_version": __version__, "runs": with_ranks(facts, time.time())}

    def what_if(self, *asked: Any) -> dict[str, Any]:
        return self._predicted("what_if", _what_if, *asked, first=True)

    def curve(self, *asked: Any) -> dict[str, Any]:
        return self._predicted(
            "curve", lambda of, conditions, _: {"curve": curve(of, conditions)}, *asked
        )

    def batch_limit(self, *asked: Any) -> dict[str, Any]:
        return self._predicted(
            "batch_limit", lambda of, conditions, _: batch_limit(of, conditions), *asked
        )

    def _predicted(
        self, name: str, answer: _Predict, *of_device: Any, first: bool = False
    ) -> dict[str, Any]:
        source, run, device, values = of_device
        conditions = checked_conditions(
            of.BATCH_SIZE.read(values),
            values.get("capacity"),
            *(
                values.get(name) or None
                for name in ("freeze", "unfreeze", "optimizer", "precision")
            ),
        )
        loaded = self._reader.run(source, run, {*BASIC, REQUESTS})
        chosen = device_of(loaded.run, device)

        def compute() -> _Sized:
            predictor = self._reader.cache.computed(
                ("predictor", run, chosen),
                loaded.version,
                lambda: (
                    Predictor.of(with_layers_of(loaded.run, loaded.by_worker, chosen), chosen),
                    loaded.nbytes,
                ),
            )
            described = {"run": run, "device": chosen, **answer(predictor, conditions, loaded)}
            return described, _ROW_BYTES * (
                20 + sum(2 * len(one) for one in described.values() if isinstance(one, list))
            )

        return self._once((name, run, chosen, conditions), loaded.version, compute, first)

    def plan(
        self,
        source: Source,
        run: str,
        device: str | None,
        budget: str | None,
        batch_size: int | None = None,
    ) -> dict[str, Any]:
        loaded = self._reader.run(source, run, {*BASIC, REQUESTS, TIMELINES})
        chosen = device_of(loaded.run, device)
        size = (
            None
            if budget is None
            else capacity_bytes(budget, "budget", capacity_of(loaded.run, chosen))
        )
        key = ("plan", run, chosen, size, batch_size)
        return self._once(key, loaded.version, lambda: _plan(loaded, chosen, size, batch_size))

    def fixes(self, source: Source, run: str, index: int) -> dict[str, Any]:
        loaded = self._reader.run(source, run)
        if index >= len(loaded.run.ooms):
            raise NotFoundError(
                f"run {run} has no failed allocation {index}; it has {len(loaded.run.ooms)} of them"
            )

        def compute() -> _Sized:
            tags = self._reader.tags(source, run)
            found = advice(
                *self._reader.failed_session(source, tags, loaded, loaded.run.ooms[index])
            )
            unchanged = found.unchanged and found.unchanged.as_peak()
            described = {"fixes": as_json(found.fixes), "note": found.note, "unchanged": unchanged}
            return {"run": run, "oom": index, **described}, _SHORT_ANSWER_BYTES

        return self._once(("fixes", run, index), loaded.version, compute)

    def demand(self, source: Source, run: str, device: str | None) -> dict[str, Any]:
        loaded = self._reader.run(source, run, {*BASIC, REQUESTS})
        chosen = device_of(loaded.run, device)

        def compute() -> _Sized:
            demand = describe_demand(peak_demand(loaded.run, chosen))
            return {"run": run, "device": chosen, "demand": demand}, _SHORT_ANSWER_BYTES

        return self._once(("demand", run, chosen), loaded.version, compute)

    def slow_questions(self, source: Source, runs: Sequence[Mapping[str, Any]]) -> list[Question]:
        """What takes seconds of the runs that the page opens first, given the entries of its
        list."""
        found: list[Question] = []
        settled = [run for run in runs if run["status"] in _SETTLED and run["devices"]]
        for run in sorted(settled, key=lambda run: int(run["rank"]))[:MOST_AHEAD]:
            name, device = run["run"], run["most_loaded"]
            slow: list[tuple[Any, ...]] = [
                (self.fixes, oom) for oom in {0, run["ooms"] - 1} if 0 <= oom < run["ooms"]
            ]
            slow += [
                (self.what_if, device, {}),
                (self.curve, device, {}),
                (self.plan, device, None),
            ]
            about = name, run["sessions"], run["ooms"], run["steps"]
            found += [
                ((*about, number), partial(ask, source, name, *of))
                for number, (ask, *of) in enumerate(slow)
            ]
        return found

    def _once(
        self, key: Hashable, version: Hashable, compute: Callable[[], _Sized], first: bool = False
    ) -> dict[str, Any]:
        """An answer at a version of its run; `compute` returns it and its estimated bytes in
        memory. For `first` see `Turns`."""
        cache = self._reader.cache
        known: dict[str, Any] | None = cache.get(key, version)
        if known is not None:
            return known
        with self._turns.turn(first):  # another thread may have computed it meanwhile
            return cache.computed(key, version, compute)


def _what_if(predictor: Predictor, conditions: Conditions, loaded: LoadedRun) -> dict[str, Any]:
    answer = answer_of(predictor, conditions)
    seen = measured_snapshot(
        loaded.run, answer.device, answer.recorded_steps, answer.prediction.batch_size
    )
    return {**describe_what_if(answer), "measured": describe_measured(seen)}


def _plan(loaded: LoadedRun, device: str, budget: int | None, batch_size: int | None) -> _Sized:
    plan = plan_for(
        with_layers_of(loaded.run, loaded.by_worker, device), device, budget, batch_size
    )
    rows = (
        20
        + len(plan.ledger)
        + sum(len(part) for option in plan.options for part in option.segments)
    )
    return {"run": loaded.run.name, **describe_plan(plan)}, _ROW_BYTES * rows


MAX_EXPERIMENTS = 16  # most experiments with cached data; a local server has one
# that the list of runs waits for a run that takes longer to read than the others
PATIENCE_SECONDS = 1.0
_FILES = ("index.js", "static/*")
DATA_ROUTES: Mapping[str, Route] = {
    "runs": route("RunsAnswer", Handlers.runs),
    "answers": route("AnswersAnswer", Handlers.answers, of.RUN, of.ANY_DEVICE, of.PHASE),
    "overview": route("OverviewHead", Handlers.overview, of.RUN, of.STRETCH),
    "pool": route("PoolHead", Handlers.pool, of.RUN, of.STRETCH),
    "host_memory": route("HostMemoryHead", Handlers.host_memory, of.RUN, of.STRETCH),
    "ledger_totals": route(
        "LedgerTotalsHead",
        Handlers.ledger_totals,
        of.RUN,
        of.DEVICE,
        of.PHASE,
        of.LAYER,
        of.SESSION,
    ),
    "layers": route("LayersAnswer", Handlers.layers, of.RUN, of.ANY_DEVICE, of.ANY_STEP),
    "activations": route("ActivationsHead", Handlers.activations, of.RUN, of.STEPS, of.POINTS),
    "snapshots": route("SnapshotsAnswer", Handlers.snapshots, of.RUN, of.ANY_DEVICE),
    "snapshot": route("Snapshot", Handlers.snapshot, of.RUN, of.DEVICE, of.STEP, of.PHASE),
    "timelines": route("TimelinesAnswer", Handlers.timelines, of.RUN, of.ANY_DEVICE),
    "timeline": route("TimelineHead", Handlers.timeline, of.RUN, of.DEVICE, of.STEP, of.PHASE),
    "maps": route("MapsAnswer", Handlers.maps, of.RUN, of.ANY_DEVICE),
    "map": route("MapHead", Handlers.map, of.RUN, of.PLACE),
    "oom": route("OomsAnswer", Handlers.oom, of.RUN),
    "device_memory": route("DeviceMemory", Handlers.device_memory, of.RUN, of.DEVICE, of.ANY_STEP),
    "devices": route("DevicesAnswer", Handlers.devices, of.RUN, of.PHASE),
    "fixes": route("Fixes", Handlers.fixes, of.RUN, of.OOM),
    "demand": route("DemandAnswer", Handlers.demand, of.RUN, of.ANY_DEVICE),
    "plan": route("Plan", Handlers.plan, of.RUN, of.ANY_DEVICE, of.BUDGET, of.BATCH_SIZE),
    "what_if": route("WhatIf", Handlers.what_if, of.RUN, of.ANY_DEVICE, of.CONDITIONS),
    "curve": route("Curve", Handlers.curve, of.RUN, of.ANY_DEVICE, of.ANY_BATCH_SIZE),
    "batch_limit": route(
        "BatchLimit", Handlers.batch_limit, of.RUN, of.ANY_DEVICE, of.ANY_BATCH_SIZE
    ),
}


class Server:
    """Responds to all requests of the plugin, given TensorBoard's `TBContext`. Thread-safe."""

    def __init__(self, context: Any) -> None:
        self._sources = Sources(context)
        self._static = StaticFiles()
        self._handlers: dict[str, Handlers] = {}
        self._ahead = Ahead()
        self._lock = threading.Lock()

    def respond(self, route: str, request: Request) -> Response:
        """Respond to a request. User errors become HTTP errors; other exceptions are bugs and
        propagate."""
        if request.method not in ("GET", "HEAD"):
            return of.error_response(
                request, 405, f"method {request.method:.20} is not allowed; use GET"
            )
        try:
            return self._file(route, request) if route in _FILES else self._data(route, request)
        except RequestError as error:
            return of.error_response(request, 400, str(error), error.parameter)
        except NotFoundError as error:
            return of.error_response(request, 404, str(error))
        except (SourceError, FormatError) as error:
            logging.getLogger(__name__).warning("tb_memplugin: %s", clean(str(error)))
            return of.error_response(request, 503, str(error))
        except tensorboard_errors.PublicError as error:
            return of.error_response(request, error.http_code, str(error))
        except HTTPException as error:
            return of.error_response(request, error.code or 400, error.description or error.name)

    def _data(self, route: str, request: Request) -> Response:
        accepted, answer, _ = DATA_ROUTES[route]
        values = of.parse(request.args, accepted)
        name, source = self._sources.of(request)
        handlers = self._handlers_of(name)
        with given_back(), self._ahead.request():
            found = answer(handlers, source, values)
            response = of.respond(request, *of.data_body(found))
        if route == "runs" and isinstance(found, dict) and isinstance(source, FileSource):
            self._ahead.ask(handlers.slow_questions(source, found["runs"]))
        return response

    def _file(self, route: str, request: Request) -> Response:
        # There may be a path prefix: the name follows the last "/static/".
        name = route if route == "index.js" else request.path.rpartition("/static/")[2]
        return of.respond(request, *self._static.read(name))

    def _handlers_of(self, source: str) -> Handlers:
        with self._lock:
            if source not in self._handlers:
                while len(self._handlers) >= MAX_EXPERIMENTS:
                    del self._handlers[next(iter(self._handlers))]
                self._handlers[source] = Handlers(Reader(), PATIENCE_SECONDS)
            return self._handlers[source]
