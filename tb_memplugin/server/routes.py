"""All handlers, the routes to them, and errors as HTTP. Imported with the first request: TensorBoard starts faster."""

import logging
import threading
import time
from collections.abc import Mapping
from typing import Any

from tensorboard import errors as tensorboard_errors
from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Request, Response

from tb_memplugin.analysis import with_ranks
from tb_memplugin.errors import FormatError, NotFoundError, RequestError
from tb_memplugin.schema import clean
from tb_memplugin.server import messages as of
from tb_memplugin.server.messages import Route, Sources, StaticFiles, route
from tb_memplugin.server.predictions import Predictions
from tb_memplugin.server.run_list import RunFacts, RunList
from tb_memplugin.server.views import Views
from tb_memplugin.server.workers import Devices
from tb_memplugin.storage import Reader, given_back
from tb_memplugin.storage.files import Source, SourceError
from tb_memplugin.version import __version__

MAX_EXPERIMENTS = 16  # most experiments with cached data; a local server has one
PATIENCE_SECONDS = 1.0  # that the list of runs waits for a run that takes longer to read than the others


class Handlers(Views, Devices, Predictions):
    """Handlers on top of one `Reader`, whose answers ``http_api.md`` describes; for `patience_seconds` see `RunList`,
    for errors `Lookup`. Thread-safe."""

    def __init__(self, reader: Reader, patience_seconds: float | None = None) -> None:
        super().__init__(reader)
        self._runs = RunList(RunFacts(reader).describe, patience_seconds)

    def runs(self, source: Source) -> dict[str, Any]:
        facts = self._runs.facts(source, self._reader.catalog(source))
        return {"plugin_version": __version__, "runs": with_ranks(facts, time.time())}


_FILES = ("index.js", "static/*")
DATA_ROUTES: Mapping[str, Route] = {
    "runs": route("RunsAnswer", Handlers.runs),
    "answers": route("AnswersAnswer", Handlers.answers, of.RUN, of.ANY_DEVICE, of.PHASE),
    "overview": route("OverviewHead", Handlers.overview, of.RUN, of.STRETCH),
    "pool": route("PoolHead", Handlers.pool, of.RUN, of.STRETCH),
    "host_memory": route("HostMemoryHead", Handlers.host_memory, of.RUN, of.STRETCH),
    "ledger_totals": route(
        "LedgerTotalsHead", Handlers.ledger_totals, of.RUN, of.DEVICE, of.PHASE, of.LAYER, of.SESSION
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
    "plan": route("Plan", Handlers.plan, of.RUN, of.ANY_DEVICE, of.BUDGET),
    "what_if": route("WhatIf", Handlers.what_if, of.RUN, of.ANY_DEVICE, of.CONDITIONS),
}


class Server:
    """Responds to all requests of the plugin, given TensorBoard's `TBContext`. Thread-safe."""

    def __init__(self, context: Any) -> None:
        self._sources = Sources(context)
        self._static = StaticFiles()
        self._handlers: dict[str, Handlers] = {}
        self._lock = threading.Lock()

    def respond(self, route: str, request: Request) -> Response:
        """Respond to a request. User errors become HTTP errors; other exceptions are bugs and propagate."""
        if request.method not in ("GET", "HEAD"):
            return of.error_response(request, 405, f"method {request.method:.20} is not allowed; use GET")
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
        with given_back():
            return of.respond(request, *of.data_body(answer(self._handlers_of(name), source, values)))

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
